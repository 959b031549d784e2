//! What goes wrong, and when: a value that can be compared and printed.

use std::fmt;
use std::time::Duration;

use super::asked::{Asked, Verb};
use crate::random::mixed;

/// What happens to requests and watches. Nothing, if it is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The first rule that applies to a request decides.
    pub requests: Vec<RequestRule>,
    /// Likewise for a watch, at any moment.
    pub watches: Vec<WatchRule>,
}

/// Some requests meet a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRule {
    /// Those that it may be.
    pub which: Which,
    /// What happens.
    pub fault: Fault,
    /// Which of them it is.
    pub often: Often,
}

/// For a time the watches of a resource are faulty.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchRule {
    /// Plural name.
    pub resource: &'static str,
    /// What happens.
    pub fault: WatchFault,
    /// From when, after the script began.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

/// Requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All but watches.
    Every,
    /// Those that change nothing, watches aside.
    Reads,
    /// Those that change something. Not dry runs: the operator believes a refusal for half a minute.
    Writes,
    /// Those with this verb on this resource.
    To(Verb, &'static str),
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The answer comes so much later.
    Late(Duration),
    /// The request reaches the server twice; the client gets the second answer.
    Twice,
    /// 409: nothing is done.
    Conflict,
    /// 422: nothing is done.
    Invalid,
    /// 429 with Retry-After, in seconds: nothing is done.
    Busy(u32),
    /// 500: nothing is done.
    Failing,
    /// 503: nothing is done.
    Unavailable,
    /// 504, after the server has done it.
    Lost,
    /// The server has done it; the answer breaks off in the middle of its body.
    Cut,
}

/// What happens to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// Its events come so much later.
    Lag(Duration),
    /// Nothing comes any more. The connection stands until the end of the fault, and then breaks.
    Stop,
    /// Bookmarks come in the place of events, with the version that was told last. It ends when the fault
    /// does.
    Hollow,
    /// It is ended with 410 at the next event.
    Gone,
    /// It breaks off in the middle of the next event.
    Cut,
}

/// Which of the requests that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// All.
    Always,
    /// The first ones.
    Times(u32),
    /// So many in a hundred, chosen by a seed.
    Percent(u32, u64),
}

impl Script {
    /// The script with this rule for requests too.
    pub fn with(mut self, which: Which, fault: Fault, often: Often) -> Self {
        self.requests.push(RequestRule {
            which,
            fault,
            often,
        });
        self
    }

    /// The script with this fault of a resource's watches too, from and until these seconds.
    pub fn watching(
        mut self,
        resource: &'static str,
        fault: WatchFault,
        from: f64,
        until: f64,
    ) -> Self {
        self.watches.push(WatchRule {
            resource,
            fault,
            from: Duration::from_secs_f64(from),
            until: Duration::from_secs_f64(until),
        });
        self
    }
}

impl Which {
    /// Whether a request is one of these.
    pub fn applies_to(self, asked: &Asked) -> bool {
        match self {
            Which::Every => asked.verb != Verb::Watch,
            Which::Reads => !asked.verb.is_write() && asked.verb != Verb::Watch,
            Which::Writes => asked.verb.is_write() && !asked.is_dry_run,
            Which::To(verb, resource) => asked.verb == verb && asked.resource == resource,
        }
    }
}

impl Often {
    /// Whether it is the request that comes after so many others.
    pub fn is_turn(self, before: u32) -> bool {
        match self {
            Often::Always => true,
            Often::Times(times) => before < times,
            Often::Percent(share, seed) => mixed(seed ^ u64::from(before)) % 100 < u64::from(share),
        }
    }
}

impl WatchRule {
    /// Whether it holds so long after the script began.
    pub fn holds_at(&self, time: Duration) -> bool {
        (self.from..self.until).contains(&time)
    }
}

impl Fault {
    /// What it is called in figures.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Late(_) => "answer late",
            Fault::Twice => "request sent twice",
            Fault::Conflict => "409",
            Fault::Invalid => "422",
            Fault::Busy(_) => "429 with Retry-After",
            Fault::Failing => "500",
            Fault::Unavailable => "503",
            Fault::Lost => "504 after the write was made",
            Fault::Cut => "answer cut in its body",
        }
    }
}

impl WatchFault {
    /// What it is called in figures.
    pub fn name(self) -> &'static str {
        match self {
            WatchFault::Lag(_) => "watch lags",
            WatchFault::Stop => "watch stops without a word",
            WatchFault::Hollow => "watch sends bookmarks and no events",
            WatchFault::Gone => "watch ended with 410",
            WatchFault::Cut => "watch cut in an event",
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.requests {
            writeln!(f, "{rule}")?;
        }
        for rule in &self.watches {
            writeln!(f, "{rule}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RequestRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.which {
            Which::Every => write!(f, "requests")?,
            Which::Reads => write!(f, "reads")?,
            Which::Writes => write!(f, "writes")?,
            Which::To(verb, resource) => write!(f, "{verb} {resource}")?,
        }
        match self.often {
            Often::Always => write!(f, ", always: ")?,
            Often::Times(times) => write!(f, ", {times} times: ")?,
            Often::Percent(share, _) => write!(f, ", {share}%: ")?,
        }
        match self.fault {
            Fault::Late(time) => write!(f, "answer late by {time:?}"),
            Fault::Busy(seconds) => write!(f, "429 with Retry-After {seconds}"),
            fault => f.write_str(fault.name()),
        }
    }
}

impl fmt::Display for WatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WatchRule {
            resource,
            from,
            until,
            ..
        } = self;
        write!(f, "{resource}, {from:.1?} to {until:.1?}: ")?;
        match self.fault {
            WatchFault::Lag(time) => write!(f, "watch lags by {time:?}"),
            fault => f.write_str(fault.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_requests_is_chosen_by_the_seed_alone() {
        let chosen = |seed| -> Vec<u32> {
            let often = Often::Percent(10, seed);
            (0..1000).filter(|before| often.is_turn(*before)).collect()
        };
        assert_eq!(chosen(1), chosen(1));
        assert_ne!(chosen(1), chosen(2));
        assert!((50..150).contains(&chosen(1).len()), "{}", chosen(1).len());
    }

    #[test]
    fn a_script_prints_one_line_for_each_rule() {
        let late = Fault::Late(Duration::from_secs(2));
        let script = Script::default()
            .with(Which::Writes, Fault::Lost, Often::Percent(5, 1))
            .with(
                Which::To(Verb::Get, "gamedeployments"),
                late,
                Often::Times(3),
            )
            .watching("pods", WatchFault::Lag(Duration::from_secs(1)), 0.5, 4.0);
        let lines = "writes, 5%: 504 after the write was made\n\
                     get gamedeployments, 3 times: answer late by 2s\n\
                     pods, 500.0ms to 4.0s: watch lags by 1s\n";
        assert_eq!(script.to_string(), lines);
    }
}
