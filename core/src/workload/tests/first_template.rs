//! Stories of a first template that never works: until a pod of the first revision has been available, there is no stable
//! revision, so that steps and partition do not hold up the template that fixes it.

use serde::Serialize;
use serde_json::{Value, json};

use super::story::{Story, set, story};
use crate::workload::Planned;

const STEPS: [&str; 2] = [r#"{"partition": 2}"#, r#"{"pause": {}}"#];

/// The strategies that could hold up a fix.
fn strategies() -> Vec<Value> {
    let steps: Vec<Value> =
        STEPS.iter().map(|it| serde_json::from_str(it).expect("a step")).collect();
    vec![json!({"partition": 2}), json!({"canary": {"steps": steps}})]
}

/// Whether pods of the first template never become ready, or are not even created.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Broken,
    Refused,
}

fn image<K: Planned + Serialize>(story: &mut Story<K>, image: &str, broken: bool) {
    // The kubelet of a story makes no pod ready that has this label.
    let labels = if broken { json!({"broken": "true"}) } else { json!({"broken": null}) };
    let container = json!([{"name": "game", "image": image}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": container}});
    story.user(json!({"template": template}));
}

fn fix_reaches_all_pods<K: Planned + Serialize>(mut story: Story<K>, first: First) {
    image(&mut story, "game:v1", first == First::Broken);
    if first == First::Refused {
        story.creation_refusal = Some(("game:v1".to_owned(), "not allowed".to_owned()));
    }
    for _ in 0..20 {
        story.reconcile();
    }
    assert_eq!(story.status().current_revision, "", "{first:?}");
    image(&mut story, "game:v2", false);
    story.settle();
    let spec = serde_json::to_string(&story.object).expect("JSON");
    assert_eq!(story.images(), "v2 v2 v2 v2", "{first:?} {spec}");
    assert_eq!(story.condition("Ready").expect("a condition").0, "AllPodsAvailable");
    let status = story.status();
    assert_eq!(status.current_revision, status.update_revision);
    // It is stable now, so steps and partition hold.
    image(&mut story, "game:v3", false);
    story.settle();
    assert_eq!(story.images(), "v2 v2 v3 v3", "{first:?} {spec}");
}

#[test]
fn the_fix_of_a_first_template_that_never_worked_reaches_all_pods() {
    for first in [First::Broken, First::Refused] {
        for strategy in strategies() {
            for batch in [json!(null), json!(2)] {
                let spec =
                    json!({"updateStrategy": strategy, "scaleStrategy": {"createBatch": batch}});
                fix_reaches_all_pods(story(4, spec.clone()), first);
                let mut parallel = spec;
                parallel["podManagementPolicy"] = json!("Parallel");
                fix_reaches_all_pods(set(4, parallel), first);
            }
            fix_reaches_all_pods(set(4, json!({"updateStrategy": strategy})), first);
        }
    }
}

/// One that is available shows that the revision works.
#[test]
fn the_first_revision_is_stable_once_one_of_its_pods_is_available() {
    let steps = json!([{"partition": 3}, {"pause": {}}]);
    let mut story = story(4, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.kubelets_run = false;
    story.settle();
    assert_eq!(story.status().current_revision, "");
    for name in story.names().drain(1..) {
        story.edit_pod(&name, |pod| {
            pod.labels.insert("broken".to_owned(), "true".to_owned());
        });
    }
    story.kubelets_run = true;
    story.settle();
    assert_eq!(story.status().current_revision, story.status().update_revision);
    story.image("v2").settle();
    let (old, new) = (story.images().matches("v1").count(), story.images().matches("v2").count());
    assert_eq!((old, new), (3, 1));
}

#[test]
fn the_first_revision_is_stable_if_it_comes_up_after_the_next_template_was_applied() {
    let steps = json!([{"partition": 3}, {"pause": {}}]);
    let mut story = story(4, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.kubelets_run = false;
    story.settle();
    let first = story.status().update_revision;
    // Pods that are not ready would be replaced at once.
    story.user(json!({"updateStrategy": {"paused": true}}));
    image(&mut story, "game:v2", true);
    story.settle();
    assert_eq!(story.status().current_revision, "");
    story.kubelets_run = true;
    story.settle();
    assert_eq!(
        (story.status().current_revision, story.images()),
        (first, "v1 v1 v1 v1".to_owned())
    );
}

#[test]
fn a_workload_without_pods_has_no_stable_revision() {
    let steps = json!([{"partition": 2}, {"pause": {}}]);
    let mut story = story(0, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.settle();
    story.image("v2").user(json!({"replicas": 4})).settle();
    assert_eq!(story.images(), "v2 v2 v2 v2");
    let status = story.status();
    assert_eq!(status.current_revision, status.update_revision);
}
