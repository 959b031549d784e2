//! The status of a SidecarSet: counts of its pods, and conditions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::allot::Progress;
use super::matched::MatchedPod;
use super::revision::stable_revision;
use super::set::Sidecars;
use super::webhook::OtherPods;
use crate::api::{ConditionType, SidecarSetStatus, SidecarUpdateType};
use crate::kstatus::{self, State, Why};
use crate::observed::time::rounded_down;
use crate::write::Refused;

/// The maximum number of pods that a condition names.
const MAX_NAMED: usize = 3;

/// The reason while the API server refuses the set's newest revision.
pub(super) const REVISION_REFUSED: &str = "FailedRevision";

/// The reasons of conditions that last until a person acts.
const NEEDS_PERSON: [&str; 9] = [
    REVISION_REFUSED,
    "InvalidSelector",
    "Clash",
    "RevisionLost",
    "WebhookDisabled",
    "WebhookNotInstalled",
    "WebhookNotTrusted",
    "Refused",
    "NotInPlace",
];

/// The status of a set with these pods, and when to look again because it changes by the passage of time alone. `set`
/// is None if the set selects no pods.
pub(super) fn sidecar_set_status(
    set: Option<&Sidecars>,
    pods: &[MatchedPod],
    progress: &Progress,
    others: &OtherPods<'_>,
    generation: i64,
    old: Option<&SidecarSetStatus>,
    now: Timestamp,
) -> (SidecarSetStatus, Option<Timestamp>) {
    let mut status =
        SidecarSetStatus { observed_generation: generation, ..SidecarSetStatus::default() };
    let (mut clashes, mut not_ready): (Vec<String>, Vec<String>) = Default::default();
    let mut uninjected = Vec::new();
    if let Some(set) = set {
        status.latest_revision.clone_from(&set.revision);
        status.stable_revision = stable_revision(set, pods, old);
        for pod in pods.iter().filter(|pod| !pod.deselected) {
            let mark = pod.marks.get(&set.name);
            let Some(mark) = mark.filter(|mark| mark.is_injected()) else {
                status.uninjected_pods += 1;
                let clash = mark.and_then(|mark| Some((mark, mark.left_out.as_ref()?)));
                match clash.filter(|(mark, why)| set.may_clash(mark, why)).map(|(_, why)| why) {
                    Some(clash) => clashes.push(format!("{}: {clash}", pod.full_name())),
                    None => uninjected.push(pod.full_name()),
                }
                continue;
            };
            let is_updated = set.is_applied_to(mark);
            status.matched_pods += 1;
            status.updated_pods += i32::from(is_updated);
            status.ready_pods += i32::from(pod.is_ready());
            status.updated_ready_pods += i32::from(is_updated && pod.is_ready());
            if !pod.is_ready() {
                not_ready.push(pod.full_name());
            }
        }
    }
    if let Some(old) = old {
        status.collision_count = old.collision_count;
        status.revision_namespace.clone_from(&old.revision_namespace);
    }
    let old = old.map_or(&[][..], |old| &old.conditions);
    let injecting = match set {
        None => no_selector(),
        Some(set) if set.paused => (
            false,
            "Paused",
            "new pods do not get the containers; set spec.injectionStrategy.paused to false"
                .to_owned(),
        ),
        Some(_) if !clashes.is_empty() => {
            let problem = others.problem().map(|(_, message)| format!("; {message}"));
            let message = named("left out of", &mut clashes) + &problem.unwrap_or_default();
            (false, "Clash", message)
        }
        Some(set) => match others.problem() {
            Some((reason, message)) => (true, reason, message),
            None => injecting(set),
        },
    };
    let ready = if !clashes.is_empty() || !uninjected.is_empty() {
        let mut missing: Vec<String> = uninjected;
        let clashing = clashes.iter().filter_map(|it| it.split(": ").next());
        missing.extend(clashing.map(str::to_owned));
        let message = named("the containers are missing from", &mut missing);
        (false, "NotInjected", message)
    } else if !not_ready.is_empty() {
        (false, "PodsNotReady", named("not ready:", &mut not_ready))
    } else {
        (true, "AllPodsReady", "all pods have the containers and are ready".to_owned())
    };
    status.conditions = vec![
        condition(ConditionType::Ready, ready, generation, old, now),
        condition(ConditionType::Progressing, progressing(set, progress), generation, old, now),
        condition(ConditionType::Injecting, injecting, generation, old, now),
    ];
    let state = state(&status.conditions);
    let (progress_condition, wake) = kstatus::condition(state, generation, old, now);
    status.conditions.extend(progress_condition);
    (status, wake)
}

/// The status while the newest revision is refused, and when it changes by the passage of time alone. Pods get the
/// containers of the last revision.
pub(super) fn without_revision(
    old: Option<&SidecarSetStatus>,
    why: &str,
    generation: i64,
    now: Timestamp,
) -> (SidecarSetStatus, Option<Timestamp>) {
    let mut status = old.cloned().unwrap_or_default();
    status.observed_generation = generation;
    let old = std::mem::take(&mut status.conditions);
    let message = format!(
        "the set cannot be recorded in a ControllerRevision, so nothing is updated: {why}; {}",
        Refused::RETRY
    );
    let refused =
        |type_| condition(type_, (false, REVISION_REFUSED, message.clone()), generation, &old, now);
    status.conditions = vec![refused(ConditionType::Ready), refused(ConditionType::Progressing)];
    let injecting = old.iter().find(|it| it.type_ == ConditionType::Injecting.as_str());
    status.conditions.extend(injecting.cloned());
    let (progress, wake) = kstatus::condition(state(&status.conditions), generation, &old, now);
    status.conditions.extend(progress);
    (status, wake)
}

