//! The status of a SidecarSet: counts of its pods, and conditions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::set::Sidecars;
use crate::api::{ConditionType, SidecarSetStatus};
use crate::plan::observed::SidecarMarks;

/// A pod in a namespace that the set reaches. Pods that have ended or are Terminating do not count.
#[derive(Clone, Debug)]
pub struct MatchedPod {
    /// NAMESPACE/NAME.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The SidecarSets that were considered when it was created.
    pub marks: SidecarMarks,
    /// Whether it is ready.
    pub ready: bool,
}

/// The maximum number of pods that a condition names.
const MAX_NAMED: usize = 3;

/// The status of a set with these pods; `set` is None if it selects no pods.
pub fn sidecar_set_status(
    set: Option<&Sidecars>,
    pods: impl Iterator<Item = MatchedPod>,
    generation: i64,
    old: Option<&SidecarSetStatus>,
    now: Timestamp,
) -> SidecarSetStatus {
    let mut status = SidecarSetStatus {
        observed_generation: generation,
        ..SidecarSetStatus::default()
    };
    let (mut clashes, mut not_ready): (Vec<String>, Vec<String>) = Default::default();
    let mut uninjected = Vec::new();
    if let Some(set) = set {
        status.latest_revision.clone_from(&set.revision);
        for pod in pods.filter(|pod| set.selects(&pod.labels)) {
            let mark = pod.marks.get(&set.name);
            let Some(mark) = mark.filter(|mark| mark.is_injected()) else {
                status.uninjected_pods += 1;
                match mark.and_then(|mark| mark.left_out.as_ref()) {
                    Some(clash) => clashes.push(format!("{}: {clash}", pod.name)),
                    None => uninjected.push(pod.name),
                }
                continue;
            };
            let is_updated = mark.revision == set.revision;
            status.matched_pods += 1;
            status.updated_pods += i32::from(is_updated);
            status.ready_pods += i32::from(pod.ready);
            status.updated_ready_pods += i32::from(is_updated && pod.ready);
            if !pod.ready {
                not_ready.push(pod.name);
            }
        }
    }
    let old = old.map_or(&[][..], |old| &old.conditions);
    let injecting = match set {
        None => (false, "Deleted", "the set is being deleted".to_owned()),
        Some(set) if set.paused => (
            false,
            "Paused",
            "new pods do not get the containers; set spec.injectionStrategy.paused to false"
                .to_owned(),
        ),
        Some(_) if !clashes.is_empty() => (false, "Clash", named("left out of", &mut clashes)),
        Some(_) => (true, "Injecting", "new pods get the containers".to_owned()),
    };
    let ready = if !clashes.is_empty() || !uninjected.is_empty() {
        let mut without: Vec<String> = uninjected;
        let clashing = clashes.iter().filter_map(|it| it.split(": ").next());
        without.extend(clashing.map(str::to_owned));
        let message = named("the containers are missing in", &mut without);
        (false, "NotInjected", message)
    } else if !not_ready.is_empty() {
        (false, "PodsNotReady", named("not ready:", &mut not_ready))
    } else {
        (
            true,
            "AllPodsReady",
            "all pods have the containers and are ready".to_owned(),
        )
    };
    status.conditions = vec![
        condition(ConditionType::Ready, ready, generation, old, now),
        condition(ConditionType::Injecting, injecting, generation, old, now),
    ];
    status
}

/// A message about some pods.
fn named(what: &str, pods: &mut [String]) -> String {
    pods.sort_unstable();
    let some: Vec<&str> = pods.iter().take(MAX_NAMED).map(String::as_str).collect();
    let some = some.join("; ");
    match pods.len().saturating_sub(MAX_NAMED) {
        0 => format!("{what} {some}"),
        more => format!("{what} {some}; and {more} more"),
    }
}

fn condition(
    type_: ConditionType,
    (holds, reason, message): (bool, &str, String),
    generation: i64,
    old: &[Condition],
    now: Timestamp,
) -> Condition {
    let status = if holds { "True" } else { "False" };
    let before = old
        .iter()
        .find(|it| it.type_ == type_.as_str() && it.status == status);
    // The API server stores whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: Some(generation),
        last_transition_time: before.map_or(Time(now), |it| it.last_transition_time.clone()),
    }
}
