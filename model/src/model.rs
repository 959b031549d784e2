//! The model: which moves there are from a state, and what each of them does.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gamekeeper::api::HookPhase;

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
    /// How many plans were made.
    pub planned: Cell<u64>,
}

/// One step of somebody. `seen_before`: the operator's cache catches up with the kind that is
/// changed right before it is changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    Kubelet(Uid, Kubelet, bool),
    /// A HookRun (by its place) ends.
    Hook(usize, HookPhase, bool),
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
            planned: Cell::default(),
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
        let lags = self.scope.lags;
        let both = |lags: bool, is_fresh: bool| match lags && !is_fresh {
            true => &[false, true][..],
            false => &[false][..],
        };
        let before = both(lags.pods, state.pods.seen == Seen::Now);
        for pod in state.pods.now.iter() {
            for what in kubelet::moves(&self.scope, state, pod) {
                moves.extend(
                    before
                        .iter()
                        .map(|seen| Move::Kubelet(pod.uid, what, *seen)),
                );
            }
        }
        let before = both(lags.runs, state.runs.seen == Seen::Now);
        for (place, run) in state.runs.now.iter().enumerate() {
            if run.phase.is_completed() {
                continue;
            }
            let end = |phase| move |seen: &bool| Move::Hook(place, phase, *seen);
            moves.extend(before.iter().map(end(HookPhase::Successful)));
            if state.left.failures > 0 {
                moves.extend(before.iter().map(end(HookPhase::Failed)));
            }
        }
        if state.left.user > 0 {
            let workload = both(lags.workload, state.workload.seen == Seen::Now);
            let pods = both(lags.pods, state.pods.seen == Seen::Now);
            for what in self
                .scope
                .user
                .iter()
                .filter(|it| user::is_change(**it, state))
            {
                let before = match what {
                    User::Delete(_) => pods,
                    _ => workload,
                };
                moves.extend(before.iter().map(|seen| Move::User(*what, *seen)));
            }
        }
        if state.left.ticks > 0 {
            moves.push(Move::Tick);
        }
        moves
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
        renumber::renumber(&mut next);
        Ok(next)
    }
}