/// Says in the condition Progressing that old revisions cannot be deleted.
pub(super) fn show_refused_clean_up(status: &mut SidecarSetStatus, why: &str) {
    let mut conditions = status.conditions.iter_mut();
    if let Some(it) = conditions.find(|it| it.type_ == ConditionType::Progressing.as_str()) {
        it.message += &format!("; old revisions cannot be deleted: {why}; {}", Refused::LATE_RETRY);
    }
}

/// How far a set with these conditions is, for kstatus. Pods that the strategy or its partition holds back are no
/// reason to wait; a pause is one.
fn state(conditions: &[Condition]) -> State {
    let needs_person = |it: &&Condition| NEEDS_PERSON.contains(&it.reason.as_str());
    if let Some(problem) = conditions.iter().find(needs_person) {
        return State::blocked_by(problem);
    }
    let is_underway = |it: &&Condition| match it.reason.as_str() {
        "NotUpdate" => false,
        "Updating" => true,
        _ => it.status == "False",
    };
    match conditions.iter().find(is_underway) {
        Some(condition) => State::Underway(Why::of(condition)),
        None => State::Done,
    }
}

/// The condition Injecting, if it shows a problem that the old status does not show. The caller reports it as an event.
pub(super) fn new_problem<'s>(
    old: Option<&SidecarSetStatus>,
    new: &'s SidecarSetStatus,
) -> Option<&'s Condition> {
    let before = old.and_then(injecting_condition);
    let problem = injecting_condition(new).filter(|it| it.reason != "Injecting")?;
    before.is_none_or(|it| it.reason != problem.reason).then_some(problem)
}

fn injecting_condition(status: &SidecarSetStatus) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|it| it.type_ == ConditionType::Injecting.as_str())
}

/// The condition of a set that selects no pods. The schema refuses such a set, but the set may be older than its rules.
fn no_selector() -> (bool, &'static str, String) {
    let why = "the set selects no pods, because spec.selector or spec.namespaceSelector is empty or \
               invalid; correct it";
    (false, "InvalidSelector", why.to_owned())
}

/// Which containers new pods get.
fn injecting(set: &Sidecars) -> (bool, &'static str, String) {
    let reason = match set.new_pods.is_lost() {
        true => "RevisionLost",
        false => "Injecting",
    };
    let which = set.new_pods.in_words();
    let which = which.map_or_else(String::new, |which| format!(" {which}"));
    (true, reason, format!("new pods get the containers{which}"))
}

/// Whether the update of running pods is in progress or complete, and what it waits for.
fn progressing(set: Option<&Sidecars>, progress: &Progress) -> (bool, &'static str, String) {
    let Progress {
        matched,
        updated,
        wanted,
        not_in_place,
        ignored,
        hot_patched,
        waiting,
        refused,
        held,
    } = progress;
    let mut summary = format!("{updated} of {matched} pods have the newest containers");
    if let Some(one) = refused.iter().min() {
        let pods = match refused.len() {
            1 => "a pod",
            number => &format!("{number} pods"),
        };
        summary += &format!("; the API server refuses to update {pods}: {one}");
    }
    let with_pods =
        |what: &str, pods: &[String]| format!("{summary}; {}", named(what, &mut pods.to_vec()));
    let Some(set) = set else {
        return no_selector();
    };
    if updated == matched {
        return (true, "Complete", summary);
    }
    if set.update.type_ == SidecarUpdateType::NotUpdate {
        let why = "running pods are not updated, because spec.updateStrategy.type is NotUpdate";
        return (false, "NotUpdate", format!("{summary}; {why}"));
    }
    if set.update.paused {
        let why = "set spec.updateStrategy.paused to false to continue";
        return (false, "Paused", format!("{summary}; {why}"));
    }
    if !waiting.is_empty() {
        let what = "these wait for their hook, or for their workload's maxUnavailable:";
        return (false, "WaitsForWorkload", with_pods(what, waiting));
    }
    if *wanted > 0 {
        return (true, "Updating", summary);
    }
    if !refused.is_empty() {
        return (false, "Refused", summary);
    }
    if !held.is_empty() {
        let held: Vec<String> = held.iter().cloned().collect();
        return (false, "WaitsForWorkload", with_pods("the others wait:", &held));
    }
    if !not_in_place.is_empty() {
        let what =
            "fields other than images differ, and cannot be changed in running pods; recreate:";
        return (false, "NotInPlace", with_pods(what, not_in_place));
    }
    if !ignored.is_empty() {
        let what = "kubelets before 1.32 do not update native sidecars; recreate:";
        return (false, "NotInPlace", with_pods(what, ignored));
    }
    if !hot_patched.is_empty() {
        let what = "these were hot-patched, so that any change would restart their other containers; recreate:";
        return (false, "NotInPlace", with_pods(what, hot_patched));
    }
    let why = "the partition or the selector of the update strategy holds the others back";
    (true, "HeldBack", format!("{summary}; {why}"))
}

/// A message that names these pods, or the first few of them.
fn named(what: &str, pods: &mut [String]) -> String {
    pods.sort_unstable();
    let shown: Vec<&str> = pods.iter().take(MAX_NAMED).map(String::as_str).collect();
    let shown = shown.join("; ");
    match pods.len().saturating_sub(MAX_NAMED) {
        0 => format!("{what} {shown}"),
        more => format!("{what} {shown}; and {more} more"),
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
    let before = old.iter().find(|it| it.type_ == type_.as_str() && it.status == status);
    // The API server stores whole seconds.
    let now = rounded_down(now);
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: Some(generation),
        last_transition_time: before.map_or(Time(now), |it| it.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests;
