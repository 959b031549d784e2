//! The causes: why the workload is not what its spec describes. Conditions, events, `kubectl game` and metrics say the
//! same, because all of them read this one list.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;

use crate::api::names::HookPoint;
use crate::api::{
    Actor, Cause, ConditionType, PodHookCondition, Reason, WaitReason, WorkloadStatus,
};
use crate::observed::time::{duration, rounded_down};
use crate::text::truncate;
use crate::workload::decision::Blocked;
use crate::workload::hooks::{Awaited, RunningHook, run_maker};
use crate::workload::protection::delays_removal;
use crate::workload::status::Outcome;
use crate::workload::update::Scene;

/// The largest number of causes in a status.
const MAX_CAUSES: usize = 20;
/// The longest message of a cause, in characters.
const MAX_MESSAGE: usize = 1_000;

/// What the causes are computed from.
pub(crate) struct Facts<'a, 's> {
    /// The input of the plan.
    pub scene: &'a Scene<'s>,
    /// The result of the plan.
    pub outcome: &'a Outcome<'a>,
    /// The conditions that this plan has determined.
    pub conditions: &'a [Condition],
    /// The last status.
    pub old: Option<&'a WorkloadStatus>,
}

/// The causes, most urgent first: those for which a person must act, then the game, then the node, then nobody. A
/// workload that is what its spec describes has none, unless a pod does not go or a hook could not run.
pub(crate) fn causes(facts: &Facts) -> Vec<Cause> {
    let mut causes = obstacles(facts.conditions);
    causes.extend(pause(facts));
    causes.extend(waiting_step(facts.conditions));
    causes.extend(facts.outcome.hooks.iter().cloned());
    causes.extend(facts.outcome.troubles.causes(facts.scene.workload));
    causes.extend(awaited(facts));
    if causes.is_empty() && !facts.outcome.complete {
        causes.extend(unexplained(facts.conditions));
    }
    causes.extend(broken_hooks(facts));
    causes.extend(waiting_drains(facts.scene));
    in_order(causes, facts.old)
}

/// The causes of a workload of which nothing can be planned but the removal of pods, which waits for these hooks.
pub(crate) fn of_removals(
    hooks: Vec<Cause>,
    conditions: &[Condition],
    old: Option<&WorkloadStatus>,
) -> Vec<Cause> {
    let mut causes = obstacles(conditions);
    causes.extend(hooks);
    if causes.is_empty() {
        causes.extend(unexplained(conditions));
    }
    in_order(causes, old)
}

/// Those that need a person come first.
fn in_order(mut causes: Vec<Cause>, old: Option<&WorkloadStatus>) -> Vec<Cause> {
    for cause in &mut causes {
        keep_time(cause, old);
    }
    causes.sort_by_key(|it| it.actor);
    causes.truncate(MAX_CAUSES);
    causes
}

/// The hooks that keep the workload waiting: those of pods, and that of the current canary step.
pub(crate) fn awaited_hooks(scene: &Scene, awaited: &Awaited) -> Vec<Cause> {
    let mut causes = hooks_of_pods(awaited, scene.world.now);
    causes.extend(step_hook(scene));
    causes
}

/// The hooks of pods that keep pods waiting, also those that are about to start: between two runs of a hook, a pod waits,
/// too.
pub(crate) fn hooks_of_pods(awaited: &Awaited, now: Timestamp) -> Vec<Cause> {
    let mut causes = refused_hooks(awaited);
    causes.extend(removed_hook(awaited, now));
    causes.extend(running_hooks(awaited));
    if causes.is_empty() {
        causes.extend(next_hook(awaited, now));
    }
    causes
}

pub(super) fn cause(reason: Reason, message: String, actor: Actor, since: Timestamp) -> Cause {
    Cause {
        reason: reason.to_string(),
        message: truncate(&message, MAX_MESSAGE),
        actor,
        since: Time(rounded_down(since)),
        until: None,
        pods: Vec::new(),
        pod_count: 0,
        container: String::new(),
        node: String::new(),
        hook_point: String::new(),
    }
}

