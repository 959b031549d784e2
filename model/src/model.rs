//! The model: the moves that are possible from a state, and the effect of each.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gamekeeper_core::api::HookPhase;

use super::fault::Fault;
use super::kubelet::Kubelet;
use super::operator::Planned;
use super::scope::{Lags, Scope, User};
use super::sidecars::{self, Allotted, SidecarMove};
use super::state::*;
use super::translate::Translator;
use super::{judge, kubelet, renumber, user};

/// The real planner in a scope, and the plans that it has made.
pub struct Model {
    pub scope: Scope,
    pub translator: Translator,
    pub fault: Option<Fault>,
    /// Plans by the fingerprint of their view.
    pub plans: RefCell<HashMap<u128, Rc<Planned>>>,
    /// Plans for the SidecarSet, by the fingerprint of what its planner observes.
    pub allotted: RefCell<HashMap<u128, Rc<Allotted>>>,
}

/// A move. If the `bool` is true, the operator's cache of a kind catches up right before an object of that kind
/// changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    Kubelet(Uid, Kubelet, bool),
    /// A HookRun (by its index) ends.
    Hook(usize, HookPhase, bool),
    /// A HookRun succeeds, according to a clock that is ahead.
    HookAhead(usize),
    User(User, bool),
    Tick,
    /// The garbage collector deletes a pod whose workload is deleted in the foreground.
    Collect(Uid, bool),
    /// The garbage collector removes the owner reference of a pod whose workload is deleted with `--cascade=orphan`; if
    /// no such pod is left, it completes its part of the deletion.
    Orphan(bool),
    /// The operator plans, after some caches (workload, pods, runs, revisions) have caught up.
    Plan([bool; 4]),
    /// The operator makes one of the writes that are due (by its index).
    Write(usize),
    WriteStatus,
    /// The operator abandons a plan, because the quorum GET shows a newer generation.
    Abandon,
    Sidecars(SidecarMove),
    /// The operator's process ends, and another one becomes the leader.
    Crash,
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub rule: &'static str,
    /// Why it is violated.
    pub why: String,
}

impl Model {
    pub fn new(scope: Scope) -> Self {
        Self {
            translator: Translator::new(&scope),
            scope,
            fault: None,
            plans: RefCell::default(),
            allotted: RefCell::default(),
        }
    }

    /// Plants a bug.
    pub fn plant(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.plans.borrow_mut().clear();
        self.allotted.borrow_mut().clear();
    }

