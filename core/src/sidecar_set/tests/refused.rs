//! Refused writes of a set's revisions: its status says why nothing is updated, and they are attempted again.

use std::collections::{BTreeSet, HashSet};

use jiff::SignedDuration;

use super::*;
use crate::observed::InPlaceRecord;
use crate::sidecar_set::{OtherPods, SetRevision, SetWorld, WebhookState, plan};
use crate::write::{Plan, Refused};

/// A set of which the API server has these revisions.
fn planned(
    set: &SidecarSet,
    revisions: &[Arc<SetRevision>],
    [revision, clean_up]: [Option<&Refused>; 2],
    now: Timestamp,
) -> Plan<SidecarSetStatus> {
    let webhook = WebhookState::default();
    let world = SetWorld {
        now,
        sidecars: None,
        revisions,
        orphans: &[],
        taken: &BTreeSet::new(),
        revision_namespace: "gamekeeper",
        pods: &[],
        others: OtherPods { namespaces: &[], all: false, webhook: &webhook },
        publishes_events: true,
        refused_revision: revision,
        refused_clean_up: clean_up,
        named: &HashSet::new,
        record: |_, _, _| InPlaceRecord::default(),
    };
    plan(set, &world)
}

fn message(status: &SidecarSetStatus, type_: &str) -> String {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|it| it.type_ == type_).expect("a condition");
    format!("{} {}: {}", found.status, found.reason, found.message)
}

#[test]
fn a_set_whose_revision_is_refused_says_so_and_tries_again() {
    let set = json!({"metadata": {"name": "log", "generation": 3}, "spec": {"selector": {}}});
    let mut set: SidecarSet = serde_json::from_value(set).expect("a set");
    let now = Timestamp::UNIX_EPOCH;
    assert_eq!(planned(&set, &[], [None; 2], now).writes.len(), 1);
    let refused = Refused::after(None, "exceeded quota".to_owned(), now);
    let held = planned(&set, &[], [Some(&refused), None], now);
    assert_eq!(held.writes, []);
    assert_eq!(held.wake, now.checked_add(SignedDuration::from_secs(1)).ok());
    let status = held.status.expect("a status");
    assert_eq!(status.observed_generation, 3);
    let expected = "False FailedRevision: the set cannot be recorded in a ControllerRevision, so nothing is updated: \
                    exceeded quota; tried again within 30 s";
    for type_ in ["Ready", "Progressing"] {
        assert_eq!(message(&status, type_), expected);
    }
    assert_eq!(held.events.len(), 1);
    set.status = Some(status);
    let later = now + SignedDuration::from_secs(1);
    let again = planned(&set, &[], [Some(&refused), None], later);
    assert_eq!((again.writes.len(), again.status, again.events.len()), (1, None, 0));
    let at = |seconds| now + SignedDuration::from_secs(seconds);
    assert_eq!(again.wake, Some(at(10)));
    let stalled = planned(&set, &[], [Some(&refused), None], at(10)).status;
    assert!(message(&stalled.expect("a status"), "Stalled").starts_with("True FailedRevision"));
}

#[test]
fn revisions_that_cannot_be_deleted_are_told_while_there_are_any() {
    let set =
        json!({"metadata": {"name": "log"}, "spec": {"selector": {}, "revisionHistoryLimit": 0}});
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    let revision = |name: &str, number, content| {
        let (name, uid) = (name.to_owned(), name.to_owned());
        Arc::new(SetRevision { name, uid, number, content })
    };
    let newest = revision("log-2", 2, injected_by(&set));
    let old = revision("log-1", 1, json!({"containers": [{"name": "a", "image": "a"}]}));
    let refused = Refused::after(None, "not allowed".to_owned(), Timestamp::UNIX_EPOCH);
    let told = |revisions: &[Arc<SetRevision>]| {
        let refused = [None, Some(&refused)];
        let status = planned(&set, revisions, refused, Timestamp::UNIX_EPOCH).status;
        message(&status.expect("a status"), "Progressing")
    };
    assert!(
        told(&[old, Arc::clone(&newest)]).ends_with(
            "; old revisions cannot be deleted: not allowed; tried again within 5 minutes"
        )
    );
    assert!(!told(&[newest]).contains("not allowed"));
}

/// What the newest revision of a set injects.
fn injected_by(set: &SidecarSet) -> Value {
    crate::sidecar_set::set::injected(&set.spec)
}
