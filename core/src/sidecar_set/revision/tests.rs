//! Which revision new pods get, and which ControllerRevisions are written and kept, as tables.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::*;
use crate::observed::SidecarMark;
use crate::sidecar_set::history::{History, expired, history, named_by_set};
use crate::sidecar_set::set::injected;
use crate::sidecar_set::{Changing, inject};
use crate::write::{NewRevision, RevisionData, Write};

/// A set with one container: `image` may be followed by the value of an environment variable, which
/// cannot be changed in a running pod.
fn set(image: &str, spec: Value, status: Value) -> SidecarSet {
    let (image, env) = image.split_once(' ').unwrap_or((image, ""));
    let mut set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "log", "image": image, "env": [{"name": "MODE", "value": env}]}],
        },
    });
    for (field, value) in spec.as_object().expect("a spec") {
        set["spec"][field] = value.clone();
    }
    if !status.is_null() {
        set["status"] = status;
    }
    serde_json::from_value(set).expect("a set")
}

/// The ControllerRevision of a set with this image.
fn revision(image: &str, number: i64) -> Arc<SetRevision> {
    let set = set(image, json!({}), Value::Null);
    let sidecars = Sidecars::of(&set).expect("a selector");
    Arc::new(SetRevision {
        name: sidecars.revision,
        uid: format!("uid-{image}"),
        number,
        content: injected(&set.spec),
    })
}

fn parsed(set: &SidecarSet, revisions: &[Arc<SetRevision>]) -> Sidecars {
    let sidecars = Sidecars::of(set).expect("a selector");
    sidecars.with_revisions(set, revisions)
}

/// The image that a new pod with these labels gets.
fn image_of_new_pod(sidecars: &Sidecars, labels: Value) -> String {
    let mut labels = labels;
    labels["app"] = json!("arena");
    let mut pod = json!({
        "metadata": {"name": "a", "labels": labels}, "spec": {"containers": [{"name": "game"}]},
    });
    inject(&mut pod, &[Arc::new(sidecars.clone())]);
    let image = &pod["spec"]["containers"][0]["image"];
    image.as_str().expect("an image").to_owned()
}

/// A status with this many matched and updated pods, whose stable revision is that of the image `stable`.
fn status(stable: &str, matched: i32, updated: i32) -> Value {
    json!({
        "matchedPods": matched, "updatedPods": updated,
        "latestRevision": revision("log:2", 0).name,
        "stableRevision": revision(stable, 0).name,
    })
}

#[test]
fn new_pods_get_the_newest_revision_unless_it_is_held_back() {
    let partition = |partition: Value| json!({"partition": partition});
    for (strategy, status, image) in [
        // Nothing is held back.
        (json!({}), status("log:1", 5, 0), "log:2"),
        (partition(json!(0)), status("log:1", 5, 0), "log:2"),
        (partition(json!("0%")), status("log:1", 5, 0), "log:2"),
        (json!({"type": "NotUpdate"}), status("log:1", 5, 0), "log:2"),
        // A new set, and one whose stable revision is the newest one.
        (json!({"paused": true}), Value::Null, "log:2"),
        (json!({"paused": true}), json!({}), "log:2"),
        (json!({"paused": true}), status("log:2", 5, 5), "log:2"),
        (partition(json!("100%")), status("log:2", 5, 3), "log:2"),
        // A pause.
        (json!({"paused": true}), status("log:1", 5, 0), "log:1"),
        (json!({"paused": true}), status("log:1", 5, 2), "log:1"),
        (json!({"paused": true}), status("log:1", 0, 0), "log:1"),
        // NotUpdate leaves running pods as they are, so new pods get the newest revision regardless of the rest.
        (json!({"type": "NotUpdate", "paused": true}), status("log:1", 5, 0), "log:2"),
        (json!({"type": "NotUpdate", "partition": 6}), status("log:1", 5, 0), "log:2"),
        (
            json!({"type": "NotUpdate", "selector": {"matchLabels": {"canary": "yes"}}}),
            status("log:1", 5, 0),
            "log:2",
        ),
        // With a number, new pods get the newest revision as soon as that many pods have an older one.
        (partition(json!(2)), status("log:1", 5, 0), "log:2"),
        (partition(json!(2)), status("log:1", 5, 3), "log:2"),
        (partition(json!(2)), status("log:1", 4, 3), "log:1"),
        (partition(json!(5)), status("log:1", 5, 0), "log:2"),
        (partition(json!(6)), status("log:1", 5, 0), "log:1"),
        (partition(json!(2)), status("log:1", 0, 0), "log:1"),
        // With a percentage, new pods get the stable revision, because running pods can be updated to the newest.
        (partition(json!("50%")), status("log:1", 4, 0), "log:1"),
        (partition(json!("20%")), status("log:1", 0, 0), "log:1"),
        (partition(json!("100%")), status("log:1", 5, 0), "log:1"),
    ] {
        let set = set("log:2", json!({"updateStrategy": strategy}), status);
        let sidecars = parsed(&set, &[revision("log:1", 1), revision("log:2", 2)]);
        let found = image_of_new_pod(&sidecars, json!({}));
        assert_eq!(found, image, "{:?} {:?}", set.spec.update_strategy, set.status);
    }
}

