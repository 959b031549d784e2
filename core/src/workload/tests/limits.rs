//! The limits of a single plan, as tables: how many pods it creates, deletes and begins to change for a new
//! template while all pods are available.

use serde_json::{Value, json};

use super::story::story;
use crate::write::{Change, Write};

/// How many pods the first plan creates, deletes, and begins to change, once a new template is accepted.
#[derive(Debug, PartialEq, Eq)]
struct FirstPlan {
    created: usize,
    deleted: usize,
    changed: usize,
}

fn first_plan(replicas: i32, strategy: Value) -> FirstPlan {
    let mut story = story(replicas, json!({"updateStrategy": strategy}));
    story.settle();
    let unavailable = story.pods().iter().filter(|pod| !pod.is_ready()).count();
    assert_eq!(unavailable, 0);
    story.image("v2");
    // Until the template is accepted, plans only check with a dry run whether it will be accepted.
    while story.done.iter().all(|it| !matches!(it.change(), Change::DryRun { .. }))
        && story.reconcile()
    {}
    let plan = story.plan();
    let count = |matches: fn(&Write) -> bool| plan.writes.iter().filter(|it| matches(it)).count();
    FirstPlan {
        created: count(|it| matches!(it.change(), Change::CreatePod(_))),
        deleted: count(|it| matches!(it.change(), Change::DeletePod(_))),
        changed: count(|it| {
            matches!(
                it.change(),
                Change::SetGate { closed_for: Some(_), .. } | Change::PatchInPlace(_)
            )
        }),
    }
}

#[test]
fn limits_of_a_rolling_update() {
    // replicas, maxUnavailable, maxSurge, partition; pods created and deleted by the first plan
    for (replicas, unavailable, surge, partition, created, deleted) in [
        // The default is 20% of the replicas, rounded up, and no surge.
        (10, json!(null), json!(null), json!(null), 0, 2),
        (4, json!(null), json!(null), json!(null), 0, 1),
        (1, json!(null), json!(null), json!(null), 0, 1),
        (10, json!(3), json!(0), json!(0), 0, 3),
        (10, json!("25%"), json!(0), json!(0), 0, 3),
        // With surge, a percentage in maxUnavailable is rounded down, and one in maxSurge up.
        (10, json!("25%"), json!("25%"), json!(0), 3, 2),
        (10, json!(0), json!(2), json!(0), 2, 0),
        // The resolved limits are never both 0.
        (10, json!(0), json!(0), json!(0), 0, 1),
        // Pods that the partition keeps are not deleted, and need no surge pods.
        (10, json!(5), json!(0), json!(8), 0, 2),
        (10, json!(0), json!(5), json!(8), 2, 0),
        (10, json!(5), json!(5), json!(10), 0, 0),
        // A percentage in partition is rounded up, but below 100% at least one pod is updated.
        (3, json!(3), json!(0), json!("90%"), 0, 1),
        (10, json!(10), json!(0), json!("50%"), 0, 5),
    ] {
        let strategy = json!({
            "maxUnavailable": unavailable, "maxSurge": surge, "partition": partition,
        });
        let expected = FirstPlan { created, deleted, changed: 0 };
        assert_eq!(
            first_plan(replicas, strategy.clone()),
            expected,
            "{replicas} replicas, {strategy}"
        );
    }
}

#[test]
fn limits_of_an_in_place_update() {
    // replicas, maxUnavailable, maxSurge, partition; pods created and changed by the first plan
    for (replicas, unavailable, surge, partition, created, changed) in [
        (10, json!(null), json!(null), json!(null), 0, 2),
        // An in-place update uses surge only if no pod may be unavailable.
        (10, json!(2), json!(3), json!(0), 0, 2),
        (10, json!(0), json!(3), json!(0), 3, 0),
        (10, json!(5), json!(0), json!(8), 0, 2),
    ] {
        let strategy = json!({
            "type": "InplaceUpdate", "maxUnavailable": unavailable, "maxSurge": surge,
            "partition": partition,
        });
        let expected = FirstPlan { created, deleted: 0, changed };
        assert_eq!(
            first_plan(replicas, strategy.clone()),
            expected,
            "{replicas} replicas, {strategy}"
        );
    }
}

/// A run is a copy of its template, which may be 1 MB.
#[test]
fn a_plan_starts_few_runs_of_a_large_template() {
    for (text, expected) in [(1_000, 20), (100_000, 20), (1_000_000, 2), (3_000_000, 1)] {
        let hook = json!({"hook": {"templateName": "large"}});
        let mut story = story(20, json!({"preDeleteUpdateStrategy": hook}));
        let body = "x".repeat(text);
        let template = json!({
            "metadata": {"name": "large"},
            "spec": {"metrics": [{"name": "m", "provider": {"web": {"url": "http://game", "body": body}}}]},
        });
        let template = serde_json::from_value(template).expect("a template");
        story.world.templates.insert("large".to_owned(), std::sync::Arc::new(template));
        story.settle();
        story.user(json!({"replicas": 0}));
        let plan = story.plan();
        let is_start = |it: &&Write| matches!(it.change(), Change::CreateHookRun(_));
        assert_eq!(plan.writes.iter().filter(is_start).count(), expected, "{text} bytes");
        story.settle();
        assert_eq!(story.runs().len(), 20, "the next plans start the others");
    }
}

/// If maxSurge had an effect, maxUnavailable would resolve to 0, and nothing could be updated or moved.
#[test]
fn max_surge_has_no_effect_on_types_that_create_no_surge_pods() {
    for max_unavailable in [Value::Null, json!(0)] {
        let mut strategy = json!({"type": "HotPatchUpdate", "maxSurge": 1});
        strategy["maxUnavailable"] = max_unavailable;
        let mut story = story(4, json!({"updateStrategy": strategy}));
        story.settle();
        story.image("v2").settle();
        assert_eq!(story.images(), "v2 v2 v2 v2");
        let strategy = json!({"type": "OnDelete", "maxSurge": 1, "maxUnavailable": 0});
        story.user(json!({"updateStrategy": strategy}));
        let names = story.names();
        story.user(json!({"scaleStrategy": {"podsToDelete": [names[0]]}}));
        story.settle();
        assert!(!story.names().contains(&names[0]));
    }
}
