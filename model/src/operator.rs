//! The operator: it plans on what its caches show, and carries the plan out write by write.

use std::rc::Rc;

use gamekeeper_core::api::{GameDeployment, GameDeploymentStatus, PodManagementPolicy};
use gamekeeper_core::plan::{self, Phase, Plan, World};

use super::fault::Fault;
use super::fingerprint::fingerprint;
use super::model::{Broken, Model, Move};
use super::state::*;
use super::translate::{View, as_set, wake_time};
use super::writes;
use super::{judge, pauses};

/// A plan in the model's terms.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    pub before: Vec<Write>,
    /// The status, when it must be written first.
    pub status: Option<super::state::Status>,
    pub after: Vec<Write>,
    /// Whether a quorum GET comes before `after`.
    pub get_first: bool,
    /// When to plan again though nothing changes.
    pub wake: Option<Time>,
}

impl Planned {
    pub fn is_nothing(&self) -> bool {
        self.before.is_empty() && self.after.is_empty() && self.status.is_none()
    }
}

impl Model {
    /// What the operator's caches show; None while one of them is too old.
    pub fn view(&self, state: &State) -> Option<View> {
        Some(View {
            now: state.clock,
            workload: state.workload.view()?.clone(),
            pods: state.pods.view()?.clone(),
            runs: state.runs.view()?.clone(),
            revisions: state.revisions.view()?.clone(),
            accepted: state.operator.accepted,
            refused: state.operator.refused,
        })
    }

    /// The plan for a view. Each is made once.
    pub fn plan(&self, view: &View) -> Rc<Planned> {
        let key = fingerprint(view);
        if let Some(planned) = self.plans.borrow().get(&key) {
            return planned.clone();
        }
        let planned = Rc::new(self.ask(view));
        self.plans.borrow_mut().insert(key, planned.clone());
        planned
    }

    /// The planner's answer, bent by the bug that was put in.
    pub fn decide(&self, gd: &GameDeployment, mut world: World) -> Plan<GameDeploymentStatus> {
        let plan = |gd: &GameDeployment, world: &World| match self.scope.set {
            Some(policy) => plan_for_set(gd, self.policy(policy), world),
            None => plan::game_deployment::plan(gd, world).expect("a plan"),
        };
        let Some(fault) = self.fault else {
            return plan(gd, &world);
        };
        let mut gd = gd.clone();
        fault.bend_sight(&mut gd, &mut world);
        let mut plan = plan(&gd, &world);
        fault.bend_plan(&mut plan, &world);
        plan
    }

    fn policy(&self, policy: PodManagementPolicy) -> PodManagementPolicy {
        match self.fault {
            Some(Fault::OrderIgnored) => PodManagementPolicy::Parallel,
            _ => policy,
        }
    }

    fn ask(&self, view: &View) -> Planned {
        let gd = self.translator.workload(&view.workload);
        let plan = self.decide(&gd, self.translator.world(view));
        let mut planned = Planned {
            get_first: plan.actions.iter().any(plan::Action::is_irrevocable)
                && self.fault != Some(Fault::NoQuorumGet),
            wake: plan.wake.map(wake_time),
            ..Planned::default()
        };
        for action in &plan.actions {
            let write = self.translator.write(action, view);
            match action.phase() {
                Phase::Before => planned.before.push(write),
                Phase::After => planned.after.push(write),
            }
        }
        let status = plan.status.filter(|_| plan.status_first);
        planned.status = status.map(|status| self.translator.status_place(&status));
        planned
    }

    /// The operator's moves.
    pub fn moves_of_operator(&self, state: &State, moves: &mut Vec<Move>) {
        let Some(sync) = &state.operator.sync else {
            self.moves_of_planning(state, moves);
            return;
        };
        if !sync.before.is_empty() {
            moves.extend((0..sync.before.len()).map(Move::Write));
        } else if sync.status.is_some() && self.fault != Some(Fault::StatusLast) {
            moves.push(Move::WriteStatus);
        } else if !sync.after.is_empty() {
            moves.extend((0..sync.after.len()).map(Move::Write));
            // The GET is taken together with what came before it: it may also have come later.
            if !sync.begun && state.workload.now.generation != sync.planned.generation {
                moves.push(Move::GiveUp);
            }
        } else {
            moves.push(Move::WriteStatus);
        }
        if state.left.crashes > 0 {
            moves.push(Move::Crash);
        }
    }