#[test]
fn with_a_percentage_new_pods_get_a_change_that_is_impossible_in_running_pods() {
    let revisions = [revision("log:1", 1), revision("log:2 fast", 2)];
    for (partition, matched, updated, image) in [
        ("50%", 3, 0, "log:2"),
        ("50%", 3, 1, "log:2"),
        ("50%", 3, 2, "log:1"),
        ("100%", 3, 0, "log:1"),
    ] {
        let strategy = json!({"updateStrategy": {"partition": partition}});
        let mut status = status("log:1", matched, updated);
        status["latestRevision"] = json!(revisions[1].name);
        let set = set("log:2 fast", strategy, status);
        let sidecars = parsed(&set, &revisions);
        let found = image_of_new_pod(&sidecars, json!({}));
        assert_eq!(found, image, "{partition} of {matched}, {updated} updated");
    }
}

#[test]
fn pods_updated_to_an_earlier_revision_do_not_count_as_updated() {
    let strategy = json!({"updateStrategy": {"partition": 5}});
    let set = set("log:3", strategy, status("log:2", 5, 5));
    let revisions = [revision("log:2", 1), revision("log:3", 2)];
    let found = image_of_new_pod(&parsed(&set, &revisions), json!({}));
    assert_eq!(found, "log:3", "the partition keeps the five existing pods");
}

#[test]
fn pods_that_the_selector_matches_get_the_newest_revision() {
    let strategy = json!({"selector": {"matchLabels": {"canary": "yes"}}});
    let set = set("log:2", json!({"updateStrategy": strategy}), status("log:1", 5, 1));
    let sidecars = parsed(&set, &[revision("log:1", 1), revision("log:2", 2)]);
    assert_eq!(image_of_new_pod(&sidecars, json!({})), "log:1");
    let canary = image_of_new_pod(&sidecars, json!({"canary": "yes"}));
    assert_eq!(canary, "log:2");
    assert!(sidecars.new_pods_identity().contains(&sidecars.revision));
    assert_ne!(sidecars.new_pods_identity(), sidecars.revision);
}

