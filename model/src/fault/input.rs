//! Bugs in what the planner observes: a corrupted input has the same effect as a missing rule.

use std::sync::Arc;

use gamekeeper_core::api::names::{self, HookPoint};
use gamekeeper_core::api::{GameDeployment, HookPhase, HookRun, JsonText, WaitReason, WaitingPod};
use gamekeeper_core::observed::{
    ContainerChange, Disruption, Gate, MoveRequest, Pod, PodPhase, Turn,
};
use gamekeeper_core::sidecar_set::{Changing, MatchedPod, Sidecars};
use gamekeeper_core::workload::{Failures, Promotion, Replacement, Verdict, World};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Fault, phase, point};
use crate::sidecars::CONTAINER;
use crate::translate::{FULL_QUOTA_OF_PODS, PRIORITY_CLASS};

impl Fault {
    /// Corrupts the planner's input.
    pub fn corrupt_world(self, gd: &mut GameDeployment, world: &mut World) {
        match self {
            Fault::HealthIgnored => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.ready_since = Some(Timestamp::UNIX_EPOCH);
                }
            }
            Fault::PhaseDecides => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    let is_up = pod.phase == PodPhase::Running;
                    let statuses = pod.containers.iter_mut().filter_map(|it| it.status.as_mut());
                    statuses.for_each(|status| status.running = is_up);
                }
            }
            Fault::UnsetGateIgnored => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                for pod in pods.filter(|pod| pod.gate == Gate::Unset) {
                    pod.gate = Gate::None;
                }
            }
            Fault::SurgeForgotten => {
                if let Some(status) = &mut gd.status {
                    status.surge_replicas = 0;
                }
            }
            Fault::RequestsPaused if gd.spec.update_strategy.paused => {
                gd.spec.scale_strategy.pods_to_delete.clear();
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.move_requested = None;
                }
            }
            Fault::TerminatingIndexFree => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                for pod in pods.filter(|pod| pod.terminating) {
                    pod.index = None;
                }
            }
            Fault::DeadlinePassesImmediately
            | Fault::TimeOnPodCounts
            | Fault::WaitEndsWithMark
            | Fault::WaitEndsWithTime => self.corrupt_waits(gd, world),
            Fault::AnyContainerCovered => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                pods.for_each(record_all_containers);
            }
            Fault::HotPatchRestartOverlooked => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                pods.for_each(hide_restarts);
            }
            Fault::OneNodeProvesAll => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.node = Some("one".to_owned());
                }
            }
            Fault::ReleaseForgotten => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.released = false;
                }
            }
            Fault::AllReleased => {
                let any_released = world.pods.iter().any(|pod| pod.released);
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.released = any_released;
                }
            }
            Fault::TolerationIgnored => {
                for taints in world.going_nodes.values_mut() {
                    for taint in Arc::make_mut(taints) {
                        taint.key = "not-tolerated".to_owned();
                    }
                }
            }
            Fault::GoingOverlooked => world.going_nodes.clear(),
            Fault::OutdatedRequestCounts => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.move_requested = pod.move_requested.map(|_| MoveRequest::User);
                }
            }
            Fault::SilentMeansLost => {
                for node in world.lost_nodes.values_mut() {
                    node.since = Some(Timestamp::UNIX_EPOCH);
                }
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    let is_on_lost_node =
                        pod.node.as_ref().is_some_and(|it| world.lost_nodes.contains_key(it));
                    pod.disruption = is_on_lost_node.then_some(Disruption::Taint);
                }
            }
            Fault::OffByOne => {
                let replicas = gd.spec.replicas.unwrap_or(1);
                gd.spec.replicas = Some((replicas - 1).max(0));
            }
            Fault::TurnNotAwaited => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                pods.filter(has_next_turn).for_each(show_images_of_spec);
            }
            Fault::SurgeLeavesEarly => {
                if let Some(status) = gd.status.as_mut() {
                    status.surge_replicas = 0;
                }
            }
            Fault::SidecarsUnguarded => {
                let update = newest(world).unwrap_or_default();
                let mut pods = world.pods.iter();
                if pods.all(|pod| pod.revision().as_str() == update) {
                    gd.spec.pre_inplace_update_strategy.hook = None;
                }
            }
            Fault::NoTokenNeeded => {
                let set_revision = world.sidecars.first().map(|set| set.revision.clone());
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                for mark in pods.flat_map(|pod| pod.sidecars.values_mut()) {
                    mark.token = set_revision.clone().filter(|newest| *newest != mark.revision);
                }
            }
            Fault::RemovedHookForgotten => {
                if gd.spec.pre_delete_update_strategy.hook.is_none() {
                    for pod in world.pods.iter_mut().map(Arc::make_mut) {
                        pod.labels.remove(names::GUARDED_LABEL);
                    }
                }
            }
            Fault::RecreationUnguarded => gd.spec.pre_inplace_update_strategy.hook = None,
            Fault::PauseIgnored => gd.spec.update_strategy.paused = false,
            Fault::NoBudget => {
                gd.spec.update_strategy.max_unavailable = Some(IntOrString::Int(100));
            }
            Fault::NotYetAvailableIsFree => {
                let min_ready = SignedDuration::from_secs(i64::from(gd.spec.min_ready_seconds));
                let since = world.now - min_ready;
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.ready_since = pod.ready_since.filter(|ready| *ready <= since);
                }
            }
            Fault::NoPartition => remove_partition(gd),
            Fault::AnyPromotionCounts => promote(gd, world),
            Fault::HeldKept => {
                if let (Some(status), Some(update)) = (gd.status.as_mut(), newest(world)) {
                    status.update_revision = update;
                }
            }
            Fault::LostStatusMeansDone => {
                let lost = gd.status.iter_mut().find(|it| it.observed_generation < 0);
                if let Some(status) = lost {
                    status.canary.revision = newest(world).unwrap_or_default();
                }
            }
            Fault::QuotaFitsAll => {
                for verdict in world.memory.verdicts.values_mut() {
                    *verdict = Verdict::Accepted;
                }
            }
            Fault::AmountsIgnored => {
                for verdict in world.memory.verdicts.values_mut() {
                    if let Verdict::Refused { message, .. } = verdict {
                        *message = FULL_QUOTA_OF_PODS.to_owned();
                    }
                }
            }
            Fault::QuotaScopesIgnored
                if world
                    .memory
                    .verdicts
                    .values()
                    .any(|it| matches!(it, Verdict::Refused { .. })) =>
            {
                for revision in world.revisions.iter_mut().map(Arc::make_mut) {
                    let mut template: Value = revision.template.parse();
                    template["spec"]["priorityClassName"] = json!(PRIORITY_CLASS);
                    revision.template = JsonText::from(&template);
                }
            }
            Fault::TrialForgotten => {
                for verdict in world.memory.verdicts.values_mut() {
                    if let Verdict::Refused { replacement, .. } = verdict {
                        *replacement = Replacement::Untried;
                    }
                }
            }
            Fault::FirstCountsAsStable => {
                if let Some(status) = &mut gd.status
                    && status.canary.revision.is_empty()
                {
                    status.canary.revision.clone_from(&status.update_revision);
                }
            }
            Fault::WaitingIgnored => name_victims(gd, world),
            Fault::RefusalForgotten => world.memory.failures = Failures::default(),
            Fault::OtherCanaryCounts => {
                let update = newest(world).unwrap_or_default();
                let status = gd.status.as_ref().filter(|it| it.update_revision == update);
                let stable = status.map(|it| it.canary.revision.clone());
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    if stable.as_deref().is_some_and(|it| pod.revision().as_str() != it) {
                        pod.labels.insert(names::REVISION_LABEL.to_owned(), update.clone());
                    }
                }
            }
            Fault::NotAcceptedFirst => {
                let names = world.revisions.iter().map(|it| it.name.clone());
                world.memory.verdicts = names.map(|name| (name, Verdict::Accepted)).collect();
            }
            Fault::OtherRunsOverlooked => {
                let update = newest(world);
                world.runs.retain(|run| {
                    let target = run.annotations().get(names::RUN_TARGET);
                    target.is_none_or(|it| it.is_empty() || Some(it) == update.as_ref())
                });
            }
            _ => self.corrupt_runs(gd, world),
        }
    }

    /// Corrupts what the status records about pods that wait.
    fn corrupt_waits(self, gd: &mut GameDeployment, world: &World) {
        let Some(status) = &mut gd.status else {
            return;
        };
        let waiting = &mut status.protection.get_or_insert_default().waiting;
        for pod in world.pods.iter() {
            let listed = waiting.iter().position(|it| it.pod_name == pod.name);
            let since = listed.map(|index| waiting.remove(index).since.0);
            let since = match self {
                Fault::TimeOnPodCounts => pod.waiting_since,
                Fault::WaitEndsWithMark => since.filter(|_| pod.marked_deleting),
                Fault::WaitEndsWithTime => since.filter(|_| pod.waiting_since.is_some()),
                _ => since.map(|_| pod.created),
            };
            waiting.extend(since.map(|since| WaitingPod {
                pod_name: pod.name.clone(),
                node: String::new(),
                since: Time(since),
                reason: WaitReason::HookRunning,
                message: String::new(),
            }));
        }
    }

    fn corrupt_runs(self, gd: &mut GameDeployment, world: &mut World) {
        let is_retried = self == Fault::RetryMeansSuccess && forget_retry(gd);
        let mut runs = std::mem::take(&mut world.runs);
        for run in runs.iter_mut().map(Arc::make_mut) {
            let is_success = phase(run) == HookPhase::Successful;
            match self {
                Fault::OldSuccessCounts if is_success => succeed(run, world),
                Fault::FutureSuccessCounts if is_success && is_ahead(run, world) => {
                    succeed(run, world);
                }
                Fault::AnyTargetCounts if is_success => retarget(run, world),
                Fault::ChangeCountsForDeletion if is_success => {
                    run.annotations_mut().remove(names::RUN_CHANGES);
                }
                Fault::SuccessOfGameCounts if is_success => add_sidecars(run, world),
                Fault::RetryMeansSuccess if is_retried => succeed(run, world),
                Fault::PostHookIgnored if point(run) == HookPoint::PostInplace => {
                    succeed(run, world);
                }
                Fault::AnyArgumentsCount if is_success => {
                    let hook = gd.spec.pre_delete_update_strategy.hook.as_ref();
                    let hash = serde_json::to_vec(&hook).expect("JSON");
                    annotate(run, names::RUN_HOOK_HASH, &names::safe_hash(&hash));
                }
                _ => {}
            }
        }
        world.runs = runs;
    }

    /// Corrupts a SidecarSet, and the pods that its planner observes.
    pub fn corrupt_set(self, set: &mut Sidecars, pods: &mut [MatchedPod]) {
        match self {
            Fault::SetUpdatesPods => pods.iter_mut().for_each(|pod| pod.own = false),
            Fault::SetLimitIgnored => {
                set.update.max_unavailable = Some(IntOrString::Int(100));
            }
            Fault::BusyIgnored => {
                pods.iter_mut().for_each(|pod| (pod.changing, pod.ready) = (Changing::No, true))
            }
            _ => {}
        }
    }
}

