//! How well the victim is served: how long its hooks take, and looks at its workload.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use judge::Event;
use judge::object::text;

use super::{Stage, VICTIM};

/// Histogram of the looks at a GameDeployment.
const LOOKS: &str = "bkbcs_gamedeployment_reconcile_duration_seconds_bucket{";

/// Looks so far, by the upper bound of their time in microseconds; each bound counts those below it too.
type Looks = BTreeMap<u64, f64>;

/// A moment from which on it is measured.
pub struct Since {
    moment: Timestamp,
    looks: Looks,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// HookRuns that ended Successful.
    pub hooks: usize,
    /// From a HookRun's creation to its end: the time that half of them and 99 of 100 stay below.
    pub hook: [Duration; 2],
    /// The same of looks at the workload.
    pub look: [Duration; 2],
}

impl Stage {
    /// From now on.
    pub async fn since_now(&self) -> Result<Since> {
        Ok(Since {
            moment: Timestamp::now(),
            looks: self.looks().await?,
        })
    }

    /// What was measured since then.
    pub async fn figures(&self, since: &Since) -> Result<Figures> {
        let events = self.plane.audit.writes(VICTIM)?;
        let hooks = hook_times(&events, since.moment);
        let mut looks = self.looks().await?;
        for (bound, count) in &mut looks {
            *count -= since.looks.get(bound).copied().unwrap_or_default();
        }
        Ok(Figures {
            hooks: hooks.len(),
            hook: [50, 99].map(|percent| at(&hooks, percent)),
            look: [0.5, 0.99].map(|part| below(&looks, part)),
        })
    }

    async fn looks(&self) -> Result<Looks> {
        let (_, page) = self.operator.get("/metrics").await?;
        let of_victim = format!("gd=\"{VICTIM}/");
        let mut looks = Looks::new();
        let lines = page.lines().filter_map(|line| line.strip_prefix(LOOKS));
        for line in lines.filter(|line| line.contains(&of_victim)) {
            let (bound, rest) = line
                .strip_prefix("le=\"")
                .and_then(|rest| rest.split_once('"'))
                .context("a bucket has a bound")?;
            let bound = match bound {
                "+Inf" => u64::MAX,
                bound => (bound.parse::<f64>()? * 1e6) as u64,
            };
            let count: f64 = rest.rsplit(' ').next().unwrap_or_default().parse()?;
            *looks.entry(bound).or_default() += count;
        }
        Ok(looks)
    }
}

/// How long each HookRun took that was made after a moment, the shortest first. By name, which is another
/// one in each rollout: of what the operator writes, it has little sent back.
fn hook_times(events: &[Event], since: Timestamp) -> Vec<Duration> {
    let mut made = BTreeMap::new();
    let mut times = BTreeMap::new();
    for event in events.iter().filter(|event| event.received >= since) {
        let (Some(about), Some(sent)) = (&event.object_ref, &event.request_object) else {
            continue;
        };
        if about.resource != "hookruns" {
            continue;
        }
        if event.verb == "create" {
            made.insert(text(sent, "/metadata/name").to_owned(), event.received);
        } else if text(sent, "/status/phase") == "Successful"
            && let Some(made) = made.get(&about.name)
        {
            let took = event.done.duration_since(*made);
            let took = Duration::try_from(took).unwrap_or_default();
            times.entry(about.name.clone()).or_insert(took);
        }
    }
    let mut times: Vec<Duration> = times.into_values().collect();
    times.sort();
    times
}

/// The time that so many in a hundred stay below.
fn at(times: &[Duration], percent: usize) -> Duration {
    let last = times.len().saturating_sub(1);
    let at = times.get((last * percent).div_ceil(100));
    at.copied().unwrap_or_default()
}

/// The time that this part of what is in a histogram stays below, as Prometheus reckons it.
fn below(looks: &Looks, part: f64) -> Duration {
    let all = looks.values().copied().fold(0.0, f64::max);
    let wanted = all * part;
    let (mut low, mut before) = (0, 0.0);
    for (&bound, &count) in looks {
        if count >= wanted && count > before {
            if bound == u64::MAX {
                break;
            }
            let share = (wanted - before) / (count - before);
            let micros = low as f64 + (bound - low) as f64 * share.clamp(0.0, 1.0);
            return Duration::from_micros(micros as u64);
        }
        (low, before) = (bound, count);
    }
    Duration::from_micros(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_takes_from_its_creation_to_the_write_that_says_how_it_ended() {
        let event = |second: i64, verb: &str, name: &str, sent: serde_json::Value| {
            let moment = Timestamp::from_second(1_700_000_000 + second).expect("a moment");
            let event = serde_json::json!({
                "verb": verb, "requestURI": "/x", "user": {"username": "x"},
                "objectRef": {"resource": "hookruns", "name": name}, "requestObject": sent,
                "requestReceivedTimestamp": moment, "stageTimestamp": moment,
                "stage": "ResponseComplete",
            });
            serde_json::from_value::<Event>(event).expect("an event")
        };
        let named = |name: &str| serde_json::json!({"metadata": {"name": name}});
        let phase = |phase: &str| serde_json::json!({"status": {"phase": phase}});
        let events = [
            event(0, "create", "", named("early")),
            event(5, "create", "", named("a")),
            event(6, "create", "", named("b")),
            event(6, "patch", "early", phase("Successful")),
            event(7, "patch", "a", phase("Running")),
            event(9, "patch", "b", phase("Successful")),
            event(9, "patch", "a", phase("Successful")),
        ];
        let since = Timestamp::from_second(1_700_000_003).expect("a moment");
        let seconds = Duration::from_secs;
        assert_eq!(hook_times(&events, since), [seconds(3), seconds(4)]);
    }

    #[test]
    fn a_part_of_a_histogram_is_found_between_its_bounds() {
        let looks = Looks::from([
            (1_000, 50.0),
            (2_000, 90.0),
            (4_000, 100.0),
            (u64::MAX, 100.0),
        ]);
        assert_eq!(below(&looks, 0.5), Duration::from_micros(1_000));
        assert_eq!(below(&looks, 0.7), Duration::from_micros(1_500));
        assert_eq!(below(&looks, 0.95), Duration::from_micros(3_000));
        assert_eq!(below(&Looks::new(), 0.99), Duration::ZERO);
    }
}
