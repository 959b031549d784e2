//! The status of a set.

use std::cell::RefCell;

use super::*;
use crate::sidecar_set::status::sidecar_set_status;

#[test]
fn the_status_counts_pods_and_names_those_without_the_containers() {
    let log = set_with_container("log", "log");
    let old = set("log", json!({"containers": [{"name": "log", "image": "log:0"}]}));
    let matched = |name: &str, set: Option<&Arc<Sidecars>>, ready| {
        let set: Vec<_> = set.into_iter().cloned().collect();
        MatchedPod {
            namespace: "games".to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), "arena".to_owned())]),
            marks: marks(&injected(pod(), &set)),
            ready,
            ..MatchedPod::default()
        }
    };
    let at = |second| Timestamp::from_second(second).expect("a time");
    let webhook = RefCell::new(WebhookState::InForce);
    let status_of = |pods: Vec<MatchedPod>, old_status: Option<&_>, second| {
        let progress = allot(&log, &pods, at(second)).progress;
        let others =
            OtherPods { namespaces: &["web".to_owned()], all: false, webhook: &webhook.borrow() };
        sidecar_set_status(Some(&log), &pods, &progress, &others, 3, old_status, at(second)).0
    };
    let status = status_of(
        vec![
            matched("a", Some(&log), true),
            matched("b", Some(&old), true),
            matched("c", Some(&log), false),
        ],
        None,
        10,
    );
    assert_eq!((status.matched_pods, status.updated_pods), (3, 2));
    assert_eq!((status.ready_pods, status.updated_ready_pods), (2, 1));
    assert_eq!((status.observed_generation, status.uninjected_pods), (3, 0));
    // Its kubelet reports the old container as ready while it pulls the new image.
    let pulling = MatchedPod { changing: Changing::Sidecars, ..matched("a", Some(&log), true) };
    let found = status_of(vec![pulling], None, 10);
    assert_eq!((found.matched_pods, found.updated_pods), (1, 1));
    assert_eq!((found.ready_pods, found.updated_ready_pods), (0, 0));
    assert_eq!(found.conditions[0].reason, "PodsNotReady");
    let condition = |status: &crate::api::SidecarSetStatus, index: usize| {
        let condition = &status.conditions[index];
        (
            condition.status.clone(),
            condition.reason.clone(),
            condition.message.clone(),
            condition.last_transition_time.0,
        )
    };
    let expected = ("False".into(), "PodsNotReady".into(), "not ready: games/c".into(), at(10));
    assert_eq!(condition(&status, 0), expected);

    let injecting = |status: &crate::api::SidecarSetStatus| {
        let (status, reason, message, since) = condition(status, 2);
        (format!("{status} {reason}"), message, since)
    };
    let message = "new pods get the containers".to_owned();
    assert_eq!(injecting(&status), ("True Injecting".to_owned(), message, at(10)));
    // Game pods get the containers without the webhook, so the condition stays True.
    webhook.replace(WebhookState::NotServed);
    let status = status_of(vec![matched("a", Some(&log), true)], Some(&status), 15);
    let (found, message, since) = injecting(&status);
    assert_eq!((found.as_str(), since), ("True WebhookDisabled", at(10)));
    assert!(message.contains("(web) do not get them"), "{message}");

    let mut with_log = pod();
    let containers = with_log["spec"]["containers"].as_array_mut().expect("containers");
    containers.push(json!({"name": "log", "image": "own"}));
    let mut clashing = matched("d", None, true);
    clashing.marks = marks(&injected(with_log, &[Arc::clone(&log)]));
    let status = status_of(vec![matched("b", None, true), clashing], Some(&status), 20);
    assert_eq!((status.matched_pods, status.uninjected_pods), (0, 2));
    let message = "the containers are missing from games/b; games/d";
    assert_eq!(
        condition(&status, 0),
        ("False".into(), "NotInjected".into(), message.into(), at(20))
    );
    let (_, reason, message, _) = condition(&status, 2);
    assert_eq!(reason, "Clash");
    assert!(message.contains("games/d: the pod has another container \"log\""), "{message}");
    assert!(message.contains("(web) do not get them"), "{message}");

    // The container was renamed since: the pod would get it now.
    let mut fixed = matched("d", None, true);
    fixed.marks = marks(&injected(pod(), &[set_with_container("log", "game")]));
    assert!(!fixed.marks["log"].is_injected());
    webhook.replace(WebhookState::InForce);
    let status = status_of(vec![fixed], Some(&status), 25);
    assert_eq!((status.matched_pods, status.uninjected_pods), (0, 1));
    assert_eq!(injecting(&status).0, "True Injecting");
    assert_eq!(condition(&status, 0).2, "the containers are missing from games/d");
}

#[test]
fn the_status_names_a_pod_whose_update_the_api_server_refuses() {
    let [old, new] = ["log:1", "log:2"]
        .map(|image| set("log", json!({"containers": [{"name": "log", "image": image}]})));
    let now = Timestamp::UNIX_EPOCH;
    let pod = |name: &str, refused: bool| MatchedPod {
        namespace: "web".to_owned(),
        name: name.to_owned(),
        labels: BTreeMap::from([("app".to_owned(), "arena".to_owned())]),
        marks: marks(&injected(self::pod(), &[Arc::clone(&old)])),
        ready: true,
        refused: refused.then(|| RefusedWrite {
            message: "log:2 is not signed".to_owned(),
            retry_at: now + jiff::SignedDuration::from_secs(60),
        }),
        ..MatchedPod::default()
    };
    let others = OtherPods { namespaces: &[], all: false, webhook: &WebhookState::InForce };
    let progressing = |pods: &[MatchedPod]| {
        let progress = allot(&new, pods, now).progress;
        let status = sidecar_set_status(Some(&new), pods, &progress, &others, 1, None, now).0;
        let condition = &status.conditions[1];
        format!("{} {}: {}", condition.status, condition.reason, condition.message)
    };
    let refused = [pod("a", true), pod("b", true)];
    assert_eq!(
        progressing(&refused),
        "False Refused: 0 of 2 pods have the newest containers; the API server refuses to update 2 pods: \
         web/a: log:2 is not signed"
    );
    assert_eq!(
        progressing(&[pod("a", true), pod("b", false)]),
        "True Updating: 0 of 2 pods have the newest containers; the API server refuses to update a pod: \
         web/a: log:2 is not signed"
    );
}

#[test]
fn a_set_whose_selector_is_invalid_says_so() {
    let set = json!({"metadata": {"name": "log"}, "spec": {"selector": {}, "containers": []}});
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    assert!(Sidecars::of(&set).is_none());
    let others = OtherPods { namespaces: &[], all: false, webhook: &WebhookState::InForce };
    let now = Timestamp::UNIX_EPOCH;
    let status =
        sidecar_set_status(None, &[], &allot::Progress::default(), &others, 1, None, now).0;
    for type_ in ["Progressing", "Injecting"] {
        let condition = status.conditions.iter().find(|it| it.type_ == type_);
        let condition = condition.expect("a condition");
        assert_eq!((&*condition.status, &*condition.reason), ("False", "InvalidSelector"));
    }
}
