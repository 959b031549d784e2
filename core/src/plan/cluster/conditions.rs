//! The conditions of a Cluster: one for each step, and Ready.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::ClusterPlan;
use crate::api::{Cluster, ClusterStatus, LifecycleStep};
use crate::plan::decision::Event;

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
    /// No first master was found.
    NoMaster,
    /// The user has paused the Cluster.
    Paused,
    /// An older Cluster exists.
    AnotherCluster,
    /// A field has an invalid value.
    InvalidSpec,
    /// Ready: the install is complete on every node.
    Installed,
}

impl LifecycleReason {
    /// The reasons that require action by the user.
    const FAILURES: [Self; 6] = [
        Self::FailedInit,
        Self::FailedUpdate,
        Self::FailedDelete,
        Self::NoMaster,
        Self::AnotherCluster,
        Self::InvalidSpec,
    ];
}

impl fmt::Display for LifecycleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The state of a step: reason and message of its condition.
#[derive(Clone, Debug)]
pub struct StepState {
    pub reason: LifecycleReason,
    pub message: String,
}

impl StepState {
    pub fn new(reason: LifecycleReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
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
    pub fn is_over(&self) -> bool {
        self.status() == "True"
    }
}

/// The conditions, with those of these steps and Ready replaced. Ready is True only if the install or upgrade
/// `is_recorded`, so that it never precedes the phase and the version.
pub fn of_steps(
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
    let open = steps.iter().find(|(_, state)| !state.is_over());
    let ready = match open {
        Some((step, state)) => StepState::new(state.reason, format!("{step}: {}", state.message)),
        None if !is_recorded => StepState::new(
            LifecycleReason::Waiting,
            "all steps have passed and are being recorded",
        ),
        None => StepState::new(
            LifecycleReason::Installed,
            "the install is complete on every node",
        ),
    };
    with_ready(cluster, &conditions, &ready, now)
}

/// The conditions, with Ready replaced. Ready is False, not Unknown, until everything is complete.
pub fn with_ready(
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
    let place = conditions.iter().position(|it| it.type_ == type_);
    let before = place.map(|place| &conditions[place]);
    let since = before.filter(|it| it.status == status);
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: state.reason.to_string(),
        message: state.message.clone(),
        observed_generation: cluster.metadata.generation,
        last_transition_time: since.map_or(Time(now), |it| it.last_transition_time.clone()),
    };
    match place {
        Some(place) => conditions[place] = condition,
        None => conditions.push(condition),
    }
}

/// Adds the status to the plan if it has changed, with events about new conditions.
pub fn finish(cluster: &Cluster, status: ClusterStatus, mut plan: ClusterPlan) -> ClusterPlan {
    let old = cluster.status.clone().unwrap_or_default();
    if cluster.status.as_ref() == Some(&status) {
        return plan;
    }
    let steps = status.conditions.iter().filter(|it| it.type_ != READY);
    let ready = status.conditions.iter().filter(|it| it.type_ == READY);
    let has_step = steps.clone().any(|it| event_of(&old, it).is_some());
    let events = match has_step {
        true => steps.filter_map(|it| event_of(&old, it)).collect(),
        false => ready
            .filter_map(|it| event_of(&old, it))
            .collect::<Vec<_>>(),
    };
    plan.events.extend(events);
    plan.status = Some(status);
    plan
}

/// The part of a message about the attempt, without the number of nodes that have passed: a new number is no reason
/// for an event.
fn attempt(condition: &Condition) -> &str {
    let message = condition.message.as_str();
    message.split("; passed on ").next().unwrap_or(message)
}

/// The event about a condition, if it has changed.
fn event_of(old: &ClusterStatus, new: &Condition) -> Option<Event> {
    let before = old.conditions.iter().find(|it| it.type_ == new.type_);
    let is_same = before.is_some_and(|it| it.status == new.status && it.reason == new.reason);
    let failed_again = new.status == "False" && new.message.contains(", next at ");
    let is_reported = before.is_some_and(|it| attempt(it) == attempt(new));
    let is_reason = |reason: &LifecycleReason| reason.to_string() == new.reason;
    let warning = LifecycleReason::FAILURES.iter().any(is_reason);
    let has_passed = [LifecycleReason::Passed, LifecycleReason::Installed]
        .iter()
        .any(is_reason);
    let is_new = !is_same || (failed_again && !is_reported);
    (is_new && (warning || has_passed)).then(|| Event {
        warning,
        reason: new.reason.clone(),
        message: match new.type_ == READY {
            true => new.message.clone(),
            false => format!("{}: {}", new.type_, new.message),
        },
    })
}