    fn moves_of_planning(&self, state: &State, moves: &mut Vec<Move>) {
        fn choices<T>(kind: &Kind<T>, may_lag: bool) -> &'static [bool] {
            match kind.seen {
                Seen::Before(_) if may_lag => &[true, false],
                _ => &[true],
            }
        }
        let is_first_leader = state.left.crashes == self.scope.left.crashes;
        let may_lag = self.fault != Some(Fault::LeaderDoesNotWait) || !is_first_leader;
        for workload in choices(&state.workload, may_lag) {
            for pods in choices(&state.pods, may_lag) {
                for runs in choices(&state.runs, may_lag) {
                    for revisions in choices(&state.revisions, may_lag) {
                        let caught_up = [*workload, *pods, *runs, *revisions];
                        let mut next = state.clone();
                        self.catch_up(&mut next, caught_up);
                        let view = self.view(&next).expect("caught up");
                        if !self.plan(&view).is_nothing() {
                            moves.push(Move::Plan(caught_up));
                        }
                    }
                }
            }
        }
    }

    pub fn catch_up(&self, state: &mut State, wanted: [bool; 4]) {
        state.workload.catch_up(wanted[0]);
        state.pods.catch_up(wanted[1]);
        state.runs.catch_up(wanted[2]);
        state.revisions.catch_up(wanted[3]);
    }

    pub fn begin_sync(&self, state: &mut State, caught_up: [bool; 4]) -> Result<(), Broken> {
        self.catch_up(state, caught_up);
        let view = self.view(state).expect("caught up");
        let planned = self.plan(&view);
        judge::plan(&view, &planned)?;
        pauses::hold(self, state, &view);
        let bits = |is: &dyn Fn(&Pod) -> bool| {
            let pods = view.pods.iter().filter(|pod| is(pod));
            pods.fold(0, |all, pod| all | 1 << pod.uid)
        };
        let sync = Sync {
            before: planned.before.clone(),
            status: planned.status,
            after: planned.after.clone(),
            begun: false,
            get_first: planned.get_first,
            planned: view.workload.clone(),
            judged: None,
            at: state.clock,
            seen_available: bits(&|pod| judge::is_available(self, pod, view.now)),
            seen_ready: bits(&judge::is_ready),
            touched: 0,
        };
        self.go_on(state, sync)
    }

    /// Takes the GET when its turn has come, and ends the sync when nothing is left.
    fn go_on(&self, state: &mut State, mut sync: Sync) -> Result<(), Broken> {
        let is_status_due = sync.status.is_some() && self.fault != Some(Fault::StatusLast);
        if sync.before.is_empty() && !is_status_due && sync.judged.is_none() {
            sync.judged = Some(state.workload.now.clone());
            if sync.get_first && state.workload.now.generation != sync.planned.generation {
                sync.after.clear();
            }
            judge::deletions(self, state, &sync)?;
        }
        let is_over = sync.before.is_empty() && sync.after.is_empty() && sync.status.is_none();
        state.operator.sync = (!is_over).then(|| Rc::new(sync));
        Ok(())
    }

    pub fn make_write(&self, state: &mut State, place: usize) -> Result<(), Broken> {
        let Some(sync) = state.operator.sync.take() else {
            return Ok(());
        };
        let mut sync = Rc::unwrap_or_clone(sync);
        let is_before = !sync.before.is_empty();
        let write = if is_before {
            sync.before.remove(place)
        } else {
            sync.begun = true;
            sync.after.remove(place)
        };
        let takes_effect = writes::takes_effect(state, &sync, &write);
        if takes_effect {
            judge::write(self, state, &sync, &write)?;
            let before = state.clone();
            writes::make(self, state, &sync, &write);
            let unseen = [Fault::OwnWritesUnseen, Fault::LeaderDoesNotWait];
            if self.fault.is_some_and(|fault| unseen.contains(&fault)) {
                forget_own_writes(state, &before);
            }
            sync.touch(&write);
            sync.after.extend(sequel(state, &write));
        }
        let is_own_patch = takes_effect && matches!(write, Write::Workload(_));
        let is_newer = is_own_patch && state.workload.now.generation != sync.planned.generation;
        if is_own_patch {
            sync.planned = state.workload.now.clone();
        }
        if is_newer || (is_before && !takes_effect) {
            sync.status = None;
            sync.after.clear();
        }
        self.go_on(state, sync)
    }

    pub fn write_status(&self, state: &mut State) -> Result<(), Broken> {
        let Some(sync) = state.operator.sync.take() else {
            return Ok(());
        };
        let mut sync = Rc::unwrap_or_clone(sync);
        let Some(status) = sync.status.take() else {
            return Ok(());
        };
        // Its resourceVersion is a precondition.
        if state.workload.now == sync.planned {
            pauses::status(self, state, &sync, status)?;
            let old = self.translator.facts(state.workload.now.status);
            let new = self.translator.facts(status);
            if pauses::enters_partition(self, &sync.planned, &old, &new) {
                state.memory.replicas_at_partition = sync.planned.replicas;
            }
            if new.is_rolling() && !old.is_one_rollout(&new) {
                state.memory.rollout_since = sync.planned.generation;
            }
            state.workload.write(self.scope.lags.workload).status = status;
            state.memory.lost = 0;
            sync.planned = state.workload.now.clone();
        } else {
            sync.after.clear();
        }
        self.go_on(state, sync)
    }

    /// The process ends; the next leader remembers nothing, and waits until its caches have seen
    /// what is there now.
    pub fn crash(&self, state: &mut State) {
        state.operator = Operator::default();
        if self.fault == Some(Fault::LeaderDoesNotWait) {
            return;
        }
        let lags = self.scope.lags;
        state.workload.forget(lags.workload);
        state.pods.forget(lags.pods);
        state.runs.forget(lags.runs);
        state.revisions.forget(lags.revisions);
    }
}

