//! The model of lifecycle hooks: the real planner, caches that lag per kind, crashes between any two writes, scripts that
//! fail, nodes that join, are lost or deleted, and a user who edits, pauses and deletes. From every state it is also
//! checked that the Cluster settles once nothing else happens.

mod moves;
mod rules;
mod state;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use self::moves::{Move, moves};
use self::state::{Scope, State};

/// Explores a scope breadth first. Panics with the shortest sequence of moves that leads to a violation.
fn explore(scope: &Scope) -> usize {
    let start = State::start(scope);
    let mut reached = HashMap::from([(start.key(), None)]);
    let mut settled = HashSet::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(state) = waiting.pop_front() {
        let key = state.key();
        if let Err(why) = settles(&state, &mut settled) {
            panic!("{why}\n{}", way(&reached, &key));
        }
        for next in moves(&state) {
            let mut after = state.clone();
            if let Err(why) = after.make(next) {
                panic!("{why}\n{}{next:?}", way(&reached, &key));
            }
            let of_after = after.key();
            if let Entry::Vacant(entry) = reached.entry(of_after) {
                entry.insert(Some((key.clone(), next)));
                waiting.push_back(after);
            }
        }
    }
    reached.len()
}

/// The moves that lead to a state, one a line.
fn way(reached: &HashMap<String, Option<(String, Move)>>, key: &str) -> String {
    let mut moves = Vec::new();
    let mut at = key;
    while let Some(Some((before, made))) = reached.get(at) {
        moves.push(format!("{made:?}\n"));
        at = before;
    }
    moves.into_iter().rev().collect()
}

/// The maximum number of moves that a state may need to settle.
const MAX_MOVES: usize = 400;

/// Checks that everything settles if scripts pass and nothing else happens.
fn settles(state: &State, settled: &mut HashSet<String>) -> Result<(), String> {
    let mut at = state.clone();
    let mut passed = Vec::new();
    for _ in 0..MAX_MOVES {
        let key = at.key();
        if settled.contains(&key) {
            settled.extend(passed);
            return Ok(());
        }
        passed.push(key);
        match moves::fair(&at) {
            Some(next) => at.make(next)?,
            None => {
                rules::is_settled(&at)?;
                settled.extend(passed);
                return Ok(());
            }
        }
    }
    Err(format!("it does not settle: {:?}", at.pending))
}

fn check(name: &str, scope: &Scope) {
    let states = explore(scope);
    println!("{name}: {states} states");
    assert!(states > 100, "{name}: only {states} states");
}

#[test]
fn an_install_with_a_failing_script_and_a_crash() {
    check(
        "failing",
        &Scope {
            workers: 2,
            failures: 1,
            crashes: 1,
            ..Scope::default()
        },
    );
}

#[test]
fn an_install_that_is_deleted_at_any_moment() {
    check(
        "deleted",
        &Scope {
            workers: 1,
            deletions: 1,
            crashes: 1,
            ..Scope::default()
        },
    );
}

#[test]
fn a_node_that_joins_and_one_that_is_lost_and_deleted() {
    check(
        "nodes",
        &Scope {
            workers: 1,
            joins: 1,
            losses: 1,
            ..Scope::default()
        },
    );
}

#[test]
fn a_script_that_is_edited_while_it_runs() {
    check(
        "edited",
        &Scope {
            workers: 1,
            edits: 1,
            failures: 1,
            ..Scope::default()
        },
    );
}

#[test]
fn a_user_who_pauses_and_resumes() {
    check(
        "paused",
        &Scope {
            workers: 1,
            pauses: 2,
            deletions: 1,
            ..Scope::default()
        },
    );
}