pub(super) fn add_pod(cause: &mut Cause, name: &str) {
    if cause.pods.len() < Cause::MAX_PODS {
        cause.pods.push(name.to_owned());
    }
    cause.pod_count = cause.pod_count.saturating_add(1);
}

/// A cause whose time is not recorded elsewhere began when a status first showed it.
fn keep_time(cause: &mut Cause, old: Option<&WorkloadStatus>) {
    let mut old = old.into_iter().flat_map(|it| &it.causes);
    let is_same = |it: &&Cause| {
        (&it.reason, &it.hook_point, &it.node, &it.pods)
            == (&cause.reason, &cause.hook_point, &cause.node, &cause.pods)
    };
    if let Some(old) = old.find(is_same) {
        cause.since = Time(cause.since.0.min(old.since.0));
    }
}

/// Who acts on what a condition says.
fn actor_of(reason: Reason) -> Actor {
    match reason.needs_person() {
        true => Actor::User,
        false => Actor::Nobody,
    }
}

fn of_condition(condition: &Condition) -> Option<Cause> {
    let reason = Reason::parse(&condition.reason)?;
    let (message, since) = (condition.message.clone(), condition.last_transition_time.0);
    Some(cause(reason, message, actor_of(reason), since))
}

fn obstacles(conditions: &[Condition]) -> Vec<Cause> {
    let failed = conditions.iter().filter(|it| it.type_.starts_with("Failed"));
    let mut causes: Vec<Cause> = Vec::new();
    for cause in failed.filter_map(of_condition) {
        let is_known =
            causes.iter().any(|it| (&it.reason, &it.message) == (&cause.reason, &cause.message));
        if !is_known {
            causes.push(cause);
        }
    }
    causes
}

fn progressing(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|it| it.type_ == ConditionType::Progressing.as_str())
}

fn pause(facts: &Facts) -> Option<Cause> {
    let condition = progressing(facts.conditions)?;
    let reason = Reason::parse(&condition.reason).filter(|it| it.is_pause())?;
    let mut cause = of_condition(condition)?;
    cause.actor = Actor::User;
    let progress = &facts.outcome.rollout.progress;
    if let Some(pause) = progress.pause_conditions.first() {
        cause.since = Time(rounded_down(pause.start_time.0));
    }
    if reason == Reason::PausedByStepBasedHook {
        cause.hook_point = HookPoint::Step.as_str().to_owned();
        let run = progress.canary.current_step_hook_run.as_deref();
        let mut runs = facts.scene.world.runs.iter();
        if let Some(run) = runs.find(|it| Some(it.name_any().as_str()) == run) {
            let message = run.status.as_ref().and_then(|it| it.message.as_deref());
            let message = message.map_or_else(String::new, |it| format!(": {it}"));
            let index = progress.step_index.unwrap_or(0);
            let (name, phase) = (run.name_any(), run.phase());
            let ended = format!(
                "canary step {index} is paused because its hook {name} ended {phase:?}{message}"
            );
            cause.message = truncate(&ended, MAX_MESSAGE);
        }
    }
    if matches!(reason, Reason::PausedByCanaryPauseStep | Reason::ResumeByApplyIgnored) {
        let index = progress.step_index.and_then(|it| usize::try_from(it).ok());
        let step = index.and_then(|index| facts.scene.workload.steps.get(index));
        let length = step.and_then(|it| it.pause.as_ref()?.duration.as_ref());
        let end = length.and_then(duration).and_then(|it| cause.since.0.checked_add(it).ok());
        if let Some(end) = end {
            (cause.actor, cause.until) = (Actor::Nobody, Some(Time(end)));
        }
    }
    Some(cause)
}

