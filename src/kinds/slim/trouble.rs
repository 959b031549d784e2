//! Why a pod is not ready, or is still Terminating: what its conditions and the states of its containers show.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;

use super::condition;
use gamekeeper_core::api::names::IN_PLACE_GATE;
use gamekeeper_core::observed::{InPlaceRecord, Pod, Trouble, TroubleKind};
use gamekeeper_core::text::truncate;

/// The longest message of a scheduler or kubelet that is kept, in characters.
const MAX_WHY: usize = 300;
/// A container that has run for longer than this did not end because of a bad build. Kubelets, too, forget their
/// backoff then.
const LONG_RUN: SignedDuration = SignedDuration::from_mins(10);
/// A container that ended sooner than this after its start must run at least this long before it counts as running.
const MIN_RUN: SignedDuration = SignedDuration::from_secs(10);

/// The parts of a pod that show its trouble.
pub(super) struct Seen<'a> {
    /// When it was created.
    pub created: Timestamp,
    /// metadata.deletionTimestamp: when its grace period ends.
    pub deletion: Option<Timestamp>,
    /// metadata.finalizers.
    pub finalizers: &'a [String],
    /// Its spec.
    pub spec: &'a core::PodSpec,
    /// Its status.
    pub status: &'a core::PodStatus,
    /// What the last in-place update changed. It ended containers, too.
    pub record: Option<&'a InPlaceRecord>,
}

/// The pod's trouble. What `previous`, an earlier state of the same pod, already showed keeps its time and its message:
/// a kubelet alternates between an error and waiting for the next attempt.
pub(super) fn trouble(seen: &Seen, previous: Option<&Pod>) -> Option<Box<Trouble>> {
    let mut trouble = match seen.deletion {
        Some(deletion) => terminating(seen, deletion),
        None => not_running(seen),
    }?;
    if let Some(old) = previous.and_then(|pod| pod.trouble.as_deref()) {
        keep(&mut trouble, old);
    }
    Some(Box::new(trouble))
}

fn keep(new: &mut Trouble, old: &Trouble) {
    if std::mem::discriminant(&new.kind) != std::mem::discriminant(&old.kind) {
        return;
    }
    new.since = new.since.min(old.since);
    if let (
        TroubleKind::Image { container, image, why },
        TroubleKind::Image { container: old_container, image: old_image, why: old_why },
    ) = (&mut new.kind, &old.kind)
        && (&*container, &*image) == (old_container, old_image)
        && !old_why.is_empty()
    {
        why.clone_from(old_why);
    }
}

fn terminating(seen: &Seen, deletion: Timestamp) -> Option<Trouble> {
    let node = seen.spec.node_name.clone();
    let kind = match seen.finalizers.first() {
        Some(finalizer) => TroubleKind::Finalizer(truncate(finalizer, MAX_WHY)),
        None => TroubleKind::NotEnded(node?),
    };
    Some(Trouble { kind, since: deletion, over_at: None })
}

fn not_running(seen: &Seen) -> Option<Trouble> {
    let ended = matches!(seen.status.phase.as_deref(), Some("Failed" | "Succeeded"));
    if ended {
        return None;
    }
    if seen.spec.node_name.is_none() {
        return Some(unscheduled(seen));
    }
    let crashing = statuses(seen.status).find_map(|it| crashing(seen, it));
    crashing.or_else(|| not_ready(seen))
}

fn unscheduled(seen: &Seen) -> Trouble {
    let Some(scheduled) = condition(seen.status, "PodScheduled") else {
        return Trouble { kind: TroubleKind::NotScheduled, since: seen.created, over_at: None };
    };
    let why = message(scheduled.message.as_deref());
    let kind = match scheduled.reason.as_deref() {
        Some("SchedulingGated") => TroubleKind::SchedulingGated,
        _ if why.to_lowercase().contains("persistentvolumeclaim") => {
            TroubleKind::ClaimNotBound(why)
        }
        _ => TroubleKind::Unschedulable(why),
    };
    let since = scheduled.last_transition_time.as_ref();
    Trouble { kind, since: since.map_or(seen.created, |it| it.0), over_at: None }
}

/// Why a pod on a node is not ready; None if it is.
fn not_ready(seen: &Seen) -> Option<Trouble> {
    let ready = condition(seen.status, "Ready");
    if ready.is_some_and(|it| it.status == "True") {
        return None;
    }
    let changed = ready.and_then(|it| it.last_transition_time.as_ref());
    let since = changed.map_or(seen.created, |it| it.0);
    let kind = statuses(seen.status).find_map(|it| waiting(seen, it));
    let found = kind.map(|kind| Trouble { kind, since, over_at: None });
    found.or_else(|| probe(seen)).or_else(|| gate(seen, since)).or_else(|| not_started(seen, since))
}

/// The statuses of init containers and containers, in the order in which they start.
fn statuses(status: &core::PodStatus) -> impl Iterator<Item = &core::ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten()
}

fn containers(spec: &core::PodSpec) -> impl Iterator<Item = &core::Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

fn container<'a>(spec: &'a core::PodSpec, name: &str) -> Option<&'a core::Container> {
    containers(spec).find(|it| it.name == name)
}

/// What a container waits for, if the kubelet reports an error.
fn waiting(seen: &Seen, reported: &core::ContainerStatus) -> Option<TroubleKind> {
    let waiting = reported.state.as_ref()?.waiting.as_ref()?;
    let why = || message(waiting.message.as_deref());
    let container = || truncate(&reported.name, MAX_WHY);
    Some(match waiting.reason.as_deref()? {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => {
            let spec = self::container(seen.spec, &reported.name);
            let image = spec.and_then(|it| it.image.as_deref()).unwrap_or(&reported.image);
            TroubleKind::Image {
                container: container(),
                image: truncate(image, MAX_WHY),
                why: without_back_off(why()),
            }
        }
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => TroubleKind::NotCreated { container: container(), why: why() },
        "CrashLoopBackOff" => {
            let ended = last_end(reported).map_or_else(String::new, how);
            TroubleKind::Crashing { container: container(), ended }
        }
        _ => return None,
    })
}

