//! The faults and their times, as a value that can be compared and printed.

use std::fmt;
use std::time::Duration;

use super::request::{RequestInfo, Verb};
use crate::random::mix;

/// The faults of requests and watches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// Rules for requests. The first one that applies decides.
    pub request_rules: Vec<RequestRule>,
    /// Rules for watches. At any time, the first one that applies decides.
    pub watch_rules: Vec<WatchRule>,
}

/// A fault that hits some requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRule {
    /// The requests that it may hit.
    pub requests: Requests,
    /// The fault.
    pub fault: Fault,
    /// Which of these requests it hits.
    pub frequency: Frequency,
}

/// A fault that hits the watches of a resource for some time.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchRule {
    /// Plural name of the resource.
    pub resource: &'static str,
    /// The fault.
    pub fault: WatchFault,
    /// Start, counted from the start of the script.
    pub from: Duration,
    /// End, counted from the start of the script.
    pub until: Duration,
}

/// The requests that a rule may hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// All but watches.
    Every,
    /// Reads except watches.
    Reads,
    /// Writes except dry runs, because the operator remembers a refused dry run for half a minute.
    Writes,
    /// Requests with this verb for this resource.
    To(Verb, &'static str),
}

/// A fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The response is delayed.
    Delay(Duration),
    /// The request is sent to the server twice; the client gets the second response.
    Duplicate,
    /// 409. The request is not forwarded.
    Conflict,
    /// 422. The request is not forwarded.
    Invalid,
    /// 429 with this many seconds in Retry-After. The request is not forwarded.
    TooManyRequests(u32),
    /// 500. The request is not forwarded.
    InternalError,
    /// 503. The request is not forwarded.
    Unavailable,
    /// 504. The request is forwarded, and its response discarded.
    Lost,
    /// The request is forwarded, and its response breaks off in the middle of the body.
    Truncate,
}

/// A fault of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// Events are delayed.
    Lag(Duration),
    /// Events are dropped. The watch stays open until the fault ends.
    Stall,
    /// Events are replaced by bookmarks with the version of the last event that was sent. The watch stays
    /// open until the fault ends.
    BookmarksOnly,
    /// The next event is replaced by 410, and the watch ends.
    Expire,
    /// The watch breaks off in the middle of the next event.
    Truncate,
}

/// Which of a rule's requests are hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// All.
    Always,
    /// The first n.
    Times(u32),
    /// A percentage. The seed decides which ones.
    Percent(u32, u64),
}

impl Script {
    /// Adds a rule for requests.
    pub fn with(mut self, requests: Requests, fault: Fault, frequency: Frequency) -> Self {
        self.request_rules.push(RequestRule { requests, fault, frequency });
        self
    }

    /// Adds a rule for the watches of a resource; `from` and `until` are in seconds.
    pub fn watching(
        mut self,
        resource: &'static str,
        fault: WatchFault,
        from: f64,
        until: f64,
    ) -> Self {
        self.watch_rules.push(WatchRule {
            resource,
            fault,
            from: Duration::from_secs_f64(from),
            until: Duration::from_secs_f64(until),
        });
        self
    }
}

impl Requests {
    /// Whether a request is one of these.
    pub fn applies_to(self, info: &RequestInfo) -> bool {
        match self {
            Requests::Every => info.verb != Verb::Watch,
            Requests::Reads => !info.verb.is_write() && info.verb != Verb::Watch,
            Requests::Writes => info.verb.is_write() && !info.is_dry_run,
            Requests::To(verb, resource) => info.verb == verb && info.resource == resource,
        }
    }
}

impl Frequency {
    /// Whether the request with this index is hit.
    pub fn hits(self, index: u32) -> bool {
        match self {
            Frequency::Always => true,
            Frequency::Times(times) => index < times,
            Frequency::Percent(share, seed) => {
                mix(seed ^ u64::from(index)) % 100 < u64::from(share)
            }
        }
    }
}

impl WatchRule {
    /// Whether the rule applies at this time, counted from the start of the script.
    pub fn applies_at(&self, time: Duration) -> bool {
        (self.from..self.until).contains(&time)
    }
}

impl Fault {
    /// The name of the fault in the figures of a campaign.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Delay(_) => "response delayed",
            Fault::Duplicate => "request sent twice",
            Fault::Conflict => "409",
            Fault::Invalid => "422",
            Fault::TooManyRequests(_) => "429 with Retry-After",
            Fault::InternalError => "500",
            Fault::Unavailable => "503",
            Fault::Lost => "504 after the write was made",
            Fault::Truncate => "response truncated",
        }
    }
}

impl WatchFault {
    /// The name of the fault in the figures of a campaign.
    pub fn name(self) -> &'static str {
        match self {
            WatchFault::Lag(_) => "watch lags",
            WatchFault::Stall => "watch stalls",
            WatchFault::BookmarksOnly => "watch sends bookmarks but no events",
            WatchFault::Expire => "watch ended with 410",
            WatchFault::Truncate => "watch truncated in an event",
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.request_rules {
            writeln!(f, "{rule}")?;
        }
        for rule in &self.watch_rules {
            writeln!(f, "{rule}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RequestRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.requests {
            Requests::Every => write!(f, "requests")?,
            Requests::Reads => write!(f, "reads")?,
            Requests::Writes => write!(f, "writes")?,
            Requests::To(verb, resource) => write!(f, "{verb} {resource}")?,
        }
        match self.frequency {
            Frequency::Always => write!(f, ", always: ")?,
            Frequency::Times(times) => write!(f, ", {times} times: ")?,
            Frequency::Percent(share, _) => write!(f, ", {share}%: ")?,
        }
        match self.fault {
            Fault::Delay(time) => write!(f, "response delayed by {time:?}"),
            Fault::TooManyRequests(seconds) => write!(f, "429 with Retry-After {seconds}"),
            fault => f.write_str(fault.name()),
        }
    }
}

impl fmt::Display for WatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WatchRule { resource, from, until, .. } = self;
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
    fn the_seed_decides_which_requests_are_hit() {
        let chosen = |seed| -> Vec<u32> {
            let frequency = Frequency::Percent(10, seed);
            (0..1000).filter(|index| frequency.hits(*index)).collect()
        };
        assert_eq!(chosen(1), chosen(1));
        assert_ne!(chosen(1), chosen(2));
        assert!((50..150).contains(&chosen(1).len()), "{}", chosen(1).len());
    }

    #[test]
    fn a_script_prints_one_line_for_each_rule() {
        let delay = Fault::Delay(Duration::from_secs(2));
        let script = Script::default()
            .with(Requests::Writes, Fault::Lost, Frequency::Percent(5, 1))
            .with(Requests::To(Verb::Get, "gamedeployments"), delay, Frequency::Times(3))
            .watching("pods", WatchFault::Lag(Duration::from_secs(1)), 0.5, 4.0);
        let lines = "writes, 5%: 504 after the write was made\n\
                     get gamedeployments, 3 times: response delayed by 2s\n\
                     pods, 500.0ms to 4.0s: watch lags by 1s\n";
        assert_eq!(script.to_string(), lines);
    }
}
