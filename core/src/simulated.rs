//! The loop of the operator (`reconcile::apply`) for the tests of planners: the order of the writes of a plan, and what is
//! remembered of the answers, with an API server that answers at once.

use jiff::Timestamp;

use crate::observed::{Kind, OtherBudget};
use crate::write::{
    Answer, Change, Outcome, Phase, Plan, Refusal, Rehearsal, Remember, Results, Stop, Write,
};

/// What the API server says about an object that was written.
#[derive(Debug, Default)]
pub struct Made {
    pub uid: String,
    pub version: u64,
}

/// The API server of a test, with the object that plans are made for.
pub trait Server {
    type Status;

    fn now(&self) -> Timestamp;

    /// The kind of the object.
    fn kind(&self) -> Kind;

    /// The generation of the object: if it changes, the rest of the plan is void.
    fn generation(&self) -> Option<i64>;

    fn write_status(&mut self, status: Self::Status);

    /// The dry run of a creation.
    fn try_first(&mut self, _write: &Write) -> Result<(), Refusal> {
        Ok(())
    }

    /// The dry runs of what a write begins.
    fn rehearse(&mut self, _write: &Write, _rehearsal: &Rehearsal) -> Result<(), Refusal> {
        Ok(())
    }

    fn make(&mut self, write: &Write) -> Result<Made, Refusal>;

    /// The PodDisruptionBudgets of other clients.
    fn other_budgets(&self) -> Vec<OtherBudget> {
        Vec::new()
    }
}

/// Carries out a plan. Returns how it ended.
pub fn carry_out<S: Server, M: Remember>(
    plan: Plan<S::Status>,
    memory: &mut M,
    server: &mut S,
) -> Outcome {
    phases(plan, memory, server).unwrap_or_else(Outcome::from)
}

fn phases<S: Server, M: Remember>(
    plan: Plan<S::Status>,
    memory: &mut M,
    server: &mut S,
) -> Result<Outcome, Stop> {
    let (before, after): (Vec<_>, Vec<_>) =
        plan.writes.into_iter().partition(|it| it.phase() == Phase::Before);
    let generation = server.generation();
    let first = batch(before, memory, server)?;
    if first == Outcome::Unfinished {
        return Ok(first);
    }
    if server.generation() != generation {
        return Ok(Outcome::Conflict("by our own patch".to_owned()));
    }
    if let Some(status) = plan.status {
        server.write_status(status);
    }
    Ok(first.then(batch(after, memory, server)?))
}

/// Makes the writes of one phase, one after another.
///
/// # Errors
/// If the rest of the plan depends on a write that failed.
pub fn batch<S: Server, M: Remember>(
    writes: Vec<Write>,
    memory: &mut M,
    server: &mut S,
) -> Result<Outcome, Stop> {
    let mut results = memory.begin(server.kind());
    let sequels: Vec<Write> =
        writes.iter().filter_map(|write| attempt(write, &mut results, server)).collect();
    for sequel in &sequels {
        send(sequel, &mut results, server);
    }
    memory.settle(results, server.now())
}

/// Makes a write, after the dry runs that it needs. Returns the one that follows it.
fn attempt<S: Server>(write: &Write, results: &mut impl Results, server: &mut S) -> Option<Write> {
    let now = server.now();
    if results.tries_first(write) {
        if !results.may_begin(write) {
            return None;
        }
        match server.try_first(write) {
            Ok(()) => results.passed_dry_run(write),
            Err(refusal) => {
                results.count(write, Err(refusal), now);
                return None;
            }
        }
    }
    let is_due = |it: &&Rehearsal| !results.is_rehearsed(it, now);
    if let Some(rehearsal) = write.rehearsal().filter(is_due) {
        if !results.may_begin(write) {
            return None;
        }
        let result = server.rehearse(write, rehearsal);
        let has_passed = result.is_ok();
        results.count_rehearsal(rehearsal, result, now);
        if !has_passed {
            return None;
        }
    }
    if !results.may_begin(write) {
        return None;
    }
    send(write, results, server)
}

fn send<S: Server>(write: &Write, results: &mut impl Results, server: &mut S) -> Option<Write> {
    let now = server.now();
    let made = server.make(write);
    let sequel = made.as_ref().ok().and_then(|Made { uid, version }| {
        write.sequel(Answer { namespace: "default", uid, version: *version }, now)
    });
    if made.is_ok() && matches!(write.change(), Change::ProbeGuard { .. }) {
        results.observe_budgets(server.other_budgets());
    }
    results.count(write, made.map(drop), now);
    sequel
}
