//! Resources of pods whose kubelet cannot change them. API servers of that time have no resize subresource either.

use serde_json::{Value, json};

use crate::observed::OldKubelet;
use crate::workload::tests::story::{Story, story};

/// Two pods, the second one on a node with an old kubelet. The template's cpu request has just been changed.
fn with_new_resources(when_impossible: &str) -> Story {
    let mut story = story(
        2,
        json!({
            "updateStrategy": {"type": "InplaceUpdate", "inPlaceUpdateStrategy": {"whenImpossible": when_impossible}},
            "template": template("1"),
        }),
    );
    story.settle();
    let second = story.names().remove(1);
    story.edit_pod(&second, |pod| pod.node = Some("old".to_owned()));
    let kubelet = OldKubelet::of("v1.32.7").expect("an old kubelet");
    story.world.old_kubelets.insert("old".to_owned(), kubelet);
    story.user(json!({"template": template("2")}));
    story
}

fn template(cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}});
    json!({"spec": {"containers": [{"name": "game", "image": "game:v1", "resources": resources}]}})
}

/// The resources of each pod, and whether its gate is open.
fn pods(story: &Story) -> Vec<(String, bool)> {
    let pods = story.pods();
    let pods = pods.iter();
    pods.map(|pod| (pod.containers[0].resources.to_string(), pod.is_ready())).collect()
}

#[test]
fn resources_are_not_changed_in_place_if_the_kubelet_would_not_change_them() {
    let mut story = with_new_resources("Refuse");
    let before = pods(&story);
    story.settle();
    let after = pods(&story);
    assert_ne!(after[0].0, before[0].0);
    assert_eq!(after[1], before[1], "the gate stays open");
    let (reason, message) = story.condition("FailedUpdate").expect("condition");
    assert_eq!(reason, "NotInPlace");
    for word in ["spec.template.spec.containers[].resources", "v1.32.7", "whenImpossible: Recreate"]
    {
        assert!(message.contains(word), "{message}");
    }
    story.world.old_kubelets.clear();
    story.settle();
    assert_eq!(pods(&story)[1].0, after[0].0);
    assert_eq!(story.condition("FailedUpdate"), None);
}

#[test]
fn a_pod_whose_kubelet_cannot_resize_it_is_recreated_if_that_is_allowed() {
    let mut story = with_new_resources("Recreate");
    let before = story.names();
    story.settle();
    let after = story.names();
    assert!(after.contains(&before[0]) && !after.contains(&before[1]));
    assert_eq!(story.condition("FailedUpdate"), None);
}
