//! Walks every interleaving of a scope, breadth first, so that what it finds is a shortest story.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use super::fair::{self, Unrest};
use super::fingerprint::fingerprint;
use super::model::{Broken, Model};
use super::state::State;

/// What a walk came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walked {
    /// Different states.
    pub states: usize,
    /// Moves from one state to another.
    pub moves: u64,
    /// Different plans that were asked for.
    pub plans: usize,
    /// Moves from the start to the farthest state.
    pub depth: usize,
}

impl fmt::Display for Walked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states,
            moves,
            plans,
            depth,
        } = self;
        write!(
            f,
            "{states} states, {moves} moves, {depth} deep, {plans} plans"
        )
    }
}

/// How something that must never happen came about.
#[derive(Debug)]
pub struct Story {
    pub broken: Broken,
    pub moves: Vec<String>,
    pub last: String,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.broken.rule, self.broken.why)?;
        for (number, what) in self.moves.iter().enumerate() {
            writeln!(f, "{:3}. {what}", number + 1)?;
        }
        writeln!(f, "{}", self.last)
    }
}

/// A fingerprint is a hash already.
#[derive(Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {}
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

pub type Fast = BuildHasherDefault<AsIs>;

/// States by fingerprint, each with the state it was first reached from, and by which move.
type Reached = HashMap<u128, (u128, u16), Fast>;

/// Fingerprints of states from which all comes to rest.
pub type Settled = HashSet<u128, Fast>;

/// Walks from a state. `with_rest`: from each state on the way it is tried whether all comes to rest.
pub fn explore(model: &Model, start: &State, with_rest: bool) -> Result<Walked, Box<Story>> {
    let mut reached = Reached::default();
    let mut settled = Settled::default();
    let mut walked = Walked::default();
    let begin = fingerprint(start);
    reached.insert(begin, (begin, 0));
    let mut layer = VecDeque::from([(begin, start.clone())]);
    while !layer.is_empty() {
        let mut next_layer = VecDeque::new();
        walked.depth += 1;
        while let Some((from, state)) = layer.pop_front() {
            for (place, what) in model.moves(&state).iter().enumerate() {
                walked.moves += 1;
                let next = model.step(&state, what);
                let next = next.map_err(|it| tell(model, start, &reached, (from, place), it))?;
                let to = fingerprint(&next);
                if let Entry::Vacant(entry) = reached.entry(to) {
                    entry.insert((from, place as u16));
                    next_layer.push_back((to, next));
                }
            }
            if with_rest {
                rest(model, &state, &mut settled).map_err(|unrest| {
                    let mut story = tell(model, start, &reached, (from, usize::MAX), unrest.broken);
                    story.moves.push("... and from here on, fairly:".to_owned());
                    story.moves.extend(unrest.moves);
                    story.last = unrest.last;
                    story
                })?;
            }
        }
        layer = next_layer;
    }
    walked.states = reached.len();
    walked.plans = model.plans.borrow().len();
    Ok(walked)
}

/// Sees that all comes to rest, whether the world is kind or not.
pub fn rest(model: &Model, state: &State, settled: &mut Settled) -> Result<(), Box<Unrest>> {
    for is_kind in [true, false] {
        fair::settle(model, state, is_kind, settled)?;
    }
    Ok(())
}

/// Tells how it came to a move (by its place among the moves of a state).
fn tell(
    model: &Model,
    start: &State,
    reached: &Reached,
    (state, place): (u128, usize),
    broken: Broken,
) -> Box<Story> {
    let mut places = vec![place];
    let mut at = state;
    while let Some((from, place)) = reached.get(&at).filter(|(from, _)| *from != at) {
        places.push(usize::from(*place));
        at = *from;
    }
    let mut state = start.clone();
    let mut moves = Vec::new();
    for place in places.into_iter().rev() {
        let Some(what) = model.moves(&state).get(place).cloned() else {
            break;
        };
        moves.push(super::telling::tell(model, &state, &what));
        match model.step(&state, &what) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    Box::new(Story {
        broken,
        moves,
        last: format!("{state:?}"),
    })
}