/// Whether a container of this pod waits for its turn.
fn has_next_turn(pod: &&mut Pod) -> bool {
    let record = pod.record.iter();
    let mut changes = record.flat_map(|record| record.containers.values());
    changes.any(|change| matches!(change.turn, Turn::Next(_)))
}

/// Adds the containers that do not change to the record of a change in progress.
fn record_all_containers(pod: &mut Pod) {
    let (containers, record) = (&pod.containers, &mut pod.record);
    let Some(record) = record.as_mut().filter(|it| !it.hot).map(Arc::make_mut) else {
        return;
    };
    for container in containers {
        let change =
            || ContainerChange { from_image: "game:v9".to_owned(), ..ContainerChange::default() };
        let known = record.containers.entry(container.name.clone());
        known.or_insert_with(|| Box::new(change()));
    }
}

/// Makes the status report that hot patches restarted nothing.
fn hide_restarts(pod: &mut Pod) {
    let Some(record) = pod.record.clone().filter(|it| it.hot) else {
        return;
    };
    for container in &mut pod.containers {
        let change = record.containers.get(&container.name);
        if let (Some(status), Some(change)) = (&mut container.status, change) {
            status.restart_count = change.from_restart_count;
            status.container_id.clone_from(&change.from_container_id);
        }
    }
}

