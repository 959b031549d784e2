//! Runs all rules on a log.

use std::fmt;

use jiff::Timestamp;

use crate::evidence::Event;
use crate::replay::history::{Write, history};
use crate::replay::world::World;
use crate::rules;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The name of the violated rule.
    pub rule: &'static str,
    /// When the request was received.
    pub at: Timestamp,
    /// The write.
    pub write: String,
    /// Why it is a violation.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { rule, at, write, why } = self;
        write!(f, "{rule}: {at} {write}: {why}")
    }
}

/// Checks every write in a namespace, and every dry-run deletion that checks whether a guard is in force. `is_operator`
/// tells whether a user is an operator. `starts` are the times at which operators were started.
pub fn violations(
    events: &[Event],
    starts: &[Timestamp],
    is_operator: impl Fn(&str) -> bool,
) -> Vec<Violation> {
    let operator_events = events.iter().filter(|it| is_operator(it.username()));
    let mut world = World::with_refused_runs(operator_events);
    let mut settled = rules::Settled::default();
    let mut pauses = rules::Pauses::default();
    let mut holds = rules::Holds::default();
    let mut batches = rules::Batches::default();
    let mut found = Vec::new();
    for write in history(events) {
        let by_operator = is_operator(&write.user);
        let mut wrong: Vec<rules::Found> = Vec::new();
        if by_operator {
            let rules = [
                rules::hooks,
                rules::budget,
                rules::partition,
                rules::ordinals,
                rules::indexes,
                rules::pause,
                rules::on_delete,
                rules::deletion,
                rules::runs,
                rules::completion,
                rules::gate,
                rules::order,
                rules::guard_without_hook,
                rules::autoscalers,
                rules::sidecars,
            ];
            wrong.extend(rules.iter().flat_map(|rule| rule(&world, &write)));
        } else {
            wrong.extend(rules::guard(&world, &write));
        }
        wrong.extend(batches.check(&world, &write, by_operator));
        world.apply(&write);
        wrong.extend(settled.check(&world, &write, by_operator));
        wrong.extend(pauses.check(&world, &write, by_operator));
        wrong.extend(holds.check(&world, &write, by_operator));
        found.extend(wrong.into_iter().map(|(rule, why)| Violation {
            rule,
            at: write.received,
            write: describe(&write),
            why,
        }));
    }
    let needless = rules::needless_requests(events, starts, is_operator);
    found.extend(needless.into_iter().map(|(event, why)| Violation {
        rule: "settled",
        at: event.received,
        write: format!("{} {}", event.verb, event.uri),
        why,
    }));
    found
}

/// A write in a few words.
pub(crate) fn describe(write: &Write) -> String {
    let sub = match write.subresource.as_str() {
        "" => String::new(),
        sub => format!("/{sub}"),
    };
    format!("{} {}{sub} {}", write.verb, write.plural, write.name)
}