/// A canary step that has no pod to update, or updates none by itself.
fn waiting_step(conditions: &[Condition]) -> Option<Cause> {
    let condition = progressing(conditions)?;
    Reason::parse(&condition.reason).filter(|it| it.is_waiting_step())?;
    Some(Cause { actor: Actor::User, ..of_condition(condition)? })
}

/// Hooks of pods that ended without success.
fn refused_hooks(awaited: &Awaited) -> Vec<Cause> {
    let refused = awaited.blocked.iter().filter_map(|(point, pods)| {
        let mut pods: Vec<&PodHookCondition> = pods.iter().collect();
        pods.sort_by_key(|it| (it.start_time.0, &it.pod_name));
        let first = pods.first()?;
        let message = format!(
            "the {} hook of pod {} ended {:?}{}{}",
            point.as_str(),
            first.pod_name,
            first.phase,
            if first.message.is_empty() { "" } else { ": " },
            first.message
        );
        let rerun = awaited.reruns.get(point);
        let actor = if rerun.is_some() { Actor::Game } else { Actor::User };
        let mut cause = cause(Reason::HookNotSuccessful, message, actor, first.start_time.0);
        cause.until = rerun.map(|at| Time(rounded_down(*at)));
        cause.hook_point = point.as_str().to_owned();
        pods.iter().for_each(|pod| add_pod(&mut cause, &pod.pod_name));
        Some(cause)
    });
    refused.collect()
}

/// Guarded pods whose hook was removed from the workload.
fn removed_hook(awaited: &Awaited, now: Timestamp) -> Option<Cause> {
    let waiting = awaited.waiting.values();
    let mut waiting = waiting.filter(|it| it.reason == WaitReason::HookRemoved);
    let first = waiting.next()?;
    let since = awaited.waiting_since(first.pod).unwrap_or(now);
    let message = format!("pod {} waits: {}", first.pod.name, first.message);
    let mut cause = cause(Reason::HookRemoved, message, Actor::User, since);
    add_pod(&mut cause, &first.pod.name);
    waiting.for_each(|it| add_pod(&mut cause, &it.pod.name));
    Some(cause)
}

/// Guarded pods whose hook is about to start.
fn next_hook(awaited: &Awaited, now: Timestamp) -> Option<Cause> {
    let mut waiting = awaited.waiting.values();
    let first = waiting.next()?;
    let since = awaited.waiting_since(first.pod).unwrap_or(now);
    let waits = format!("pod {} waits for its PreDelete hook", first.pod.name);
    let mut cause = running_hook(HookPoint::PreDelete, waits, since, None);
    add_pod(&mut cause, &first.pod.name);
    waiting.for_each(|it| add_pod(&mut cause, &it.pod.name));
    Some(cause)
}

/// Pods whose hook is running. Those of which it cannot be measured come first: the game has not been asked.
fn running_hooks(awaited: &Awaited) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for (point, pods) in &awaited.running {
        let mut pods: Vec<&RunningHook> = pods.iter().collect();
        pods.sort_by_key(|it| (it.error.is_none(), it.since, it.pod));
        for hooks in pods.chunk_by(|a, b| a.error.is_some() == b.error.is_some()) {
            let Some(first) = hooks.first() else { continue };
            let waits = format!("pod {} waits for its {} hook", first.pod, point.as_str());
            let mut cause = running_hook(*point, waits, first.since, first.error);
            hooks.iter().for_each(|it| add_pod(&mut cause, it.pod));
            causes.push(cause);
        }
    }
    causes
}

/// A hook that runs, or that runs without measuring anything: then, what it asks does not answer, and a person must see to it.
fn running_hook(point: HookPoint, waits: String, since: Timestamp, error: Option<&str>) -> Cause {
    let cause = match error {
        None => cause(Reason::HookRunning, waits, Actor::Game, since),
        Some(error) => {
            let message = format!("{waits}, which cannot be measured: {error}");
            cause(Reason::HookNotMeasured, message, Actor::User, since)
        }
    };
    Cause { hook_point: point.as_str().to_owned(), ..cause }
}

