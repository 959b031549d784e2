//! A queue that serves the namespaces in rotation. Within a namespace, it is first in, first out.

use std::collections::{HashMap, VecDeque};

/// Waiting items, by namespace.
#[derive(Debug)]
pub(crate) struct RoundRobin<T> {
    waiting: HashMap<String, VecDeque<T>>,
    /// The namespaces that have waiting items, in the order in which they are served.
    order: VecDeque<String>,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> RoundRobin<T> {
    /// Puts an item behind all others of its namespace.
    pub(crate) fn push(&mut self, namespace: &str, item: T) {
        if let Some(items) = self.waiting.get_mut(namespace) {
            items.push_back(item);
            return;
        }
        self.order.push_back(namespace.to_owned());
        self.waiting.insert(namespace.to_owned(), VecDeque::from([item]));
    }

    /// The first item of the next namespace that is admitted, with what `admit` returned. A namespace that is not
    /// admitted is moved to the end of the rotation.
    pub(crate) fn pop<A>(&mut self, mut admit: impl FnMut(&str) -> Option<A>) -> Option<(T, A)> {
        for _ in 0..self.order.len() {
            let namespace = self.order.pop_front()?;
            let Some(admitted) = admit(&namespace) else {
                self.order.push_back(namespace);
                continue;
            };
            let items = self.waiting.get_mut(&namespace)?;
            let item = items.pop_front();
            match items.is_empty() {
                true => drop(self.waiting.remove(&namespace)),
                false => self.order.push_back(namespace),
            }
            return Some((item?, admitted));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(queue: &mut RoundRobin<u32>) -> Option<u32> {
        queue.pop(|_| Some(())).map(|(item, ())| item)
    }

    #[test]
    fn a_namespace_with_many_items_delays_no_other() {
        let mut queue = RoundRobin::default();
        for number in 0..1_000 {
            queue.push("greedy", number);
        }
        queue.push("other", 7_000);
        queue.push("third", 8_000);
        queue.push("other", 7_001);
        let served: Vec<_> = (0..7).filter_map(|_| next(&mut queue)).collect();
        assert_eq!(served, [0, 7_000, 8_000, 1, 7_001, 2, 3]);
        assert_eq!(std::iter::from_fn(|| next(&mut queue)).count(), 996);
        assert!(queue.order.is_empty() && queue.waiting.is_empty());
    }

    #[test]
    fn a_namespace_that_is_not_admitted_waits_and_loses_nothing() {
        let mut queue = RoundRobin::default();
        queue.push("full", 1);
        queue.push("other", 2);
        let admit = |name: &str| (name != "full").then_some(());
        assert_eq!(queue.pop(admit), Some((2, ())));
        assert_eq!(queue.pop(admit), None);
        assert_eq!(next(&mut queue), Some(1));
    }
}