#[test]
fn a_pin_takes_precedence_over_everything_else() {
    let revisions = [revision("log:1", 1), revision("log:2 slow", 2)];
    let pin = |name: &str| json!({"revision": {"revisionName": name, "policy": "Always"}});
    for strategy in [json!({}), json!({"paused": true}), json!({"partition": 1})] {
        let spec = json!({
            "injectionStrategy": pin(&revisions[0].name), "updateStrategy": strategy,
        });
        let set = set("log:2 slow", spec, status("log:2", 5, 5));
        let sidecars = parsed(&set, &revisions);
        assert_eq!(image_of_new_pod(&sidecars, json!({})), "log:1");
        let pinned = sidecars.for_new_pod(&BTreeMap::new());
        let earlier = parsed(&self::set("log:1", json!({}), Value::Null), &[]);
        assert_eq!(pinned.shape, earlier.shape);
        assert_eq!(pinned.revision, earlier.revision);
    }
    let set = set("log:2", json!({"injectionStrategy": pin("")}), Value::Null);
    let sidecars = parsed(&set, &revisions);
    assert_eq!(image_of_new_pod(&sidecars, json!({})), "log:2");
}

#[test]
fn if_a_revision_is_lost_new_pods_get_the_newest_one_and_the_status_reports_that() {
    let lost = revision("log:1", 1).name.clone();
    let pin = json!({"injectionStrategy": {"revision": {"revisionName": lost}}});
    let pause = json!({"updateStrategy": {"paused": true}});
    for (spec, why) in
        [(pin, "that spec.injectionStrategy.revision names is lost"), (pause, "is lost")]
    {
        let set = set("log:2", spec, status("log:1", 5, 0));
        let sidecars = parsed(&set, &[revision("log:2", 2)]);
        assert_eq!(image_of_new_pod(&sidecars, json!({})), "log:2");
        assert!(sidecars.new_pods.is_lost());
        let words = sidecars.new_pods.in_words().expect("words");
        assert!(words.contains(&lost) && words.contains(why), "{words}");
    }
}

#[test]
fn a_revision_that_was_renamed_after_a_collision_keeps_its_name() {
    let mut renamed = revision("log:2", 2).as_ref().clone();
    renamed.name = "log-other".to_owned();
    let set = set("log:2", json!({}), Value::Null);
    assert_eq!(parsed(&set, &[Arc::new(renamed)]).revision, "log-other");
}

/// Pods at the revisions of these images; those marked `down` are not ready, and the kubelets of those marked `pulling`
/// still report the old containers.
fn pods(descriptions: &[&str]) -> Vec<MatchedPod> {
    let pods = descriptions.iter().map(|text| {
        let (image, state) = text.split_once(' ').unwrap_or((text, ""));
        let mark =
            SidecarMark { revision: revision(image, 0).name.clone(), ..SidecarMark::default() };
        MatchedPod {
            marks: BTreeMap::from([("log".to_owned(), mark)]),
            ready: state != "down",
            changing: match state {
                "pulling" => Changing::Sidecars,
                _ => Changing::No,
            },
            ..MatchedPod::default()
        }
    });
    pods.collect()
}

#[test]
fn the_stable_revision_is_that_of_most_pods() {
    let set = set("log:2", json!({}), status("log:0", 0, 0));
    let newest = Sidecars::of(&set).expect("a selector");
    for (words, stable) in [
        (&["log:1", "log:1", "log:2"][..], "log:1"),
        (&["log:1", "log:2", "log:2"], "log:2"),
        (&["log:1", "log:2"], "log:1"),
        (&["log:1 down", "log:2", "log:2 down", "log:2 down"], "log:1"),
        (&["log:1", "log:2 pulling", "log:2 pulling"], "log:1"),
        (&["log:2 down"], "log:2"),
        (&[], "log:0"),
    ] {
        let found = stable_revision(&newest, &pods(words), set.status.as_ref());
        assert_eq!(found, revision(stable, 0).name, "{words:?}");
    }
}

fn history_of(set: &SidecarSet, own: &[Arc<SetRevision>]) -> History {
    history(set, own, &[], &BTreeSet::new())
}

