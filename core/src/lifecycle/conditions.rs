//! The conditions of a Cluster: one for each step, and Ready.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{ClusterPlan, ClusterWorld};
use crate::api::{Cluster, ClusterStatus, LifecycleStep};
use crate::kstatus::{self, State, Why, is_of_kstatus};
use crate::observed::time::earlier;
use crate::write::{Event, Refused};

/// The condition of the Cluster as a whole.
pub const READY: &str = "Ready";

/// The reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleReason {
    /// The step has not begun, or is in progress.
    Waiting,
    /// The step has passed.
    Passed,
    /// There is nothing to do in this step.
    NotConfigured,
    /// The user skips the step.
    Skip,
    /// A script of the install failed.
    FailedInit,
    /// A script of an upgrade failed, or the version was set back too late.
    FailedUpdate,
    /// A script of the deletion failed.
    FailedDelete,
    /// There is no first master.
    NoMaster,
    /// The user has paused the Cluster.
    Paused,
    /// An older Cluster exists.
    AnotherCluster,
    /// A field has an invalid value.
    InvalidSpec,
    /// The API server refuses a write on which all later ones depend.
    FailedWrite,
    /// Ready: the install is complete on every node.
    Installed,
}

impl LifecycleReason {
    /// The reasons that require action by the user.
    const FAILURES: [Self; 7] = [
        Self::FailedInit,
        Self::FailedUpdate,
        Self::FailedDelete,
        Self::NoMaster,
        Self::AnotherCluster,
        Self::InvalidSpec,
        Self::FailedWrite,
    ];
}

impl fmt::Display for LifecycleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The state of a step: reason and message of its condition.
#[derive(Clone, Debug)]
pub(super) struct StepState {
    pub reason: LifecycleReason,
    pub message: String,
    /// The part of the message about an attempt that has just failed. Each such attempt is reported by an event.
    failed_attempt: Option<String>,
}

impl StepState {
    pub(super) fn new(reason: LifecycleReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), failed_attempt: None }
    }

    /// The state of a step at which an attempt has just failed.
    pub(super) fn failed(reason: LifecycleReason, attempt: String) -> Self {
        Self { reason, message: attempt.clone(), failed_attempt: Some(attempt) }
    }

    /// Appends a count to the message: the number of nodes on which the step has passed. A new count alone causes no
    /// event.
    pub(super) fn with_count(mut self, count: &str) -> Self {
        self.message = format!("{}; {count}", self.message);
        self
    }

    /// The state of the Cluster while this step is open.
    fn cluster_state(&self, step: LifecycleStep) -> Self {
        let with_step = |text: &String| format!("{step}: {text}");
        Self {
            reason: self.reason,
            message: with_step(&self.message),
            failed_attempt: self.failed_attempt.as_ref().map(with_step),
        }
    }

    fn status(&self) -> &'static str {
        match self.reason {
            LifecycleReason::Passed
            | LifecycleReason::NotConfigured
            | LifecycleReason::Skip
            | LifecycleReason::Installed => "True",
            LifecycleReason::Waiting | LifecycleReason::Paused => "Unknown",
            _ => "False",
        }
    }

    /// Whether the next step may begin.
    pub(super) fn is_over(&self) -> bool {
        self.status() == "True"
    }
}

/// The old conditions, with Ready and the conditions of these steps replaced. Ready is True only if `is_recorded`: the
/// phase is Running, and the records of all nodes show a complete install.
pub(super) fn with_steps(
    cluster: &Cluster,
    old: &[Condition],
    steps: &[(LifecycleStep, StepState)],
    is_recorded: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = old.to_vec();
    for (step, state) in steps {
        set(cluster, &mut conditions, &step.to_string(), state, now);
    }
    let ready = match first_open(steps) {
        Some((step, state)) => state.cluster_state(*step),
        None if !is_recorded => {
            StepState::new(LifecycleReason::Waiting, "all steps have passed and are being recorded")
        }
        None => StepState::new(LifecycleReason::Installed, "the install is complete on every node"),
    };
    with_ready(cluster, &conditions, &ready, now)
}

/// The first step that is not over: Ready shows its state.
fn first_open(steps: &[(LifecycleStep, StepState)]) -> Option<&(LifecycleStep, StepState)> {
    steps.iter().find(|(_, state)| !state.is_over())
}

/// The conditions, with Ready replaced. Ready is False, not Unknown, until everything is complete.
pub(super) fn with_ready(
    cluster: &Cluster,
    old: &[Condition],
    ready: &StepState,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = old.to_vec();
    set(cluster, &mut conditions, READY, ready, now);
    conditions
}

