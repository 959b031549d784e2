//! Moves of kubelets and pods.

use gamekeeper_core::observed::PodPhase;

use super::scope::Scope;
use super::state::*;

/// A change of a pod by its kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kubelet {
    /// The first container runs, but the pod stays Pending because another container waits for its image.
    Begin,
    /// All containers run.
    Start,
    /// The kubelet observes the newest spec, and updates status.observedGeneration.
    Observe,
    /// A container (by its index) restarts with the image of the spec.
    Restart(usize),
    /// The condition Ready follows the containers and the gate.
    FollowReady,
    /// The containers become ready again.
    Recover,
    /// The containers run again after a crash.
    ComeUp,
    Remove,
    /// The containers crash, and wait to be restarted.
    Crash,
    /// The containers become unready.
    Break,
    /// The pod fails.
    Fail,
    /// The kubelet reports for the first time after its node was silent.
    Report,
}

impl Kubelet {
    pub fn is_breakage(self) -> bool {
        matches!(self, Kubelet::Crash | Kubelet::Break | Kubelet::Fail)
    }
}

fn should_be_ready(pod: &Pod) -> bool {
    pod.healthy && matches!(pod.gate, Gate::Absent | Gate::Open)
}

/// The changes that are possible for a pod.
pub fn moves(scope: &Scope, state: &State, pod: &Pod) -> Vec<Kubelet> {
    // The kubelet removes the pod or, if the node is lost, the pod garbage collector does.
    if pod.terminating {
        return vec![Kubelet::Remove];
    }
    if pod.unreported {
        return match state.node.is_silent() {
            true => Vec::new(),
            false => vec![Kubelet::Report],
        };
    }
    let mut moves = Vec::new();
    match pod.phase {
        PodPhase::Pending => {
            moves.push(Kubelet::Start);
            if scope.late_sidecars && !pod.up {
                moves.push(Kubelet::Begin);
            }
        }
        PodPhase::Running if !pod.up => {
            moves.push(Kubelet::ComeUp);
            if !pod.observed {
                moves.push(Kubelet::Observe);
            }
        }
        PodPhase::Running => {
            if !pod.observed {
                moves.push(Kubelet::Observe);
            } else {
                let containers = pod.containers.iter().enumerate();
                let is_old = |it: &Container| it.runs != it.image;
                let old = containers.filter(|(_, it)| it.as_ref().is_some_and(is_old));
                moves.extend(old.map(|(index, _)| Kubelet::Restart(index)));
            }
            if should_be_ready(pod) != pod.ready.is_some() {
                moves.push(Kubelet::FollowReady);
            }
            if !pod.healthy && may_be_healthy(scope, pod) {
                moves.push(Kubelet::Recover);
            }
            if state.remaining.breaks > 0 && pod.healthy {
                moves.extend([Kubelet::Break, Kubelet::Fail]);
                if scope.container_crashes {
                    moves.push(Kubelet::Crash);
                }
            }
        }
        _ => {}
    }
    moves
}

/// Makes a change.
pub fn act(scope: &Scope, pods: &mut Vec<Pod>, uid: Uid, change: Kubelet, now: Time) {
    if change == Kubelet::Remove {
        pods.retain(|pod| pod.uid != uid);
        return;
    }
    let Some(pod) = pods.iter_mut().find(|pod| pod.uid == uid) else {
        return;
    };
    match change {
        Kubelet::Begin => {
            pod.observed = true;
            for container in pod.containers.iter_mut().flatten() {
                container.runs = container.image;
            }
            pod.up = true;
        }
        Kubelet::Start => {
            pod.phase = PodPhase::Running;
            pod.observed = true;
            start(scope, pod);
            pod.ready = should_be_ready(pod).then_some(now);
        }
        Kubelet::ComeUp => {
            pod.observed = true;
            for container in pod.containers.iter_mut().flatten() {
                container.restarts += 1;
            }
            start(scope, pod);
            pod.ready = should_be_ready(pod).then_some(now);
        }
        Kubelet::Crash => {
            pod.up = false;
            pod.healthy = false;
            pod.ready = None;
        }
        Kubelet::Observe => pod.observed = true,
        Kubelet::Restart(index) => {
            if let Some(container) = &mut pod.containers[index] {
                let is_restarted = !pod.hot || (scope.hot_patch_restarts && pod.on_node);
                container.restarts += u8::from(is_restarted);
                container.runs = container.image;
            }
            pod.healthy = may_be_healthy(scope, pod);
            pod.ready = pod.ready.filter(|_| pod.healthy);
        }
        Kubelet::FollowReady => pod.ready = should_be_ready(pod).then_some(now),
        Kubelet::Recover => pod.healthy = true,
        Kubelet::Break => {
            pod.healthy = false;
            pod.ready = None;
        }
        Kubelet::Fail => {
            pod.phase = PodPhase::Failed;
            pod.up = false;
            pod.healthy = false;
            pod.ready = None;
        }
        Kubelet::Report => {
            pod.unreported = false;
            pod.ready = should_be_ready(pod).then_some(now);
        }
        Kubelet::Remove => {}
    }
}

fn start(scope: &Scope, pod: &mut Pod) {
    pod.up = true;
    for container in pod.containers.iter_mut().flatten() {
        container.runs = container.image;
    }
    pod.healthy = may_be_healthy(scope, pod);
}

fn may_be_healthy(scope: &Scope, pod: &Pod) -> bool {
    let broken_sidecar = scope.sidecars.and_then(|it| it.broken);
    let mut containers = pod.containers.iter().enumerate();
    containers.all(|(index, container)| {
        let broken = match index {
            SIDECAR => broken_sidecar,
            _ => scope.broken,
        };
        broken.is_none() || container.map(|it| it.runs) != broken
    })
}
