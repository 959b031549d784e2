//! A resize must not change a pod's QoS class. The pod as it is decides: sidecars, a LimitRange and resources of the pod as
//! a whole have their part in its class.

use serde_json::{Value, json};

use crate::observed::{Pod, Qos, QosClass};
use crate::workload::tests::story::{Story, story};

fn template(resources: &Value) -> Value {
    let container = json!({"name": "game", "image": "game:v1", "resources": resources});
    json!({"template": {"spec": {"containers": [container]}}})
}

/// A pod of this class whose template has the first resources. Then it gets the second ones. Returns the condition, and
/// whether the pod was resized or (None) recreated.
fn resized(
    [from, to]: [Value; 2],
    class: QosClass,
    when_impossible: &str,
    edit: fn(&mut Pod),
) -> (Option<String>, Option<bool>) {
    let in_place = json!({"whenImpossible": when_impossible});
    let strategy = json!({"type": "InplaceUpdate", "inPlaceUpdateStrategy": in_place});
    let mut story: Story = story(1, json!({"updateStrategy": strategy}));
    story.user(template(&from)).settle();
    let name = story.names().remove(0);
    story.edit_pod(&name, |pod| {
        pod.qos = Some(Qos { class, init_guaranteed: true });
        edit(pod);
    });
    let before = story.pods()[0].clone();
    story.user(template(&to)).settle();
    let after = story.pods()[0].clone();
    let is_resized = after.containers[0].resources != before.containers[0].resources;
    let told = story.condition("FailedUpdate").map(|(_, message)| message);
    (told, (after.uid == before.uid).then_some(is_resized))
}

fn guaranteed(cpu: &str) -> Value {
    json!({"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}})
}

fn requesting(cpu: &str) -> Value {
    json!({"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}})
}

#[test]
fn a_change_of_the_class_is_refused_or_recreates_the_pod() {
    let cases = [
        ([guaranteed("4"), requesting("1")], QosClass::Guaranteed, "Guaranteed to Burstable"),
        ([requesting("1"), guaranteed("4")], QosClass::Burstable, "Burstable to Guaranteed"),
        ([json!({}), requesting("1")], QosClass::BestEffort, "BestEffort to Burstable"),
    ];
    for (change, class, expected) in cases {
        let (told, is_resized) = resized(change.clone(), class, "Refuse", |_| {});
        let told = told.expect("a condition");
        assert!(told.contains("would change the QoS class of pod "), "{told}");
        assert!(told.contains(expected), "{told}");
        assert_eq!(is_resized, Some(false));
        assert_eq!(resized(change, class, "Recreate", |_| {}), (None, None));
    }
}

#[test]
fn what_keeps_the_class_is_resized() {
    let with_sidecar = |pod: &mut Pod| {
        let mut sidecar = pod.containers[0].clone();
        sidecar.name = "proxy".to_owned();
        sidecar.resources = "{}".into();
        pod.containers.push(sidecar);
    };
    let with_init = |pod: &mut Pod| {
        pod.qos = Some(Qos { class: QosClass::Burstable, init_guaranteed: false });
    };
    let of_pod = |pod: &mut Pod| pod.qos = None;
    let resized_to = |change, class, edit| resized(change, class, "Refuse", edit);
    let done = (None, Some(true));
    let guaranteed_stays = [guaranteed("1"), guaranteed("2")];
    assert_eq!(resized_to(guaranteed_stays, QosClass::Guaranteed, |_| {}), done);
    let becomes_guaranteed = || [requesting("1"), guaranteed("4")];
    for edit in [with_sidecar, with_init, of_pod] {
        assert_eq!(resized_to(becomes_guaranteed(), QosClass::Burstable, edit), done);
    }
    let leaves_guaranteed = [guaranteed("4"), requesting("1")];
    assert_eq!(resized_to(leaves_guaranteed, QosClass::Burstable, with_sidecar), done);
    // A LimitRange has set requests.
    let limited = |pod: &mut Pod| {
        pod.containers[0].resources = json!({"requests": {"memory": "1Gi"}}).to_string().into();
    };
    let first_request = [json!({}), json!({"requests": {"cpu": "1"}})];
    assert_eq!(resized_to(first_request, QosClass::Burstable, limited), done);
}
