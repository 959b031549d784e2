//! The operator: plans from its caches, and carries out the plan write by write.

use std::rc::Rc;

use gamekeeper_core::api::{
    GameDeployment, GameDeploymentStatus, GameStatefulSet, PodManagementPolicy,
};
use gamekeeper_core::workload;
use gamekeeper_core::workload::World;
use gamekeeper_core::write;
use gamekeeper_core::write::{DeletionReason, Phase, Plan, Proof};

use super::fault::Fault;
use super::fingerprint::fingerprint;
use super::model::{Model, Move, Violation};
use super::state::*;
use super::translate::{View, as_stateful_set, wake_time};
use super::{judge, pauses, sidecars, writes};

/// The interval at which the operator checks whether the guard is in force.
const GUARD_CHECK_INTERVAL: Time = 30;

/// A plan in the model's terms.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    pub before: Vec<Write>,
    /// The status, if it must be written first.
    pub status: Option<super::state::Status>,
    /// The waiting pods in that status.
    pub waits: Vec<(Uid, Time)>,
    pub after: Vec<Write>,
    /// Whether a quorum GET comes before `after`.
    pub get_first: bool,
    /// When to plan again even if nothing changes.
    pub wake: Option<Time>,
}

impl Planned {
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty() && self.status.is_none()
    }
}

impl Model {
    /// What the operator's caches show; None if one of them is too old.
    pub fn view(&self, state: &State) -> Option<View> {
        let sidecar_set = **state.sidecar_set.view()?;
        // Templates that the API server has accepted with other sidecars do not count.
        let has_same_sidecars = state.operator.accepted_with == sidecar_set.revision();
        Some(View {
            now: state.clock,
            workload: state.workload.view()?.clone(),
            pods: state.pods.view()?.clone(),
            runs: state.runs.view()?.clone(),
            revisions: state.revisions.view()?.clone(),
            sidecar_set,
            accepted: match has_same_sidecars {
                true => state.operator.accepted,
                false => 0,
            },
            refused: state.operator.refused,
            budget: state.operator.budget,
            denied: state.operator.denied,
            node: state.node,
        })
    }

    /// The plan for a view. Plans are cached.
    pub fn plan(&self, view: &View) -> Rc<Planned> {
        let key = fingerprint(view);
        if let Some(planned) = self.plans.borrow().get(&key) {
            return planned.clone();
        }
        let planned = Rc::new(self.make_plan(view));
        self.plans.borrow_mut().insert(key, planned.clone());
        planned
    }

    /// What the planner decides. Of the status, only what decisions depend on: the rest would only multiply the states.
    pub fn decide(
        &self,
        gd: &GameDeployment,
        workload: &Workload,
        world: World,
    ) -> Plan<GameDeploymentStatus> {
        without_explanations(self.explain(gd, workload, world), gd)
    }

    /// Calls the planner, with the planted bug if there is one.
    pub fn explain(
        &self,
        gd: &GameDeployment,
        workload: &Workload,
        mut world: World,
    ) -> Plan<GameDeploymentStatus> {
        let plan = |gd: &GameDeployment, world: &World| match self.scope.stateful_set {
            Some(policy) => {
                let reserved = self.reserved(workload);
                let stateful_set = as_stateful_set(gd, self.policy(policy), &reserved);
                plan_for_stateful_set(&stateful_set, gd, world)
            }
            None => workload::game_deployment::plan(gd, world).expect("a plan"),
        };
        let Some(fault) = self.fault else {
            return plan(gd, &world);
        };
        let mut gd = gd.clone();
        fault.corrupt_world(&mut gd, &mut world);
        let mut planned = plan(&gd, &world);
        fault.corrupt_plan(&mut planned, &world);
        if fault == Fault::SidecarsAtSteps && planned.writes.is_empty() {
            gd.spec.update_strategy.canary = None;
            Fault::add_sidecars(&mut planned, plan(&gd, &world));
        }
        planned
    }

    fn policy(&self, policy: PodManagementPolicy) -> PodManagementPolicy {
        match self.fault {
            Some(Fault::OrderIgnored) => PodManagementPolicy::Parallel,
            _ => policy,
        }
    }

    fn reserved(&self, workload: &Workload) -> Vec<i32> {
        match self.fault {
            Some(Fault::ReservationIgnored) => Vec::new(),
            _ => (0..8).filter(|ordinal| workload.is_reserved(*ordinal)).map(i32::from).collect(),
        }
    }

    fn make_plan(&self, view: &View) -> Planned {
        if view.workload.guard.deleted {
            return Planned::default();
        }
        let gd = self.translator.workload(&view.workload, &view.pods);
        let plan = self.decide(&gd, &view.workload, self.translator.world(view));
        let mut planned = Planned {
            get_first: plan.writes.iter().any(needs_get) && self.fault != Some(Fault::NoQuorumGet),
            // A wake-up for the next check of the guard is left out: in the model, the guard is always in force.
            wake: plan.wake.map(wake_time).filter(|at| *at < view.now + GUARD_CHECK_INTERVAL),
            ..Planned::default()
        };
        for real in &plan.writes {
            let mut write = self.translator.write(real.change(), view);
            if let Some(fault) = self.fault {
                fault.corrupt_write(&mut write);
            }
            match real.phase() {
                Phase::Before => planned.before.push(write),
                Phase::After => planned.after.push(write),
            }
        }
        let status = plan.status.filter(|_| plan.status_first);
        if let Some(status) = status {
            planned.waits = self.translator.waits_of(&status, view);
            planned.status = Some(self.translator.status_id(&status));
        }
        planned
    }