/// Makes the status report that the containers of a pod run the images of its spec.
fn show_images_of_spec(pod: &mut Pod) {
    pod.observed_generation = pod.generation;
    for container in &mut pod.containers {
        if let Some(status) = &mut container.status {
            status.image.clone_from(&container.image);
        }
    }
}

fn remove_partition(gd: &mut GameDeployment) {
    let strategy = &mut gd.spec.update_strategy;
    strategy.partition = None;
    for step in strategy.canary.iter_mut().flat_map(|canary| &mut canary.steps) {
        step.partition = step.partition.as_ref().map(|_| IntOrString::Int(0));
    }
}

/// The name of the newest revision, if there is one.
fn newest(world: &World) -> Option<String> {
    let newest = world.revisions.iter().max_by_key(|it| it.number);
    newest.map(|it| it.name.clone())
}

/// Changes a promotion, if there is one, to that of the newest revision.
fn promote(gd: &mut GameDeployment, world: &World) {
    let update = world.revisions.iter().max_by_key(|it| it.number);
    let hash = gd.status.as_ref().map(|it| it.current_step_hash.clone());
    if let (Some(annotation), Some(update), Some(Some(step_hash))) =
        (gd.annotations_mut().get_mut(names::PROMOTE_ANNOTATION), update, hash)
    {
        let promotion = Promotion { revision: update.name.clone(), step_hash };
        *annotation = serde_json::to_string(&promotion).expect("JSON");
    }
}

