//! Explores every interleaving of a scope, breadth first, so counterexamples are as short as possible.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use super::fair::{self, Unsettled};
use super::fingerprint::fingerprint;
use super::model::{Model, Violation};
use super::state::State;

/// The size of an exploration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exploration {
    /// Number of distinct states.
    pub states: usize,
    /// Number of moves from one state to another.
    pub moves: u64,
    /// Number of distinct plans.
    pub plans: usize,
    /// Number of layers. All states at the same distance from the start are one layer; the start is the first layer.
    pub depth: usize,
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, moves, plans, depth } = self;
        write!(f, "{states} states, {moves} moves, {depth} deep, {plans} plans")
    }
}

/// A violation with the moves that lead to it.
#[derive(Debug)]
pub struct Counterexample {
    pub violation: Violation,
    pub moves: Vec<String>,
    pub last: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.violation.rule, self.violation.why)?;
        for (number, line) in self.moves.iter().enumerate() {
            writeln!(f, "{:3}. {line}", number + 1)?;
        }
        writeln!(f, "{}", self.last)
    }
}

/// A hasher for fingerprints, which are already hashes.
#[derive(Default)]
pub struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {}
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

pub type BuildIdentity = BuildHasherDefault<Identity>;

/// States by fingerprint, each with the state from which it was first reached, and the index of the move.
type Reached = HashMap<u128, (u128, u16), BuildIdentity>;

/// Fingerprints of states from which the cluster settles.
pub type Settled = HashSet<u128, BuildIdentity>;

/// Explores all states from a start. With `check_settling`, checks for each of them that the cluster settles.
pub fn explore(
    model: &Model,
    start: &State,
    check_settling: bool,
) -> Result<Exploration, Box<Counterexample>> {
    let mut reached = Reached::default();
    let mut settled = Settled::default();
    let mut explored = Exploration::default();
    let begin = fingerprint(start);
    reached.insert(begin, (begin, 0));
    let mut layer = VecDeque::from([(begin, start.clone())]);
    while !layer.is_empty() {
        let mut next_layer = VecDeque::new();
        explored.depth += 1;
        while let Some((from, state)) = layer.pop_front() {
            for (index, next_move) in model.moves(&state).iter().enumerate() {
                explored.moves += 1;
                let next = model.step(&state, next_move);
                let next = next.map_err(|it| trace(model, start, &reached, (from, index), it))?;
                let to = fingerprint(&next);
                if let Entry::Vacant(entry) = reached.entry(to) {
                    entry.insert((from, index as u16));
                    next_layer.push_back((to, next));
                }
            }
            if check_settling {
                settles(model, &state, &mut settled).map_err(|unsettled| {
                    let mut counterexample =
                        trace(model, start, &reached, (from, usize::MAX), unsettled.violation);
                    counterexample
                        .moves
                        .push("... and then, while the cluster settles:".to_owned());
                    counterexample.moves.extend(unsettled.moves);
                    counterexample.last = unsettled.last;
                    counterexample
                })?;
            }
        }
        layer = next_layer;
    }
    explored.states = reached.len();
    explored.plans = model.plans.borrow().len();
    Ok(explored)
}

/// Checks that the cluster settles, under both favorable and unfavorable conditions.
pub fn settles(model: &Model, state: &State, settled: &mut Settled) -> Result<(), Box<Unsettled>> {
    for is_favorable in [true, false] {
        fair::settle(model, state, is_favorable, settled)?;
    }
    Ok(())
}

/// The counterexample that leads to this state, and then makes the move with this index, if there is one.
fn trace(
    model: &Model,
    start: &State,
    reached: &Reached,
    (state, index): (u128, usize),
    violation: Violation,
) -> Box<Counterexample> {
    let mut indices = vec![index];
    let mut current = state;
    while let Some((from, index)) = reached.get(&current).filter(|(from, _)| *from != current) {
        indices.push(usize::from(*index));
        current = *from;
    }
    let mut state = start.clone();
    let mut moves = Vec::new();
    for index in indices.into_iter().rev() {
        let Some(next_move) = model.moves(&state).get(index).cloned() else {
            break;
        };
        moves.push(super::describe::describe(model, &state, &next_move));
        match model.step(&state, &next_move) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    Box::new(Counterexample { violation, moves, last: format!("{state:?}") })
}
