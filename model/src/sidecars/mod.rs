//! A SidecarSet: its planner, which allots tokens to pods while the workload's planner acts on them, and its users.
//!
//! Both planners share a cache of the set. The set's planner sends a quorum GET of the set before it writes, so a
//! plan for an older set is discarded; in the model, the planner always plans for the current set. The planner's cache
//! of pods lags, but the planner does not plan again until that cache shows its own writes. What it reads of the
//! workload and the workload's HookRuns is current when it plans, but may have changed by the time it writes.

mod scope;
mod settled;
mod translate;
mod user;

use std::rc::Rc;

use gamekeeper_core::sidecar_set::allot;

use super::fault::Fault;
use super::fingerprint::fingerprint;
use super::judge;
use super::model::{Model, Move, Violation};
use super::state::*;

pub use self::scope::{SetChange, SidecarScope};
pub use self::settled::{check_settled, has_update_run, obstacle};
pub use self::translate::{CONTAINER, Sets};
pub use self::user::{change, has_effect};

/// A move of the set's planner, or of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidecarMove {
    /// The cache of the set catches up.
    SeeSet,
    /// The set's planner catches up with the pods.
    SeePods,
    Plan,
    /// The planner makes one of its writes. If the `bool` is true, the workload's cache of pods catches up right
    /// before the write.
    Write(usize, bool),
}

/// A plan for the set in the model's terms.
#[derive(Clone, Debug, Default)]
pub struct Allotted {
    pub writes: Vec<MarkWrite>,
    /// When to plan again even if nothing changes.
    pub wake: Option<Time>,
}

/// The moves that are possible next.
pub fn moves(model: &Model, state: &State, moves: &mut Vec<Move>) {
    if model.scope.sidecars.is_none() {
        return;
    }
    let mut add = |next_move| moves.push(Move::Sidecars(next_move));
    if state.sidecar_set.seen != Seen::Now {
        add(SidecarMove::SeeSet);
    }
    if let Seen::Before(_) = state.allotter.pods {
        add(SidecarMove::SeePods);
    }
    if state.allotter.writes.is_empty() {
        if !model.allot(state).writes.is_empty() {
            add(SidecarMove::Plan);
        }
        return;
    }
    let choices = match model.scope.lags.pods && state.pods.seen != Seen::Now {
        true => &[false, true][..],
        false => &[false],
    };
    for index in 0..state.allotter.writes.len() {
        choices.iter().for_each(|it| add(SidecarMove::Write(index, *it)));
    }
    // During a reconcile, a crash is already among the operator's moves.
    if state.remaining.crashes > 0 && state.operator.reconcile.is_none() {
        moves.push(Move::Crash);
    }
}

/// The next move while the cluster settles.
pub fn fair_move(model: &Model, state: &State) -> Option<Move> {
    let mut all = Vec::new();
    moves(model, state, &mut all);
    all.into_iter().find(|it| matches!(it, Move::Sidecars(_)))
}

/// When the set's planner next passes unused tokens on to other pods. None while the pods wait for a user, because the
/// planner would pass the tokens from pod to pod forever.
pub fn wake(model: &Model, state: &State) -> Option<Time> {
    model.scope.sidecars?;
    if settled::waits_for_user(state) {
        return None;
    }
    model.allot(state).wake
}

impl Model {
    /// The plan for what the set's planner observes. Plans are cached.
    pub fn allot(&self, state: &State) -> Rc<Allotted> {
        let set = match (self.fault, state.sidecar_set.view()) {
            (Some(Fault::NoQuorumGetOfSet), Some(seen)) => seen,
            _ => &state.sidecar_set.now,
        };
        let pods = state.pods_of_allotter();
        let (workload, runs) = (&state.workload.now, &state.runs.now);
        let key = fingerprint(&(state.clock, set, pods, workload, runs));
        if let Some(allotted) = self.allotted.borrow().get(&key) {
            return allotted.clone();
        }
        let allotted = self.make_allotment(state.clock, **set, pods, (workload, runs));
        let allotted = Rc::new(allotted);
        self.allotted.borrow_mut().insert(key, allotted.clone());
        allotted
    }

