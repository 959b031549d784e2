//! The model: which moves there are from a state, and what each of them does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gamekeeper_core::api::HookPhase;

use super::fault::Fault;
use super::kubelet::Kubelet;
use super::operator::Planned;
use super::scope::{Scope, User};
use super::state::*;
use super::translate::Translator;
use super::{judge, kubelet, renumber, user};

/// A scope with the real planner in it.
pub struct Model {
    pub scope: Scope,
    pub translator: Translator,
    pub fault: Option<Fault>,
    /// Plans by what they were made from.
    pub plans: RefCell<HashMap<u128, Rc<Planned>>>,
}

/// One step of somebody. `seen_before`: the operator's cache catches up with the kind that is
/// changed right before it is changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    Kubelet(Uid, Kubelet, bool),
    /// A HookRun (by its place) ends.
    Hook(usize, HookPhase, bool),
    /// A HookRun ends well, by a clock that is ahead.
    HookAhead(usize),
    User(User, bool),
    Tick,
    /// The operator plans, after some caches (workload, pods, runs, revisions) have caught up.
    Plan([bool; 4]),
    /// The operator makes one of the writes whose turn it is.
    Write(usize),
    WriteStatus,
    /// The operator gives a plan up, because the quorum GET shows a newer generation.
    GiveUp,
    /// The operator's process ends, and another one becomes the leader.
    Crash,
}

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What must always hold.
    pub rule: &'static str,
    /// What happened.
    pub why: String,
}

impl Model {
    pub fn new(scope: Scope) -> Self {
        Self {
            translator: Translator::new(&scope),
            scope,
            fault: None,
            plans: RefCell::default(),
        }
    }

    /// Puts a bug in.
    pub fn break_with(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.plans.borrow_mut().clear();
    }

    /// What may happen next.
    pub fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        self.moves_of_operator(state, &mut moves);
        let seen = caught_up_before(self.scope.lags.pods, &state.pods);
        for pod in state.pods.now.iter() {
            for what in kubelet::moves(&self.scope, state, pod) {
                moves.extend(seen.iter().map(|seen| Move::Kubelet(pod.uid, what, *seen)));
            }
        }
        self.moves_of_hooks(state, &mut moves);
        if state.left.user > 0 {
            self.moves_of_user(state, &mut moves);
        }
        if state.left.ticks > 0 {
            moves.push(Move::Tick);
        }
        moves
    }

    fn moves_of_hooks(&self, state: &State, moves: &mut Vec<Move>) {
        let ends = match state.left.failures {
            0 => &[HookPhase::Successful][..],
            _ => &[HookPhase::Successful, HookPhase::Failed],
        };
        let runs = state.runs.now.iter().enumerate();
        for (place, _) in runs.filter(|(_, run)| !run.phase.is_completed()) {
            for seen in caught_up_before(self.scope.lags.runs, &state.runs) {
                moves.extend(ends.iter().map(|phase| Move::Hook(place, *phase, *seen)));
            }
            if self.scope.ahead > 0 && state.left.failures > 0 {
                moves.push(Move::HookAhead(place));
            }
        }
    }

    fn moves_of_user(&self, state: &State, moves: &mut Vec<Move>) {
        let lags = self.scope.lags;
        let changes = self.scope.user.iter();
        for what in changes.filter(|it| user::is_change(**it, state)) {
            let seen = match what {
                User::Delete(_) => caught_up_before(lags.pods, &state.pods),
                _ => caught_up_before(lags.workload, &state.workload),
            };
            moves.extend(seen.iter().map(|seen| Move::User(*what, *seen)));
        }
    }

    /// Makes a move.
    pub fn step(&self, state: &State, what: &Move) -> Result<State, Broken> {
        let mut next = state.clone();
        let lags = self.scope.lags;
        match what {
            Move::Kubelet(uid, what, seen_before) => {
                next.left.breaks -= u8::from(what.is_breakage());
                let now = next.clock;
                let pods = next.pods.change(lags.pods, *seen_before);
                kubelet::act(&self.scope, pods, *uid, *what, now);
            }
            Move::Hook(place, phase, seen_before) => {
                next.left.failures -= u8::from(*phase == HookPhase::Failed);
                let run = &mut next.runs.change(lags.runs, *seen_before)[*place];
                run.phase = *phase;
                run.finished = next.clock;
            }
            Move::HookAhead(place) => {
                next.left.failures -= 1;
                let run = &mut next.runs.change(lags.runs, false)[*place];
                run.phase = HookPhase::Successful;
                run.finished = next.clock + self.scope.ahead;
            }
            Move::User(what, seen_before) => {
                next.left.user -= 1;
                user::act(self, &mut next, *what, *seen_before);
            }
            Move::Tick => {
                next.left.ticks -= 1;
                next.clock += self.scope.ticks[usize::from(next.left.ticks)];
            }
            Move::Plan(caught_up) => self.begin_sync(&mut next, *caught_up)?,
            Move::Write(place) => self.make_write(&mut next, *place)?,
            Move::WriteStatus => self.write_status(&mut next)?,
            Move::GiveUp => next.operator.sync = None,
            Move::Crash => {
                next.left.crashes -= 1;
                self.crash(&mut next);
            }
        }
        judge::state(&next)?;
        next.workload.tidy();
        next.pods.tidy();
        next.runs.tidy();
        next.revisions.tidy();
        renumber::renumber(&mut next, self.scope.set.is_some());
        Ok(next)
    }
}

/// Whether the operator's cache may catch up right before a change of a kind, or may not.
fn caught_up_before<T: PartialEq>(lags: bool, kind: &Kind<T>) -> &'static [bool] {
    match lags && kind.seen != Seen::Now {
        true => &[false, true],
        false => &[false],
    }
}
