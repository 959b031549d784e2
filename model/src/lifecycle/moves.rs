//! The moves: what can happen next.

use gamekeeper_core::api::HookPhase;

use super::fault::Fault;
use super::state::{Cache, LONG_AGO, State};

/// A move. Runs and nodes are given by their index.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    Plan,
    Write,
    Crash,
    CatchUp(Cache),
    End(usize, HookPhase),
    /// The script of a canceled run ends, and the run is removed.
    Remove(usize),
    /// Time passes until the next attempt is due.
    Wait(usize),
    Delete,
    Edit,
    SetVersion,
    /// The kubelet of a node is upgraded to the version in the spec.
    Kubelet(usize),
    Pause,
    Join,
    Lose(usize),
    DeleteNode(usize),
}

/// All moves from a state.
pub fn moves(state: &State) -> Vec<Move> {
    let mut moves = operator_moves(state);
    let remaining = &state.remaining;
    let cluster = state.stored.cluster.as_ref();
    let is_deleted = cluster.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
    for run in live(state) {
        moves.push(Move::End(run, HookPhase::Successful));
        if remaining.failures > 0 {
            moves.push(Move::End(run, HookPhase::Failed));
        }
    }
    moves.extend(canceled(state).map(Move::Remove));
    moves.extend(backoffs(state).map(Move::Wait));
    let mut add_if = |is_possible: bool, next: Move| {
        if is_possible {
            moves.push(next);
        }
    };
    add_if(remaining.crashes > 0, Move::Crash);
    add_if(remaining.deletions > 0 && !is_deleted, Move::Delete);
    add_if(remaining.edits > 0 && !is_deleted, Move::Edit);
    add_if(remaining.version_changes > 0 && !is_deleted, Move::SetVersion);
    add_if(remaining.pauses > 0 && cluster.is_some(), Move::Pause);
    add_if(remaining.joins > 0, Move::Join);
    for (index, node) in state.stored.nodes.iter().enumerate() {
        let is_worker = node.name != "master";
        add_if(is_worker && remaining.losses > 0, Move::Lose(index));
        add_if(is_worker && node.lost, Move::DeleteNode(index));
        let differs = cluster.is_some_and(|it| it.spec.version.as_ref() != Some(&node.version));
        let may_change = remaining.early_kubelets > 0 || state.is_awaited(node);
        add_if(differs && may_change, Move::Kubelet(index));
    }
    moves
}

/// The moves of the operator and its caches.
fn operator_moves(state: &State) -> Vec<Move> {
    let [cluster, nodes, runs, _] = state.outdated();
    let kinds = [(cluster, Cache::Cluster), (nodes, Cache::Nodes), (runs, Cache::Runs)];
    let outdated = kinds
        .into_iter()
        .filter(|(is_outdated, kind)| *is_outdated || state.own_writes.contains(kind));
    let mut moves: Vec<Move> = outdated.map(|(_, kind)| Move::CatchUp(kind)).collect();
    if !state.pending.is_empty() {
        moves.push(Move::Write);
    } else if (state.own_writes.is_empty() || state.fault == Some(Fault::OwnWritesUnseen))
        && state.has_work()
    {
        moves.push(Move::Plan);
    }
    moves
}

/// The runs that have not ended and are not canceled.
fn live(state: &State) -> impl Iterator<Item = usize> {
    let runs = state.stored.runs.iter().enumerate();
    let live = runs.filter(|(_, run)| {
        !run.phase().is_completed() && run.metadata.deletion_timestamp.is_none()
    });
    live.map(|(index, _)| index)
}

/// The canceled runs, whose scripts have not ended.
fn canceled(state: &State) -> impl Iterator<Item = usize> {
    let runs = state.stored.runs.iter().enumerate();
    let canceled = runs.filter(|(_, run)| run.metadata.deletion_timestamp.is_some());
    canceled.map(|(index, _)| index)
}

/// The failed runs whose backoff is not over.
fn backoffs(state: &State) -> impl Iterator<Item = usize> {
    let runs = state.stored.runs.iter().enumerate();
    let waiting = runs.filter(|(_, run)| {
        let finished = run.status.as_ref().and_then(|it| it.finished_at.as_ref());
        run.phase().has_failed() && finished.is_some_and(|it| it.0 != LONG_AGO)
    });
    waiting.map(|(index, _)| index)
}

/// The next move if scripts pass, kubelets are upgraded once the operator waits for them, lost nodes are deleted, and
/// nothing else happens; None if everything is settled.
pub fn fair(state: &State) -> Option<Move> {
    if let Some(next) = operator_moves(state).first() {
        return Some(*next);
    }
    if let Some(run) = canceled(state).next() {
        return Some(Move::Remove(run));
    }
    if let Some(run) = live(state).next() {
        return Some(Move::End(run, HookPhase::Successful));
    }
    if let Some(run) = backoffs(state).next() {
        return Some(Move::Wait(run));
    }
    let mut nodes = state.stored.nodes.iter();
    let wanted = state.wanted_version();
    let awaited = nodes.position(|it| Some(&it.version) != wanted.as_ref() && state.is_awaited(it));
    if let Some(node) = awaited {
        return Some(Move::Kubelet(node));
    }
    let mut nodes = state.stored.nodes.iter();
    nodes.position(|node| node.lost).map(Move::DeleteNode)
}
