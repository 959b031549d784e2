use super::*;

fn event(verb: &str, path: &str, second: u32, answer: Value) -> Event {
    let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
    let event = json!({
        "stage": "ResponseComplete", "requestURI": "/x", "verb": verb,
        "user": {"username": "u"}, "responseStatus": {"code": 200},
        "objectRef": {"resource": resource, "subresource": subresource, "name": "x"},
        "requestReceivedTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        "stageTimestamp": format!("2026-01-01T00:00:{second:02}.1Z"),
        "responseObject": answer,
    });
    serde_json::from_value(event).expect("an event")
}

fn object(kind: &str, version: u64, spec: Value) -> Value {
    let metadata = json!({"name": "x", "resourceVersion": version.to_string()});
    json!({"kind": kind, "metadata": metadata, "spec": spec})
}

#[test]
fn writes_are_ordered_by_version_with_the_object_before_and_after() {
    let events = [
        event("patch", "pods", 3, object("Pod", 12, json!(2))),
        event("create", "pods", 1, object("Pod", 10, json!(1))),
        event("patch", "pods/status", 2, object("Pod", 11, json!(1))),
    ];
    let writes = history(&events);
    let specs = |object: &Option<Arc<Value>>| object.as_ref().map(|o| o["spec"].clone());
    let steps: Vec<_> =
        writes.iter().map(|write| (specs(&write.before), specs(&write.after))).collect();
    let (one, two) = (Some(json!(1)), Some(json!(2)));
    assert_eq!(steps, [(None, one.clone()), (one.clone(), one.clone()), (one, two)]);
}

#[test]
fn every_form_of_version_precondition_is_recognized() {
    let test = |path: &str| json!([{"op": "test", "path": path, "value": "7"}]);
    for (body, expected) in [
        (json!({"preconditions": {"uid": "u", "resourceVersion": "7"}}), true),
        (json!({"preconditions": {"uid": "u", "resourceVersion": null}}), false),
        (test("/metadata/resourceVersion"), true),
        (test("/metadata/uid"), false),
        (json!({"metadata": {"uid": "u", "resourceVersion": "7"}}), true),
        (json!({"metadata": {"uid": "u"}}), false),
    ] {
        assert_eq!(has_version_precondition(&body), expected, "{body}");
    }
}

#[test]
fn a_deletion_without_an_object_is_placed_by_its_time() {
    let status = json!({"kind": "Status", "metadata": {}});
    let events = [
        event("create", "hookruns", 1, object("HookRun", 10, json!(1))),
        event("create", "hookruns", 3, object("HookRun", 11, json!(2))),
        event("delete", "hookruns", 2, status),
    ];
    let gone: Vec<bool> = history(&events).iter().map(|w| w.after.is_none()).collect();
    assert_eq!(gone, [false, true, false]);
}

#[test]
fn a_second_deletion_of_a_terminating_pod_is_placed_by_its_time() {
    let mut deleted = object("Pod", 11, json!(1));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:02Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let mut reported = deleted.clone();
    reported["metadata"]["resourceVersion"] = json!("12");
    let events = [
        event("create", "pods", 1, object("Pod", 10, json!(1))),
        event("delete", "pods", 2, deleted.clone()),
        event("patch", "pods/status", 3, reported),
        event("delete", "pods", 4, deleted),
    ];
    let verbs: Vec<String> = history(&events).into_iter().map(|it| it.verb).collect();
    assert_eq!(verbs, ["create", "delete", "patch", "delete"]);
}

/// If an eviction does not overlap with the deletion, it was the eviction that ended the pod.
#[test]
fn an_eviction_during_a_deletion_is_placed_after_it() {
    let mut deleted = object("Pod", 11, json!(1));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:03Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let status = json!({"kind": "Status", "metadata": {}});
    let mut events = [
        event("create", "pods", 1, object("Pod", 10, json!(1))),
        event("create", "pods/eviction", 2, status),
        event("delete", "pods", 3, deleted),
    ];
    let order = |events: &[Event]| -> Vec<String> {
        let writes = history(events).into_iter();
        writes.map(|it| it.verb + &it.subresource).collect()
    };
    assert_eq!(order(&events), ["create", "createeviction", "delete"]);
    events[2].received = events[1].received;
    assert_eq!(order(&events), ["create", "delete", "createeviction"]);
}