/// Sets podsToDelete to the pods that would be chosen if none were already waiting.
fn name_victims(gd: &mut GameDeployment, world: &World) {
    let mut pods: Vec<_> = world.pods.iter().filter(|pod| !pod.terminating).collect();
    pods.sort_by_key(|pod| (pod.is_ready(), std::cmp::Reverse(pod.created)));
    let wanted = usize::try_from(gd.spec.replicas.unwrap_or(1)).unwrap_or(0);
    pods.truncate(pods.len().saturating_sub(wanted));
    gd.spec.scale_strategy.pods_to_delete = pods.iter().map(|pod| pod.name.clone()).collect();
}

/// Removes a retry, and returns whether there was one.
fn forget_retry(gd: &mut GameDeployment) -> bool {
    let strategy = &mut gd.spec.pre_delete_update_strategy;
    let was_set = std::mem::take(&mut strategy.retry);
    let annotation = gd.annotations_mut().remove(names::RETRY_ANNOTATION);
    was_set || annotation.is_some()
}

fn annotate(run: &mut HookRun, key: &str, value: &str) {
    run.annotations_mut().insert(key.to_owned(), value.to_owned());
}

fn is_ahead(run: &HookRun, world: &World) -> bool {
    let finished = run.status.as_ref().and_then(|it| it.finished_at.as_ref());
    finished.is_some_and(|finished| finished.0 > world.now)
}

fn succeed(run: &mut HookRun, world: &World) {
    if let Some(status) = run.status.as_mut() {
        status.phase = HookPhase::Successful;
        status.finished_at = Some(Time(world.now));
    }
}

/// Changes the target of a run to the one that its pod now needs.
fn retarget(run: &mut HookRun, world: &World) {
    let update = world.revisions.iter().max_by_key(|it| it.number);
    let uid = run.annotations().get(names::RUN_POD_UID).cloned();
    let pod = world.pods.iter().find(|pod| Some(&pod.uid) == uid.as_ref());
    if let (Some(update), Some(pod)) = (update, pod) {
        let is_old = pod.revision() != update.name();
        annotate(run, names::RUN_TARGET, if is_old { &update.name } else { "" });
    }
}

/// Adds the set's revision to the target of a run, as if the run were for an update of the sidecars.
fn add_sidecars(run: &mut HookRun, world: &World) {
    let target = run.annotations().get(names::RUN_TARGET).cloned();
    let target = target.filter(|it| !it.is_empty() && !it.contains('+'));
    if let (Some(target), Some(set)) = (target, world.sidecars.first()) {
        let combined = format!("{target}+{}", set.revision);
        annotate(run, names::RUN_TARGET, &combined);
        let mut changed = ["game", CONTAINER];
        changed.sort_unstable();
        annotate(run, names::RUN_CHANGES, &changed.join(","));
    }
}