    /// The moves that are possible next.
    pub fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        self.moves_of_operator(state, &mut moves);
        sidecars::moves(self, state, &mut moves);
        let choices = caught_up_before(self.scope.lags.pods, &state.pods);
        for pod in state.pods.now.iter() {
            for change in kubelet::moves(&self.scope, state, pod) {
                moves.extend(choices.iter().map(|it| Move::Kubelet(pod.uid, change, *it)));
            }
        }
        self.moves_of_hooks(state, &mut moves);
        if state.remaining.user > 0 {
            self.moves_of_user(state, &mut moves);
        }
        if state.remaining.ticks > 0 {
            moves.push(Move::Tick);
        }
        if state.workload.now.guard.deletion == Some(Cascade::Orphan) {
            let choices = caught_up_before(self.scope.lags.pods, &state.pods);
            moves.extend(choices.iter().map(|it| Move::Orphan(*it)));
        }
        for pod in state.pods.now.iter().filter(|pod| may_collect(state, pod)) {
            moves.extend(choices.iter().map(|it| Move::Collect(pod.uid, *it)));
        }
        moves
    }

    fn moves_of_hooks(&self, state: &State, moves: &mut Vec<Move>) {
        let phases = match state.remaining.failures {
            0 => &[HookPhase::Successful][..],
            _ => &[HookPhase::Successful, HookPhase::Failed],
        };
        let runs = state.runs.now.iter().enumerate();
        for (index, _) in runs.filter(|(_, run)| !run.phase.is_completed()) {
            for caught_up in caught_up_before(self.scope.lags.runs, &state.runs) {
                moves.extend(phases.iter().map(|phase| Move::Hook(index, *phase, *caught_up)));
            }
            if self.scope.ahead > 0 && state.remaining.failures > 0 {
                moves.push(Move::HookAhead(index));
            }
        }
    }

    fn moves_of_user(&self, state: &State, moves: &mut Vec<Move>) {
        let lags = self.scope.lags;
        let changes = self.scope.user.iter();
        for change in changes.filter(|it| user::has_effect(**it, state)) {
            let choices = match change {
                User::Delete(_)
                | User::Evict(_)
                | User::Move(_)
                | User::Mark(..)
                | User::Since(..)
                | User::Release(_)
                | User::Node(_) => caught_up_before(lags.pods, &state.pods),
                User::Sidecars(_) | User::Deny(_) => &[false],
                _ => caught_up_before(lags.workload, &state.workload),
            };
            moves.extend(choices.iter().map(|it| Move::User(*change, *it)));
        }
    }

    /// Makes a move.
    pub fn step(&self, state: &State, next_move: &Move) -> Result<State, Violation> {
        let mut next = state.clone();
        let lags = self.scope.lags;
        match next_move {
            Move::Kubelet(uid, change, caught_up) => {
                next.remaining.breaks -= u8::from(change.is_breakage());
                let now = next.clock;
                let pods = next.pods.change(lags.pods, *caught_up);
                kubelet::act(&self.scope, pods, *uid, *change, now);
            }
            Move::Hook(index, phase, caught_up) => {
                next.remaining.failures -= u8::from(*phase == HookPhase::Failed);
                let run = &mut next.runs.change(lags.runs, *caught_up)[*index];
                run.phase = *phase;
                run.finished = next.clock;
            }
            Move::HookAhead(index) => {
                next.remaining.failures -= 1;
                let run = &mut next.runs.change(lags.runs, false)[*index];
                run.phase = HookPhase::Successful;
                run.finished = next.clock + self.scope.ahead;
            }
            Move::User(change, caught_up) => {
                next.remaining.user -= 1;
                judge::change_by_user(state, *change)?;
                user::act(self, &mut next, *change, *caught_up);
            }
            Move::Tick => {
                next.remaining.ticks -= 1;
                next.clock += self.scope.ticks[usize::from(next.remaining.ticks)];
            }
            Move::Collect(uid, caught_up) => {
                judge::collection(self, state, *uid)?;
                let pods = next.pods.change(lags.pods, *caught_up);
                for pod in pods.iter_mut().filter(|pod| pod.uid == *uid) {
                    pod.terminating = true;
                    pod.ready = None;
                }
            }
            Move::Orphan(caught_up) => orphan(&mut next, lags, *caught_up),
            Move::Plan(caught_up) => self.begin_reconcile(&mut next, *caught_up)?,
            Move::Write(index) => self.make_write(&mut next, *index)?,
            Move::WriteStatus => self.write_status(&mut next)?,
            Move::Abandon => next.operator.reconcile = None,
            Move::Sidecars(next_move) => self.step_of_sidecars(&mut next, *next_move)?,
            Move::Crash => {
                next.remaining.crashes -= 1;
                self.crash(&mut next);
            }
        }
        end_foreground_deletion(&mut next, lags);
        judge::state(self, &next)?;
        next.memory.all_available |= judge::are_all_available(self, &next);
        next.workload.tidy();
        next.pods.tidy();
        next.runs.tidy();
        next.revisions.tidy();
        next.sidecar_set.tidy();
        sidecars::lag(self, &mut next, &state.pods.now);
        if let Some(reconcile) = &mut next.operator.reconcile {
            reconcile.observe(&next.pods.now);
        }
        renumber::renumber(&mut next, self.scope.stateful_set.is_some());
        Ok(next)
    }
}

/// Whether the garbage collector may delete a pod because its workload is deleted in the foreground.
pub fn may_collect(state: &State, pod: &Pod) -> bool {
    state.workload.now.guard.deletion == Some(Cascade::Foreground)
        && !pod.terminating
        && !user::is_kept_by_policy(pod)
}

/// Completes a foreground deletion once the last pod is gone, if no other finalizer keeps the workload.
fn end_foreground_deletion(state: &mut State, lags: Lags) {
    let guard = state.workload.now.guard;
    let is_over = guard.deletion == Some(Cascade::Foreground)
        && !guard.finalizer
        && !guard.deleted
        && state.pods.now.is_empty();
    if is_over {
        state.workload.change(lags.workload, false).guard.deleted = true;
    }
}

/// What the garbage collector does next for `--cascade=orphan`.
fn orphan(state: &mut State, lags: Lags, caught_up: bool) {
    let pods = &state.pods.now;
    let is_owned = |pod: &Pod| !pod.orphan && !pod.terminating;
    match pods.iter().position(is_owned) {
        Some(index) => state.pods.change(lags.pods, caught_up)[index].orphan = true,
        None => {
            let workload = state.workload.change(lags.workload, caught_up);
            workload.guard.deletion = Some(Cascade::Orphaned);
            workload.guard.deleted = workload.guard.is_deletion_complete();
        }
    }
}

/// The choices for a change: whether or not the operator's cache catches up right before the change.
fn caught_up_before<T: PartialEq>(lags: bool, kind: &Kind<T>) -> &'static [bool] {
    match lags && kind.seen != Seen::Now {
        true => &[false, true],
        false => &[false],
    }
}