/// The API server may respond first to an apply that changes nothing, and shows the version of a write that has just been
/// made.
#[test]
fn a_write_that_changes_nothing_is_placed_after_the_one_that_made_its_version() {
    let mut update = event("update", "pods/status", 3, object("Pod", 11, json!(2)));
    update.request_object = Some(object("Pod", 10, json!(2)));
    let events = [
        event("create", "pods", 1, object("Pod", 10, json!(1))),
        event("patch", "pods", 2, object("Pod", 11, json!(2))),
        update,
    ];
    let writes = history(&events);
    let changed: Vec<_> = writes.iter().map(|it| (it.verb.as_str(), it.changed())).collect();
    assert_eq!(changed, [("create", true), ("update", true), ("patch", false)]);
}

#[test]
fn a_deletion_of_a_collection_is_placed_after_the_writes_during_it() {
    let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "10"}, "items": []});
    let events = [
        event("create", "pods", 1, object("Pod", 10, json!(1))),
        event("patch", "pods", 2, object("Pod", 11, json!(1))),
        event("deletecollection", "pods", 3, list),
    ];
    let verbs: Vec<String> = history(&events).into_iter().map(|it| it.verb).collect();
    assert_eq!(verbs, ["create", "patch", "deletecollection"]);
}

#[test]
fn a_deletion_of_a_collection_keeps_objects_with_finalizers() {
    let list = json!({"kind": "GameDeploymentList", "metadata": {"resourceVersion": "10"}});
    let mut guarded = object("GameDeployment", 10, json!(1));
    guarded["metadata"]["finalizers"] = json!(["guard"]);
    for (created, is_kept) in [(object("GameDeployment", 10, json!(1)), false), (guarded, true)] {
        let events = [
            event("create", "gamedeployments", 1, created),
            event("deletecollection", "gamedeployments", 2, list.clone()),
            event("deletecollection", "gamedeployments", 3, list.clone()),
        ];
        let writes = history(&events);
        let after = |number: usize| writes.get(number)?.after.clone();
        assert_eq!(after(1).is_some_and(|it| is_terminating(&it)), is_kept);
        assert_eq!(after(2), after(1));
    }
}

#[test]
fn a_removal_of_the_last_finalizer_is_placed_after_earlier_writes() {
    let mut ended = object("Cluster", 10, json!(1));
    ended["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
    let events = [
        event("delete", "clusters", 1, object("Cluster", 10, json!(1))),
        event("patch", "nodes", 2, object("Node", 11, json!(1))),
        event("patch", "clusters", 3, ended),
    ];
    let order: Vec<String> = history(&events).into_iter().map(|it| it.verb + &it.plural).collect();
    assert_eq!(order, ["deleteclusters", "patchnodes", "patchclusters"]);
}

#[test]
fn scaling_shows_in_the_workload() {
    let events = [
        event("create", "gamedeployments", 1, object("GameDeployment", 10, json!({"replicas": 1}))),
        event("patch", "gamedeployments/scale", 2, object("Scale", 11, json!({"replicas": 5}))),
    ];
    let writes = history(&events);
    let after = writes[1].after.as_ref().expect("a workload");
    assert_eq!(after["spec"]["replicas"], 5);
    assert_eq!(after["metadata"]["generation"], 1);
}

#[test]
fn a_pod_lives_until_its_grace_period_is_over() {
    let mut deleted = object("Pod", 11, json!(1));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:02Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let mut gone = deleted.clone();
    gone["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let events = [
        event("create", "pods", 1, object("Pod", 10, json!(1))),
        event("delete", "pods", 2, deleted),
        event("delete", "pods", 3, gone),
    ];
    let exists: Vec<bool> = history(&events).iter().map(|w| w.after.is_some()).collect();
    assert_eq!(exists, [true, true, false]);
}

/// The pod of a Job has a finalizer, which the Job's controller removes while the kubelet deletes the pod.
#[test]
fn a_pod_ends_with_its_last_finalizer_if_its_grace_period_is_over() {
    let pod = |version: u64, grace: i64, finalizers: &[&str]| {
        let mut pod = object("Pod", version, json!(1));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:02Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod["metadata"]["finalizers"] = json!(finalizers);
        pod
    };
    let deleted = |second: u32| event("delete", "pods", second, pod(11, 0, &["job"]));
    let released = |second: u32| event("patch", "pods", second, pod(11, 0, &[]));
    for (what, mut events, exists_at_last) in [
        ("in order", vec![deleted(2), released(3)], false),
        ("answered in reverse", vec![released(2), deleted(3)], false),
        (
            "within the grace period",
            vec![
                event("delete", "pods", 2, pod(11, 30, &["job"])),
                event("patch", "pods", 3, pod(12, 30, &[])),
            ],
            true,
        ),
    ] {
        events.push(event("create", "pods", 1, object("Pod", 10, json!(1))));
        let exists: Vec<bool> = history(&events).iter().map(|w| w.after.is_some()).collect();
        assert_eq!(exists, [true, true, exists_at_last], "{what}");
    }
}