#[test]
fn the_newest_revision_is_created_once_and_renumbered_after_a_revert() {
    let set = set("log:2", json!({}), Value::Null);
    let (first, second) = (revision("log:1", 1), revision("log:2", 2));
    let created = history_of(&set, &[Arc::clone(&first)]);
    let create = Write::create_revision(NewRevision {
        name: second.name.clone(),
        number: 2,
        data: RevisionData::Sidecars(second.content.clone()),
        cause: None,
    });
    assert_eq!((created.write, created.newest), (Some(create), second.name.clone()));
    assert_eq!(history_of(&set, &[first, Arc::clone(&second)]).write, None);
    let later = revision("log:3", 3);
    let renumber = Write::renumber_revision(second.name.clone(), second.uid.clone(), 4);
    assert_eq!(history_of(&set, &[second, later]).write, Some(renumber));
}

#[test]
fn a_name_that_another_object_has_is_not_used() {
    let set = set("log:2", json!({}), Value::Null);
    let wanted = revision("log:2", 1);
    let taken = BTreeSet::from([wanted.name.clone()]);
    let renamed = history(&set, &[], &[], &taken);
    assert_eq!(renamed.collisions, 1);
    assert_ne!(renamed.newest, wanted.name);
    // The revision of a deleted set with the same name is adopted if its content is the same.
    let adopted = history(&set, &[], &[Arc::clone(&wanted)], &BTreeSet::new());
    let adopt = Write::adopt_revision(wanted.name.clone(), wanted.uid.clone(), Some(1));
    assert_eq!((adopted.write, adopted.collisions), (Some(adopt), 0));
    let mut other = wanted.as_ref().clone();
    other.content = json!({});
    let other = Arc::new(other);
    assert_eq!(history(&set, &[], &[Arc::clone(&other)], &BTreeSet::new()).collisions, 1);
    assert_eq!(history_of(&set, &[other]).collisions, 1);
}

#[test]
fn the_oldest_unreferenced_revisions_expire() {
    let images = ["log:1", "log:2", "log:3", "log:4", "log:5"];
    let own: Vec<_> = images.iter().zip(1..).map(|(it, number)| revision(it, number)).collect();
    let pin = json!({"revision": {"revisionName": own[1].name}});
    for (limit, spec, named_by_pods, expected) in [
        (json!(null), json!({}), None, &[][..]),
        (json!(0), json!({}), None, &["log:4", "log:3", "log:2", "log:1"]),
        (json!(2), json!({}), None, &["log:2", "log:1"]),
        (json!(1), json!({}), Some(0), &["log:3", "log:2"]),
        (json!(1), json!({"injectionStrategy": pin}), None, &["log:3", "log:1"]),
    ] {
        let mut spec = spec;
        spec["revisionHistoryLimit"] = limit;
        let set = set("log:5", spec, Value::Null);
        let mut named: HashSet<String> = named_by_set(&set, &own[4].name).collect();
        named.extend(named_by_pods.map(|it: usize| own[it].name.clone()));
        let expired = expired(&set, &own, &named);
        let expected: Vec<String> =
            expected.iter().map(|it| revision(it, 0).name.clone()).collect();
        let expired: Vec<_> = expired.iter().map(|it| it.name.clone()).collect();
        assert_eq!(expired, expected, "{:?}", set.spec);
    }
}

#[test]
fn a_default_that_is_written_out_is_no_new_revision() {
    let old = revision("log:1", 1);
    let container = json!({
        "name": "log", "image": "log:1", "imagePullPolicy": "IfNotPresent", "tty": false,
        "env": [{"name": "MODE"}],
    });
    let written_out = set("log:1", json!({"containers": [container]}), Value::Null);
    let sidecars = parsed(&written_out, &[Arc::clone(&old)]);
    assert_eq!(sidecars.revision, old.name);
    let before = parsed(&set("log:1", json!({}), Value::Null), &[Arc::clone(&old)]);
    assert_eq!(sidecars.shape, before.shape);
    let planned = history(&written_out, &[Arc::clone(&old)], &[], &BTreeSet::new());
    assert_eq!((planned.newest, planned.write), (old.name.clone(), None));
}