    /// The operator's moves.
    pub fn moves_of_operator(&self, state: &State, moves: &mut Vec<Move>) {
        let Some(reconcile) = &state.operator.reconcile else {
            self.moves_of_planning(state, moves);
            return;
        };
        if !reconcile.before.is_empty() {
            moves.extend((0..reconcile.before.len()).map(Move::Write));
        } else if reconcile.status.is_some() && self.fault != Some(Fault::StatusLast) {
            moves.push(Move::WriteStatus);
        } else if !reconcile.after.is_empty() {
            moves.extend((0..reconcile.after.len()).map(Move::Write));
            // The model sends the GET together with the write before it. `Abandon` stands for a GET that is sent later.
            if !reconcile.begun && state.workload.now.generation != reconcile.planned.generation {
                moves.push(Move::Abandon);
            }
        } else {
            moves.push(Move::WriteStatus);
        }
        if state.remaining.crashes > 0 {
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
        // To find the bug LeaderDoesNotWait, it is enough if the caches of later leaders lag.
        let is_first_leader = state.remaining.crashes == self.scope.remaining.crashes;
        let may_lag = self.fault != Some(Fault::LeaderDoesNotWait) || !is_first_leader;
        for workload in choices(&state.workload, may_lag) {
            for pods in choices(&state.pods, may_lag) {
                for runs in choices(&state.runs, may_lag) {
                    for revisions in choices(&state.revisions, may_lag) {
                        let caught_up = [*workload, *pods, *runs, *revisions];
                        let mut next = state.clone();
                        self.catch_up(&mut next, caught_up);
                        let view = self.view(&next).expect("caught up");
                        if !self.plan(&view).is_empty() {
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

    pub fn begin_reconcile(
        &self,
        state: &mut State,
        caught_up: [bool; 4],
    ) -> Result<(), Violation> {
        self.catch_up(state, caught_up);
        let view = self.view(state).expect("caught up");
        let planned = self.plan(&view);
        state.operator.accepted = view.accepted;
        state.operator.accepted_with = view.sidecar_set.revision();
        // A refusal is shown for as long as plans contain a write of the same kind.
        let has_deletion = |is_one: &dyn Fn(DeletionReason) -> bool| {
            let mut writes = planned.before.iter().chain(&planned.after);
            writes.any(|it| matches!(it, Write::DeletePod(_, reason, _) if is_one(*reason)))
        };
        let denied = &mut state.operator.denied;
        denied.updates &= has_deletion(&|it| it == DeletionReason::Update);
        denied.removals &= has_deletion(&|it| it != DeletionReason::Update);
        judge::plan(self, &view, &planned)?;
        pauses::record_held_pods(self, state, &view);
        let bits = |predicate: &dyn Fn(&Pod) -> bool| {
            let pods = view.pods.iter().filter(|pod| predicate(pod));
            pods.fold(0, |all, pod| all | 1 << pod.uid)
        };
        let reconcile = Reconcile {
            before: planned.before.clone(),
            status: planned.status,
            waits: planned.waits.clone(),
            after: planned.after.clone(),
            begun: false,
            get_first: planned.get_first,
            planned: view.workload.clone(),
            judged: None,
            at: state.clock,
            seen_available: bits(&|pod| judge::is_available(self, pod, view.now)),
            seen_ready: bits(&judge::is_ready),
            touched: 0,
            seen_ordinals: match self.scope.reserves() {
                true => view.pods.iter().fold(0, |all, pod| all | 1 << pod.name),
                false => 0,
            },
        };
        self.advance(state, reconcile)
    }

    /// Sends the quorum GET when it is due, and ends the reconcile when nothing is left to do.
    fn advance(&self, state: &mut State, mut reconcile: Reconcile) -> Result<(), Violation> {
        let is_status_due = reconcile.status.is_some() && self.fault != Some(Fault::StatusLast);
        if reconcile.before.is_empty() && !is_status_due && reconcile.judged.is_none() {
            reconcile.judged = Some(state.workload.now.clone());
            if reconcile.get_first && state.workload.now.generation != reconcile.planned.generation
            {
                reconcile.after.clear();
            }
            judge::deletions(self, state, &reconcile)?;
        }
        let is_over =
            reconcile.before.is_empty() && reconcile.after.is_empty() && reconcile.status.is_none();
        state.operator.reconcile = (!is_over).then(|| Rc::new(reconcile));
        Ok(())
    }

    pub fn make_write(&self, state: &mut State, index: usize) -> Result<(), Violation> {
        let Some(reconcile) = state.operator.reconcile.take() else {
            return Ok(());
        };
        let mut reconcile = Rc::unwrap_or_clone(reconcile);
        let is_before = !reconcile.before.is_empty();
        let write = if is_before {
            reconcile.before.remove(index)
        } else {
            reconcile.begun = true;
            reconcile.after.remove(index)
        };
        let takes_effect = writes::takes_effect(state, &reconcile, &write);
        if let Write::DeletePod(_, reason, _) = write {
            state.operator.denied.record(reason, !takes_effect && state.denied);
        }
        if takes_effect {
            judge::write(self, state, &reconcile, &write)?;
            let before = state.clone();
            writes::apply(self, state, &reconcile, &write);
            let unseen = [Fault::OwnWritesUnseen, Fault::LeaderDoesNotWait];
            if self.fault.is_some_and(|fault| unseen.contains(&fault)) {
                forget_own_writes(state, &before);
            }
            reconcile.touch(&write);
            reconcile.after.extend(follow_up(state, &write));
        }
        let changes_workload = takes_effect && matches!(write, Write::Workload(_));
        let is_newer =
            changes_workload && state.workload.now.generation != reconcile.planned.generation;
        if changes_workload {
            reconcile.planned = state.workload.now.clone();
        }
        if is_newer || (is_before && !takes_effect) {
            reconcile.status = None;
            reconcile.after.clear();
        }
        self.advance(state, reconcile)
    }

    pub fn write_status(&self, state: &mut State) -> Result<(), Violation> {
        let Some(reconcile) = state.operator.reconcile.take() else {
            return Ok(());
        };
        let mut reconcile = Rc::unwrap_or_clone(reconcile);
        let Some(status) = reconcile.status.take() else {
            return Ok(());
        };
        // The workload's resourceVersion is a precondition.
        if state.workload.now == reconcile.planned {
            pauses::check_status(self, state, &reconcile, status)?;
            let old = self.translator.facts(state.workload.now.status);
            let new = self.translator.facts(status);
            if pauses::enters_partition(self, &reconcile.planned, &old, &new) {
                state.memory.replicas_at_partition = reconcile.planned.replicas;
            }
            if new.is_rolling() && !old.is_same_rollout(&new) {
                state.memory.rollout_since = reconcile.planned.generation;
            }
            let workload = state.workload.write(self.scope.lags.workload);
            workload.status = status;
            workload.waits.clone_from(&reconcile.waits);
            state.memory.lost = 0;
            reconcile.planned = state.workload.now.clone();
        } else {
            reconcile.after.clear();
        }
        self.advance(state, reconcile)
    }

    /// The process ends. The next leader has no memory, and waits until its caches show the current state.
    pub fn crash(&self, state: &mut State) {
        state.operator = Operator::default();
        sidecars::restart(state);
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

/// Whether a quorum GET of the workload comes before the writes that follow the status.
fn needs_get(write: &write::Write) -> bool {
    write.phase() == Phase::After && write.proof() != Proof::None
}

/// The plan for the equivalent GameStatefulSet. Status fields that only GameStatefulSets have are not part of the
/// model.
fn plan_for_stateful_set(
    stateful_set: &GameStatefulSet,
    gd: &GameDeployment,
    world: &World,
) -> Plan<GameDeploymentStatus> {
    let plan = workload::game_stateful_set::plan(stateful_set, world).expect("a plan");
    let status = plan.status.map(|status| status.workload);
    Plan {
        status: status.filter(|status| Some(status) != gd.status.as_ref()),
        writes: plan.writes,
        status_first: plan.status_first,
        wake: plan.wake,
        events: plan.events,
    }
}

/// The plan without those fields of the status that no decision depends on.
fn without_explanations(
    mut plan: Plan<GameDeploymentStatus>,
    gd: &GameDeployment,
) -> Plan<GameDeploymentStatus> {
    if let Some(status) = &mut plan.status {
        status.causes.clear();
        status.earlier_stable_revisions.clear();
    }
    plan.status = plan.status.filter(|status| Some(status) != gd.status.as_ref());
    plan
}

/// Leaves the caches as if the operator did not wait for its own writes.
fn forget_own_writes(state: &mut State, before: &State) {
    if state.pods.seen == Seen::TooOld {
        state.pods.seen = Seen::Before(before.pods.now.clone());
    }
    if state.runs.seen == Seen::TooOld {
        state.runs.seen = Seen::Before(before.runs.now.clone());
    }
}

/// The write that follows another write without a new plan: the patch of a pod after its gate is closed. (The real
/// operator also opens the gate of a new pod without a new plan. The model leaves that to the next plan.)
fn follow_up(state: &State, write: &Write) -> Option<Write> {
    let Write::CloseGate(uid, _, Some(patch), _) = write else {
        return None;
    };
    let mut patch = patch.clone();
    let pod = state.pod(*uid)?;
    if let Gate::Closed(since) = pod.gate {
        patch.record.closed_at = Some(since);
    }
    // The pod was unchanged when the gate was closed. The patch requires that it still is.
    if patch.unchanged != Unchanged::Any {
        patch.unchanged = Unchanged::Since(Rc::new(pod.clone()));
    }
    Some(Write::Patch(patch))
}