    fn make_allotment(
        &self,
        now: Time,
        set: SidecarSet,
        pods: &[Pod],
        (workload, runs): (&Workload, &[Run]),
    ) -> Allotted {
        let Some(sidecars) = self.translator.sidecars(set) else {
            return Allotted::default();
        };
        let mut sidecars = sidecars.as_ref().clone();
        let mut pods = self.translator.matched(pods, &sidecars, workload, runs);
        if let Some(fault) = self.fault {
            fault.corrupt_set(&mut sidecars, &mut pods);
        }
        let allotment = allot(&sidecars, &pods, self.translator.now(now));
        let writes = allotment.writes.iter();
        let is_kept = |write: &MarkWrite| {
            let withdraws = write.to.token.is_none();
            !(withdraws && self.fault == Some(Fault::TokenKept))
        };
        Allotted {
            writes: writes.map(|it| self.translator.mark_write(it)).filter(is_kept).collect(),
            wake: allotment.wake.map(super::translate::wake_time),
        }
    }

    /// Makes a move.
    pub fn step_of_sidecars(
        &self,
        state: &mut State,
        next_move: SidecarMove,
    ) -> Result<(), Violation> {
        match next_move {
            SidecarMove::SeeSet => state.sidecar_set.seen = Seen::Now,
            SidecarMove::SeePods => state.allotter.pods = Seen::Now,
            SidecarMove::Plan => {
                state.allotter.writes = self.allot(state).writes.clone();
                state.allotter.judged = Some(judged(state));
            }
            SidecarMove::Write(index, caught_up) => {
                let write = state.allotter.writes.remove(index);
                let is_unchanged = |pod: &Pod| pod.mark == Some(write.from);
                if state.pod(write.pod).is_some_and(is_unchanged) {
                    judge::sidecars::mark(self, state, &write)?;
                    let pods = state.pods.change(self.scope.lags.pods, caught_up);
                    mark(pods, &write);
                    let lags = self.scope.sidecars.is_some_and(|it| it.pods_lag);
                    if lags && self.fault != Some(Fault::OwnTokensUnseen) {
                        state.allotter.pods = Seen::TooOld;
                    }
                }
                if state.allotter.writes.is_empty() {
                    state.allotter.judged = None;
                }
            }
        }
        Ok(())
    }
}

/// What the set's planner knows now.
fn judged(state: &State) -> Judged {
    let bits = |predicate: &dyn Fn(&&Pod) -> bool| {
        let pods = state.pods_of_allotter().iter();
        let pods = pods.filter(|pod| pod.is_active() && pod.mark.is_some());
        pods.filter(predicate).fold(0, |all, pod| all | 1 << pod.uid)
    };
    let is_counted = |pod: &Pod| {
        let is_closed = matches!(pod.gate, Gate::Closed(_)) && !pod.is_patched();
        pod.ready.is_some() || is_closed || pod.changes_sidecar()
    };
    Judged {
        set: *state.sidecar_set.now,
        matched: bits(&|_| true),
        counted: bits(&|pod| is_counted(pod)),
        charged: bits(&|pod| is_counted(pod) && !pod.changes_sidecar()),
    }
}

fn mark(pods: &mut [Pod], write: &MarkWrite) {
    for pod in pods.iter_mut().filter(|pod| pod.uid == write.pod) {
        pod.mark = Some(write.to);
        if let (true, Some(container)) = (write.updates, &mut pod.containers[SIDECAR]) {
            container.image = write.to.at;
            pod.observed = false;
        }
    }
}

/// Restarts the set's planner in a new process, whose caches show the current state.
pub fn restart(state: &mut State) {
    state.sidecar_set.seen = Seen::Now;
    state.allotter = Allotter::default();
}

/// Lets the cache of the set's planner lag behind a change of the pods.
pub fn lag(model: &Model, state: &mut State, before: &Rc<Vec<Pod>>) {
    if model.scope.sidecars.is_none_or(|it| !it.pods_lag) {
        return;
    }
    let has_changed = !Rc::ptr_eq(before, &state.pods.now) && **before != *state.pods.now;
    if has_changed && state.allotter.pods == Seen::Now {
        state.allotter.pods = Seen::Before(before.clone());
    }
    // The planner plans again only after the last write of its plan, and once its cache shows all of them.
    if state.allotter.pods == Seen::TooOld && state.allotter.writes.is_empty() {
        state.allotter.pods = Seen::Now;
    }
    if matches!(&state.allotter.pods, Seen::Before(pods) if *pods == state.pods.now) {
        state.allotter.pods = Seen::Now;
    }
}
