//! Guarded pods: what guards them, what ends their wait, and what happens when their workload or node goes away.

mod deletion;
mod guard;
mod nodes;
mod waiting;
mod waits;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::api::names::GUARD_FINALIZER;
use crate::guard::Ground;
use crate::workload::Planned;
use crate::workload::tests::story::Story;
use crate::write::{Change, Deletion};

fn guarded() -> Value {
    json!({
        "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}},
        "protection": {"pods": "Guarded", "askAgainSeconds": 60},
    })
}

fn with_deadline(seconds: i32) -> Value {
    let mut spec = guarded();
    spec["protection"]["deadlineSeconds"] = json!(seconds);
    spec
}

/// The number of pods with the guard label of the workload.
fn labeled<K: Planned + serde::Serialize>(story: &Story<K>) -> usize {
    let pods = story.pods().into_iter();
    pods.filter(|pod| pod.guarded_by() == Some("uid-game")).count()
}

fn has_finalizer<K: Planned + serde::Serialize>(story: &Story<K>) -> bool {
    let finalizers = story.object.meta().finalizers.iter().flatten();
    finalizers.into_iter().any(|it| it == GUARD_FINALIZER)
}

/// The reason of the condition `Guarded`, or `none` if there is no such condition.
fn guard_condition<K: Planned + serde::Serialize>(story: &Story<K>) -> String {
    let reason = story.condition("Guarded").map(|(reason, _)| reason);
    reason.unwrap_or_else(|| "none".to_owned())
}

/// The grounds on which pods were deleted.
fn grounds<K: Planned + serde::Serialize>(story: &Story<K>) -> Vec<Ground> {
    let deletions = story.done.iter().filter_map(|action| match action.change() {
        Change::DeletePod(Deletion { ground, .. }) => Some(*ground),
        _ => None,
    });
    deletions.collect()
}

/// The user deletes the workload, and the API server adds these finalizers to it.
fn delete_workload<K: Planned + serde::Serialize>(story: &mut Story<K>, finalizers: &[&str]) {
    let now = story.world.now;
    let meta = story.object.meta_mut();
    meta.deletion_timestamp = Some(Time(now));
    *meta.generation.get_or_insert(0) += 1;
    let added = finalizers.iter().map(|it| (*it).to_owned());
    meta.finalizers.get_or_insert_default().extend(added);
}
