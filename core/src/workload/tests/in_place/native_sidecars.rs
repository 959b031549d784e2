//! In-place updates of native sidecars, which old kubelets do not restart.

use serde_json::{Value, json};

use crate::observed::{OldKubelet, Pod};
use crate::workload::tests::story::{Story, story};

/// Two pods with a native sidecar, the second one on a node with an old kubelet. The template's sidecar has just been
/// changed to v2.
fn with_sidecars(when_impossible: &str) -> Story {
    let mut story = story(
        2,
        json!({
            "updateStrategy": {"type": "InplaceUpdate", "inPlaceUpdateStrategy": {"whenImpossible": when_impossible}},
            "template": {"spec": {"initContainers": [sidecar("v1")]}},
        }),
    );
    story.settle();
    let second = story.names().remove(1);
    story.edit_pod(&second, |pod| pod.node = Some("old".to_owned()));
    let kubelet = OldKubelet::of("v1.31.4").expect("an old kubelet");
    story.world.old_kubelets.insert("old".to_owned(), kubelet);
    story.user(json!({"template": {"spec": {"initContainers": [sidecar("v2")]}}}));
    story
}

fn sidecar(tag: &str) -> Value {
    json!({"name": "proxy", "image": format!("proxy:{tag}"), "restartPolicy": "Always"})
}

/// Images of the sidecars, pod by pod.
fn sidecars(story: &Story) -> Vec<String> {
    let image = |pod: &&Pod| pod.containers[1].image.clone();
    story.pods().iter().map(image).collect()
}

#[test]
fn a_sidecar_is_not_changed_in_place_if_its_kubelet_would_not_restart_it() {
    let mut story = with_sidecars("Refuse");
    story.settle();
    assert_eq!(sidecars(&story), ["proxy:v2", "proxy:v1"]);
    let (reason, message) = story.condition("FailedUpdate").expect("condition");
    assert_eq!(reason, "NotInPlace");
    for word in
        ["spec.template.spec.initContainers[0].image", "v1.31.4", "whenImpossible: Recreate"]
    {
        assert!(message.contains(word), "{message}");
    }
    story.world.old_kubelets.clear();
    story.settle();
    assert_eq!(sidecars(&story), ["proxy:v2", "proxy:v2"]);
    assert_eq!(story.condition("FailedUpdate"), None);
}

#[test]
fn a_pod_on_an_old_kubelet_is_recreated_if_that_is_allowed() {
    let mut story = with_sidecars("Recreate");
    let before = story.names();
    story.settle();
    assert_eq!(sidecars(&story), ["proxy:v2", "proxy:v2"]);
    let after = story.names();
    assert!(after.contains(&before[0]) && !after.contains(&before[1]));
}

#[test]
fn other_changes_are_made_in_place_on_old_kubelets_too() {
    let mut story = with_sidecars("Refuse");
    story.user(json!({"template": {"spec": {"initContainers": [sidecar("v1")]}}}));
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2");
}
