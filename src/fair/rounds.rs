//! What waits, by namespace: the namespaces are served one after the other, round and round, and within
//! each what came first is first.

use std::collections::{HashMap, VecDeque};

/// Things that wait.
#[derive(Debug)]
pub struct Rounds<T> {
    waiting: HashMap<String, VecDeque<T>>,
    /// The namespaces in which something waits, in the order of their next turn.
    order: VecDeque<String>,
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Rounds<T> {
    /// Lets something wait behind all else of its namespace.
    pub fn push(&mut self, namespace: &str, thing: T) {
        if let Some(things) = self.waiting.get_mut(namespace) {
            things.push_back(thing);
            return;
        }
        self.order.push_back(namespace.to_owned());
        self.waiting
            .insert(namespace.to_owned(), VecDeque::from([thing]));
    }

    /// The first thing of the next namespace that is admitted, and what admits it. A namespace that is not
    /// admitted loses its place in this round.
    pub fn pop<A>(&mut self, mut admit: impl FnMut(&str) -> Option<A>) -> Option<(T, A)> {
        for _ in 0..self.order.len() {
            let namespace = self.order.pop_front()?;
            let Some(admitted) = admit(&namespace) else {
                self.order.push_back(namespace);
                continue;
            };
            let things = self.waiting.get_mut(&namespace)?;
            let thing = things.pop_front();
            match things.is_empty() {
                true => drop(self.waiting.remove(&namespace)),
                false => self.order.push_back(namespace),
            }
            return Some((thing?, admitted));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(rounds: &mut Rounds<u32>) -> Option<u32> {
        rounds.pop(|_| Some(())).map(|(thing, ())| thing)
    }

    #[test]
    fn who_has_much_waiting_keeps_nobody_else_waiting() {
        let mut rounds = Rounds::default();
        for number in 0..1_000 {
            rounds.push("greedy", number);
        }
        rounds.push("other", 7_000);
        rounds.push("third", 8_000);
        rounds.push("other", 7_001);
        let served: Vec<_> = (0..7).filter_map(|_| next(&mut rounds)).collect();
        assert_eq!(served, [0, 7_000, 8_000, 1, 7_001, 2, 3]);
        assert_eq!(std::iter::from_fn(|| next(&mut rounds)).count(), 996);
        assert!(rounds.order.is_empty() && rounds.waiting.is_empty());
    }

    #[test]
    fn who_is_not_admitted_waits_and_loses_nothing() {
        let mut rounds = Rounds::default();
        rounds.push("full", 1);
        rounds.push("other", 2);
        let admit = |name: &str| (name != "full").then_some(());
        assert_eq!(rounds.pop(admit), Some((2, ())));
        assert_eq!(rounds.pop(admit), None);
        assert_eq!(next(&mut rounds), Some(1));
    }
}
