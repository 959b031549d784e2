//! Invariant 9: only the leader writes, according to the Lease.
//!
//! Operators are distinguished by their service accounts. The leader is the one that wrote the Lease last
//! and did not release it. It may write until the renewal deadline after its last renewal.

use jiff::{SignedDuration, Timestamp};

use crate::evidence::Event;

/// How long a leader may write after it began its last renewal, plus a second for requests in flight.
const LIMIT: SignedDuration = SignedDuration::from_millis(10_000 + 1_000);

/// A version of the Lease.
struct LeaseVersion<'a> {
    version: u64,
    /// None if it was released.
    leader: Option<&'a str>,
    from: Timestamp,
}

/// The number of takeovers: how often the holder of the lease changed.
pub fn takeovers(events: &[Event]) -> usize {
    let leases = leases(events);
    let leaders: Vec<&str> = leases.iter().filter_map(|it| it.leader).collect();
    leaders.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Writes by operators that were received while another operator was the leader, or none was.
pub fn writes_without_lease(events: &[Event], is_operator: impl Fn(&str) -> bool) -> Vec<String> {
    let leases = leases(events);
    let is_lease_write = |event: &Event| event.resource() == "leases";
    let writes =
        events.iter().filter(|event| is_operator(&event.user.username) && !is_lease_write(event));
    let wrong = writes.filter_map(|event| {
        let reason = reason(&leases, event)?;
        Some(format!(
            "{} {} {} {}: {reason}",
            event.received, event.user.username, event.verb, event.uri
        ))
    });
    wrong.collect()
}

/// The reason why a write is a violation, if it is one.
fn reason(leases: &[LeaseVersion<'_>], event: &Event) -> Option<String> {
    let before = leases.iter().rev().find(|it| it.from <= event.received);
    let Some(newest) = before else {
        return Some("there was no leader yet".to_owned());
    };
    let age = event.received.duration_since(newest.from);
    match newest.leader {
        Some(leader) if leader != event.user.username => {
            Some(format!("{leader} had been the leader for {age:#}"))
        }
        None => Some(format!("the lease had been released {age:#} earlier")),
        Some(_) if age > LIMIT => Some(format!("the last renewal was {age:#} earlier")),
        Some(_) => None,
    }
}

/// The versions of the Lease, oldest first.
fn leases(events: &[Event]) -> Vec<LeaseVersion<'_>> {
    let written = events.iter().filter(|event| event.resource() == "leases" && event.succeeded());
    let mut leases: Vec<LeaseVersion<'_>> = written
        .filter_map(|event| {
            let lease = event.response_object.as_ref()?;
            let version = lease["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
            let holder = lease["spec"]["holderIdentity"].as_str();
            let leader = holder.filter(|holder| !holder.is_empty());
            Some(LeaseVersion {
                version,
                leader: leader.map(|_| event.user.username.as_str()),
                from: event.received,
            })
        })
        .collect();
    leases.sort_by_key(|it| it.version);
    leases
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(second: u32, user: &str, lease: Option<&str>) -> Event {
        let time = format!("2026-01-01T00:00:{second:02}.000000Z");
        let line = json!({
            "verb": "update", "requestURI": "/x", "user": {"username": user},
            "objectRef": {"resource": if lease.is_some() { "leases" } else { "pods" }},
            "responseStatus": {"code": 200},
            "responseObject": {
                "metadata": {"resourceVersion": second.to_string()},
                "spec": {"holderIdentity": lease},
            },
            "requestReceivedTimestamp": time, "stageTimestamp": time, "stage": "ResponseComplete",
        });
        Event::parse(line.to_string().as_bytes()).expect("an event")
    }

    fn wrong(events: &[Event]) -> usize {
        writes_without_lease(events, |_| true).len()
    }

    #[test]
    fn a_leader_may_write_until_its_deadline() {
        let in_time = [event(1, "a", Some("a1")), event(11, "a", None)];
        assert_eq!(wrong(&in_time), 0);
        let too_late = [event(1, "a", Some("a1")), event(13, "a", None)];
        assert_eq!(wrong(&too_late), 1);
    }

    #[test]
    fn a_write_by_an_operator_that_is_not_the_leader_is_a_violation() {
        let mut scenario = vec![event(1, "a", Some("a1")), event(2, "b", None)];
        assert_eq!(wrong(&scenario), 1);
        scenario = vec![event(1, "a", Some("a1")), event(3, "b", Some("b1")), event(4, "a", None)];
        assert_eq!(wrong(&scenario), 1);
        assert_eq!(takeovers(&scenario), 1);
    }

    #[test]
    fn a_write_after_the_lease_was_released_is_a_violation() {
        let scenario = [event(1, "a", Some("a1")), event(2, "a", Some("")), event(3, "a", None)];
        assert_eq!(wrong(&scenario), 1);
    }
}