/// The kubelet's words while it waits for the next attempt say less than those about the last attempt.
fn without_back_off(why: String) -> String {
    match why.to_lowercase().starts_with("back-off") {
        true => why.split_once(": ").map_or_else(String::new, |(_, error)| error.to_owned()),
        false => why,
    }
}

/// The last end of a container.
fn last_end(reported: &core::ContainerStatus) -> Option<&core::ContainerStateTerminated> {
    let states = [&reported.state, &reported.last_state].into_iter().flatten();
    states.filter_map(|state| state.terminated.as_ref()).next()
}

/// The trouble of a container that ended soon after its start, and has not run for long since then. Init containers are
/// meant to end, and an in-place update ends containers.
fn crashing(seen: &Seen, reported: &core::ContainerStatus) -> Option<Trouble> {
    let end = last_end(reported)?;
    let mut init = seen.spec.init_containers.iter().flatten();
    let ends =
        init.any(|it| it.name == reported.name && it.restart_policy.as_deref() != Some("Always"));
    if (ends && end.exit_code == 0) || is_by_update(seen, reported, end) {
        return None;
    }
    let (from, to) = (end.started_at.as_ref()?.0, end.finished_at.as_ref()?.0);
    let run = to.duration_since(from);
    if run >= LONG_RUN {
        return None;
    }
    let running = reported.state.as_ref().and_then(|it| it.running.as_ref());
    let needed = run.checked_mul(2)?.clamp(MIN_RUN, LONG_RUN);
    let over_at = running.and_then(|it| it.started_at.as_ref()?.0.checked_add(needed).ok());
    let container = truncate(&reported.name, MAX_WHY);
    let kind = TroubleKind::Crashing { container, ended: how(end) };
    Some(Trouble { kind, since: to, over_at })
}

/// Whether the container that ended is the one that ran before the last in-place update, or ended before that: an earlier
/// update may have ended it, and it runs since then.
fn is_by_update(
    seen: &Seen,
    reported: &core::ContainerStatus,
    end: &core::ContainerStateTerminated,
) -> bool {
    let Some(record) = seen.record else {
        return false;
    };
    let ended = end.container_id.as_deref().unwrap_or_default();
    let change = record.containers.get(&reported.name);
    let is_before = end.finished_at.as_ref().is_some_and(|at| at.0 <= record.patched_at);
    change.is_some_and(|it| !ended.is_empty() && it.from_container_id == ended) || is_before
}

fn how(end: &core::ContainerStateTerminated) -> String {
    let code = format!("exit code {}", end.exit_code);
    match end.reason.as_deref() {
        Some(reason) if !["Error", "Completed"].contains(&reason) => {
            format!("{code} ({})", truncate(reason, MAX_WHY))
        }
        _ => code,
    }
}

/// A container that runs without being ready.
fn probe(seen: &Seen) -> Option<Trouble> {
    statuses(seen.status).find_map(|reported| {
        let running = reported.state.as_ref()?.running.as_ref()?;
        let spec = container(seen.spec, &reported.name)?;
        let startup = reported.started == Some(false) && spec.startup_probe.is_some();
        if reported.ready || !(startup || spec.readiness_probe.is_some()) {
            return None;
        }
        let since = running.started_at.as_ref().map_or(seen.created, |it| it.0);
        let kind =
            TroubleKind::ProbeFails { container: truncate(&reported.name, MAX_WHY), startup };
        Some(Trouble { kind, since, over_at: None })
    })
}

/// A readiness gate that is not the operator's own.
fn gate(seen: &Seen, since: Timestamp) -> Option<Trouble> {
    let gates = seen.spec.readiness_gates.iter().flatten().map(|it| it.condition_type.as_str());
    let is_open = |gate: &str| condition(seen.status, gate).is_some_and(|it| it.status == "True");
    let mut closed = gates.filter(|gate| *gate != IN_PLACE_GATE && !is_open(gate));
    let kind = TroubleKind::GateClosed(truncate(closed.next()?, MAX_WHY));
    Some(Trouble { kind, since, over_at: None })
}

/// A pod of which not all containers have started, for a reason that its status does not show.
fn not_started(seen: &Seen, since: Timestamp) -> Option<Trouble> {
    let node = seen.spec.node_name.clone()?;
    let reported: Vec<&core::ContainerStatus> = statuses(seen.status).collect();
    let kind = if reported.is_empty() {
        TroubleKind::NotStarted { container: String::new(), node }
    } else {
        let init = seen.status.init_container_statuses.iter().flatten();
        let runs = |it: &&core::ContainerStatus| {
            let state = it.state.as_ref();
            state.is_some_and(|it| it.running.is_some()) && !it.ready && it.started != Some(true)
        };
        let mut init = init.filter(runs);
        match init.next() {
            Some(init) => TroubleKind::Initializing(truncate(&init.name, MAX_WHY)),
            None => {
                let waits = |it: &&&core::ContainerStatus| {
                    it.state.as_ref().is_none_or(|state| state.waiting.is_some())
                };
                let container = reported.iter().find(waits)?;
                TroubleKind::NotStarted { container: truncate(&container.name, MAX_WHY), node }
            }
        }
    };
    Some(Trouble { kind, since, over_at: None })
}

fn message(text: Option<&str>) -> String {
    truncate(text.unwrap_or_default().trim(), MAX_WHY)
}

#[cfg(test)]
mod tests;