/// The running hook of the current canary step.
fn step_hook(scene: &Scene) -> Option<Cause> {
    let progress = &scene.sizes.rollout.progress;
    let name = progress.canary.current_step_hook_run.as_deref()?;
    let mut runs = scene.world.runs.iter();
    let run = runs.find(|run| run.name_any() == name && !run.phase().is_completed())?;
    let index = progress.step_index.unwrap_or(0);
    let waits = format!("canary step {index} waits for its hook {name}");
    let since = run.creation_timestamp().map_or(scene.world.now, |it| it.0);
    Some(running_hook(HookPoint::Step, waits, since, run.current_error()))
}

/// Hooks that cannot run, although none is needed now: better told before they are.
fn broken_hooks(facts: &Facts) -> Vec<Cause> {
    let Scene { workload, world, .. } = facts.scene;
    let of_pods = HookPoint::OF_PODS.into_iter();
    let of_pods = of_pods.filter_map(|point| Some((point, workload.hooks.hook(point)?)));
    let of_steps = workload.steps.iter().filter_map(|step| step.hook.as_ref());
    let all = of_pods.chain(of_steps.map(|hook| (HookPoint::Step, hook)));
    let mut causes: Vec<Cause> = Vec::new();
    for (point, hook) in all {
        let Err(problem) = run_maker::check(workload, world, point, hook) else {
            continue;
        };
        let Blocked { reason, message } = problem.blocked();
        let is_needed = |it: &Condition| it.reason == reason.to_string() && it.message == message;
        if facts.conditions.iter().any(is_needed) {
            continue;
        }
        let message =
            format!("the {} hook cannot run when it is needed: {message}", point.as_str());
        let mut cause = cause(reason, message, Actor::User, world.now);
        cause.hook_point = point.as_str().to_owned();
        causes.push(cause);
    }
    causes
}

/// Guarded pods on nodes that are going to be removed, one cause for each node. Nobody has requested that they leave, so the
/// drains wait for matches that nothing ends.
fn waiting_drains(scene: &Scene) -> Vec<Cause> {
    let Scene { workload, world, own, .. } = scene;
    let mut causes: Vec<Cause> = Vec::new();
    if workload.moves_off_nodes || world.going_nodes.is_empty() {
        return causes;
    }
    for pod in own.iter().filter(|pod| pod.move_requested.is_none()) {
        let Some((node, taints)) =
            pod.node.as_ref().and_then(|it| world.going_nodes.get_key_value(it))
        else {
            continue;
        };
        if !delays_removal(&workload.uid, &workload.template, taints, pod) {
            continue;
        }
        if let Some(cause) = causes.iter_mut().find(|it| it.node == *node) {
            add_pod(cause, &pod.name);
            continue;
        }
        let name = &pod.name;
        let message = format!(
            "node {node} is going to be removed, and guarded pod {name} stays on it: a drain waits for its match"
        );
        let mut cause = cause(Reason::DrainWaits, message, Actor::User, world.now);
        cause.node.clone_from(node);
        add_pod(&mut cause, name);
        causes.push(cause);
    }
    causes
}

/// What the creation of pods waits for.
fn awaited(facts: &Facts) -> Option<Cause> {
    let blocked = facts.outcome.reasons.waits_for.as_ref()?;
    let now = facts.scene.world.now;
    Some(cause(blocked.reason, blocked.message.clone(), actor_of(blocked.reason), now))
}

/// What condition Ready says, if there is no better explanation.
fn unexplained(conditions: &[Condition]) -> Option<Cause> {
    let ready = conditions.iter().find(|it| it.type_ == ConditionType::Ready.as_str());
    of_condition(ready.filter(|it| it.status != "True")?)
}
