//! The model of lifecycle hooks. It runs the real planner. Each cache lags by itself, the operator crashes between any
//! two writes, scripts fail, nodes join, are lost or are deleted, and a user edits, pauses and deletes the Cluster. For
//! every state, `settles` also checks that the Cluster settles once nothing else happens.

mod fault;
mod moves;
mod operator;
mod proof;
mod rules;
mod start;
mod state;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use self::fault::Fault;
use self::moves::{Move, moves};
use self::state::{Scope, State};

/// A violation of a rule.
struct Violation {
    rule: String,
    /// The shortest sequence of moves that leads to it, one per line.
    moves: String,
}

/// Explores a scope breadth first, with the deliberate bug if `fault` is given. Returns the number of states.
fn explore(scope: &Scope, fault: Option<Fault>) -> Result<usize, Violation> {
    let start = State::start(scope, fault);
    let mut reached = HashMap::from([(start.key(), None)]);
    let mut settled = HashSet::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(state) = waiting.pop_front() {
        let key = state.key();
        if let Err(rule) = settles(&state, &mut settled) {
            let moves = path(&reached, &key);
            return Err(Violation { rule, moves });
        }
        for next in moves(&state) {
            let mut after = state.clone();
            if let Err(rule) = after.make(next) {
                let moves = format!("{}{next:?}\n", path(&reached, &key));
                return Err(Violation { rule, moves });
            }
            let after_key = after.key();
            if let Entry::Vacant(entry) = reached.entry(after_key) {
                entry.insert(Some((key.clone(), next)));
                waiting.push_back(after);
            }
        }
    }
    Ok(reached.len())
}

/// The moves that lead to a state, one per line.
fn path(reached: &HashMap<String, Option<(String, Move)>>, key: &str) -> String {
    let mut moves = Vec::new();
    let mut current = key;
    while let Some(Some((before, last_move))) = reached.get(current) {
        moves.push(format!("{last_move:?}\n"));
        current = before;
    }
    moves.into_iter().rev().collect()
}

/// The maximum number of moves that a state may need to settle.
const MAX_MOVES: usize = 400;

/// Checks that everything settles if scripts pass and nothing else happens.
fn settles(state: &State, settled: &mut HashSet<String>) -> Result<(), String> {
    let mut current = state.clone();
    let mut visited = Vec::new();
    for _ in 0..MAX_MOVES {
        let key = current.key();
        if settled.contains(&key) {
            settled.extend(visited);
            return Ok(());
        }
        visited.push(key);
        match moves::fair(&current) {
            Some(next) => current.make(next)?,
            None => {
                rules::check_settled(&current)?;
                settled.extend(visited);
                return Ok(());
            }
        }
    }
    Err(format!("the Cluster does not settle: {:?}", current.pending))
}

fn check(name: &str, scope: &Scope) {
    let states = explore(scope, None);
    let states = states.unwrap_or_else(|it| panic!("{}\n{}", it.rule, it.moves));
    println!("{name}: {states} states");
    assert!(states > 100, "{name}: only {states} states");
}

#[test]
fn an_install_with_a_failing_script_and_a_crash() {
    check("failing", &Scope { workers: 2, failures: 1, crashes: 1, ..Scope::default() });
}

#[test]
fn an_install_that_is_deleted_at_any_moment() {
    check("deleted", &Scope { workers: 1, deletions: 1, crashes: 1, ..Scope::default() });
}

#[test]
fn a_node_that_joins_and_one_that_is_lost_and_deleted() {
    check("nodes", &Scope { workers: 1, joins: 1, losses: 1, ..Scope::default() });
}

#[test]
fn a_script_that_is_edited_while_it_runs() {
    check("edited", &Scope { workers: 1, edits: 1, failures: 1, ..Scope::default() });
}

#[test]
fn a_user_who_pauses_and_resumes() {
    check("paused", &Scope { workers: 1, pauses: 2, deletions: 1, ..Scope::default() });
}

#[test]
fn an_upgrade_and_a_revert_with_a_failing_script_and_a_crash() {
    check(
        "upgraded",
        &Scope { workers: 1, version_changes: 2, failures: 1, crashes: 1, ..Scope::default() },
    );
}

#[test]
fn an_upgrade_in_which_a_kubelet_is_upgraded_before_its_turn() {
    check(
        "upgraded early",
        &Scope { workers: 2, version_changes: 1, early_kubelets: 1, ..Scope::default() },
    );
}

#[test]
fn an_upgrade_while_a_node_joins_and_the_cluster_is_deleted() {
    check(
        "upgraded nodes",
        &Scope { workers: 0, version_changes: 1, joins: 1, deletions: 1, ..Scope::default() },
    );
}