/// The plan for a GameStatefulSet that says the same. What only such a one shows is not part of the
/// model.
fn plan_for_set(
    gd: &GameDeployment,
    policy: PodManagementPolicy,
    world: &World,
) -> Plan<GameDeploymentStatus> {
    let set = as_set(gd, policy);
    let plan = plan::game_stateful_set::plan(&set, world).expect("a plan");
    let status = plan.status.map(|status| status.workload);
    Plan {
        status: status.filter(|status| Some(status) != gd.status.as_ref()),
        actions: plan.actions,
        status_first: plan.status_first,
        wake: plan.wake,
        events: plan.events,
    }
}

/// Leaves the caches as if the operator had not written.
fn forget_own_writes(state: &mut State, before: &State) {
    if state.pods.seen == Seen::TooOld {
        state.pods.seen = Seen::Before(before.pods.now.clone());
    }
    if state.runs.seen == Seen::TooOld {
        state.runs.seen = Seen::Before(before.runs.now.clone());
    }
}

/// What follows a write at once: the change, once the gate is closed. (That the gate of a new pod is
/// opened at once is no more than the next plan would do.)
fn sequel(state: &State, write: &Write) -> Option<Write> {
    let Write::CloseGate(uid, _, Some(patch), _) = write else {
        return None;
    };
    let mut patch = patch.clone();
    let pod = state.pod(*uid)?;
    if let Gate::Closed(since) = pod.gate {
        patch.record.closed_at = Some(since);
    }
    // What closed the gate found the pod unchanged; nothing may have happened since.
    patch.unchanged = patch.unchanged.map(|_| Rc::new(pod.clone()));
    Some(Write::Patch(patch))
}