fn set(
    cluster: &Cluster,
    conditions: &mut Vec<Condition>,
    type_: &str,
    state: &StepState,
    now: Timestamp,
) {
    let status = match state.status() {
        "Unknown" if type_ == READY => "False",
        status => status,
    };
    let index = conditions.iter().position(|it| it.type_ == type_);
    let old = index.map(|index| &conditions[index]);
    let unchanged = old.filter(|it| it.status == status);
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: state.reason.to_string(),
        message: state.message.clone(),
        observed_generation: cluster.metadata.generation,
        last_transition_time: unchanged.map_or(Time(now), |it| it.last_transition_time.clone()),
    };
    match index {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}

/// How far the Cluster is, for kstatus.
fn state(status: &ClusterStatus) -> State {
    let Some(ready) = status.conditions.iter().find(|it| it.type_ == READY) else {
        return State::Done;
    };
    let needs_person = |reason: &LifecycleReason| reason.to_string() == ready.reason;
    if ready.status == "True" {
        State::Done
    } else if LifecycleReason::FAILURES.iter().any(needs_person) {
        State::blocked_by(ready)
    } else {
        State::Underway(Why::of(ready))
    }
}

/// The state of the Cluster while a write is refused.
pub(super) fn refused(refused: &Refused) -> StepState {
    let message = format!(
        "the API server refuses what all later writes depend on: {}; {}",
        refused.message,
        Refused::RETRY
    );
    StepState::new(LifecycleReason::FailedWrite, message)
}

/// If the status has changed, adds it to the plan, with events about changed conditions and about attempts at these
/// steps that have just failed. An event about Ready is added only if there is none about a step.
pub(super) fn finish(
    cluster: &Cluster,
    mut status: ClusterStatus,
    steps: &[(LifecycleStep, StepState)],
    mut plan: ClusterPlan,
    world: &ClusterWorld,
) -> ClusterPlan {
    let now = world.now;
    if let Some(why) = &world.memory.refused_write {
        status.conditions = with_ready(cluster, &status.conditions, &refused(why), now);
        if let Some(until) = why.held_until(now) {
            plan.writes.clear();
            plan.events.clear();
            plan.wake = Some(until);
        }
    }
    let shown = cluster.status.as_ref().map(|it| it.conditions.as_slice());
    let (progress, wake) = kstatus::condition(
        state(&status),
        status.observed_generation,
        shown.unwrap_or_default(),
        now,
    );
    status.conditions.retain(|it| !is_of_kstatus(&it.type_));
    status.conditions.extend(progress);
    plan.wake = earlier(plan.wake, wake);
    if cluster.status.as_ref() == Some(&status) {
        return plan;
    }
    let events = |about_ready: bool| -> Vec<Event> {
        let conditions = status.conditions.iter();
        let conditions = conditions.filter(|it| !is_of_kstatus(&it.type_));
        let conditions = conditions.filter(|it| (it.type_ == READY) == about_ready);
        let event = |it| event_of(shown.unwrap_or_default(), it, failed_attempt(steps, it));
        conditions.filter_map(event).collect()
    };
    let step_events = events(false);
    plan.events.extend(match step_events.is_empty() {
        true => events(true),
        false => step_events,
    });
    plan.status = Some(status);
    plan.status_first = true;
    plan
}

/// The part of a condition's message about an attempt that has just failed.
fn failed_attempt(steps: &[(LifecycleStep, StepState)], condition: &Condition) -> Option<String> {
    if condition.type_ == READY {
        let (step, state) = first_open(steps)?;
        return state.cluster_state(*step).failed_attempt;
    }
    let mut steps = steps.iter();
    let (_, state) = steps.find(|(step, _)| step.to_string() == condition.type_)?;
    state.failed_attempt.clone()
}

/// The event about a condition that has changed, or about a failed attempt that the old condition does not mention.
fn event_of(old: &[Condition], new: &Condition, failed_attempt: Option<String>) -> Option<Event> {
    let old = old.iter().find(|it| it.type_ == new.type_);
    let is_same = old.is_some_and(|it| it.status == new.status && it.reason == new.reason);
    let failed_again = failed_attempt
        .is_some_and(|attempt| !old.is_some_and(|it| it.message.starts_with(&attempt)));
    let is_reason = |reason: &LifecycleReason| reason.to_string() == new.reason;
    let warning = LifecycleReason::FAILURES.iter().any(is_reason);
    let has_passed = [LifecycleReason::Passed, LifecycleReason::Installed].iter().any(is_reason);
    let is_new = !is_same || failed_again;
    (is_new && (warning || has_passed)).then(|| Event {
        warning,
        reason: new.reason.clone(),
        message: match new.type_ == READY {
            true => new.message.clone(),
            false => format!("{}: {}", new.type_, new.message),
        },
    })
}
