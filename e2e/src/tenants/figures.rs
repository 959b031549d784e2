//! How the victim fares: how long its hooks, the reconciles of its workload and its API writes take, and how much
//! processor time the operator and the API server use.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use judge::Event;
use judge::object::text;

use super::{HealthProbes, Stage, VICTIM};

/// Histogram of the durations of a GameDeployment's reconciles.
const RECONCILES: &str = "bkbcs_gamedeployment_reconcile_duration_seconds_bucket{";

/// Reconciles so far, by the upper bound of their time in microseconds. Buckets are cumulative.
type Reconciles = BTreeMap<u64, f64>;

/// The start of a measurement.
pub struct MeasurementStart {
    moment: Timestamp,
    started: Instant,
    busy: [Duration; 2],
    reconciles: Reconciles,
    health: HealthProbes,
}

/// The result of a measurement. Each pair of durations is `[p50, p99]`.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// How many HookRuns ended Successful.
    pub hooks: usize,
    /// From a HookRun's creation to its end.
    pub hook: [Duration; 2],
    /// The part of `hook` from the API server's response to the create request until a watch delivers the HookRun.
    pub delivery: [Duration; 2],
    /// The part of `hook` from the delivery until the API server receives the write that ends the HookRun.
    pub operator: [Duration; 2],
    /// The workload's reconciles.
    pub reconcile: [Duration; 2],
    /// Writes in the victim's namespace, from the API server's receipt of the request to its response.
    pub write: [Duration; 2],
    /// The slowest probe of /healthz.
    pub health: Duration,
    /// How many processors the operator and the API server used on average, in this order.
    pub busy: [f64; 2],
    /// The operator's peak resident memory, in bytes.
    pub memory: u64,
}

impl Stage {
    /// Starts a measurement.
    pub async fn start_measurement(&self) -> Result<MeasurementStart> {
        self.operator.reset_peak_memory()?;
        Ok(MeasurementStart {
            moment: Timestamp::now(),
            started: Instant::now(),
            busy: self.processor_time()?,
            reconciles: self.reconciles().await?,
            health: self.probe_health()?,
        })
    }

    /// Ends a measurement.
    pub async fn figures(&self, start: MeasurementStart) -> Result<Figures> {
        let health = start.health.slowest()?;
        let events = self.plane.audit.writes(VICTIM)?;
        let [hooks, deliveries, operator] =
            hook_times(&events, start.moment, &self.deliveries.by_name());
        let mut reconciles = self.reconciles().await?;
        for (bound, count) in &mut reconciles {
            *count -= start.reconciles.get(bound).copied().unwrap_or_default();
        }
        let mut writes: Vec<Duration> = events
            .iter()
            .filter(|event| event.received >= start.moment)
            .map(|event| Duration::try_from(event.done.duration_since(event.received)))
            .map(Result::unwrap_or_default)
            .collect();
        writes.sort();
        let elapsed = start.started.elapsed();
        let busy = self.processor_time()?;
        Ok(Figures {
            hooks: hooks.len(),
            health,
            write: [50, 99].map(|percent| percentile(&writes, percent)),
            memory: self.operator.peak_memory()?,
            busy: [0, 1].map(|i| (busy[i] - start.busy[i]).div_duration_f64(elapsed)),
            hook: [50, 99].map(|percent| percentile(&hooks, percent)),
            delivery: [50, 99].map(|percent| percentile(&deliveries, percent)),
            operator: [50, 99].map(|percent| percentile(&operator, percent)),
            reconcile: [0.5, 0.99].map(|part| quantile(&reconciles, part)),
        })
    }

    /// The processor time of the operator and of the API server.
    fn processor_time(&self) -> Result<[Duration; 2]> {
        let server = self.plane.processor_time("kube-apiserver")?;
        Ok([self.operator.processor_time()?, server])
    }

    async fn reconciles(&self) -> Result<Reconciles> {
        let (_, page) = self.operator.get("/metrics").await?;
        let victim_label = format!("gd=\"{VICTIM}/");
        let mut reconciles = Reconciles::new();
        let lines = page.lines().filter_map(|line| line.strip_prefix(RECONCILES));
        for line in lines.filter(|line| line.contains(&victim_label)) {
            let (bound, rest) = line
                .strip_prefix("le=\"")
                .and_then(|rest| rest.split_once('"'))
                .context("a bucket has a bound")?;
            let bound = match bound {
                "+Inf" => u64::MAX,
                bound => (bound.parse::<f64>()? * 1e6) as u64,
            };
            let count: f64 = rest.rsplit(' ').next().unwrap_or_default().parse()?;
            *reconciles.entry(bound).or_default() += count;
        }
        Ok(reconciles)
    }
}

/// The times of the HookRuns that were created since a moment and ended Successful. Returns three lists, each in
/// ascending order: the total times, the times until delivery, and the times after delivery. Runs are matched by name,
/// because the responses to the operator's patches do not contain the whole object.
fn hook_times(
    events: &[Event],
    since: Timestamp,
    delivered: &BTreeMap<String, Timestamp>,
) -> [Vec<Duration>; 3] {
    let mut created = BTreeMap::new();
    let mut times = BTreeMap::new();
    for event in events.iter().filter(|event| event.received >= since) {
        let (Some(object), Some(body)) = (&event.object_ref, &event.request_object) else {
            continue;
        };
        if object.resource != "hookruns" {
            continue;
        }
        if event.verb == "create" {
            created.insert(text(body, "/metadata/name").to_owned(), event);
        } else if text(body, "/status/phase") == "Successful"
            && let Some(create) = created.get(&object.name)
            && let Some(delivered) = delivered.get(&object.name)
        {
            let parts = [
                event.done.duration_since(create.received),
                delivered.duration_since(create.done),
                event.received.duration_since(*delivered),
            ];
            // One watch may lag slightly behind the other: a negative time counts as zero.
            let parts = parts.map(|part| Duration::try_from(part).unwrap_or_default());
            times.entry(object.name.clone()).or_insert(parts);
        }
    }
    [0, 1, 2].map(|index| {
        let mut part: Vec<Duration> = times.values().map(|parts| parts[index]).collect();
        part.sort();
        part
    })
}

/// A percentile of ascending times.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    let last = times.len().saturating_sub(1);
    let time = times.get((last * percent).div_ceil(100));
    time.copied().unwrap_or_default()
}

/// A quantile of a histogram, interpolated as Prometheus does.
fn quantile(reconciles: &Reconciles, part: f64) -> Duration {
    let total = reconciles.values().copied().fold(0.0, f64::max);
    let rank = total * part;
    let (mut lower_bound, mut count_below) = (0, 0.0);
    for (&bound, &count) in reconciles {
        if count >= rank && count > count_below {
            if bound == u64::MAX {
                break;
            }
            let share = (rank - count_below) / (count - count_below);
            let micros = lower_bound as f64 + (bound - lower_bound) as f64 * share.clamp(0.0, 1.0);
            return Duration::from_micros(micros as u64);
        }
        (lower_bound, count_below) = (bound, count);
    }
    Duration::from_micros(lower_bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hooks_time_runs_from_creation_to_the_final_status_and_has_two_parts() {
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
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).expect("a moment");
        let delivered = BTreeMap::from([("a".to_owned(), at(6)), ("b".to_owned(), at(10))]);
        let [times, deliveries, operator] = hook_times(&events, at(3), &delivered);
        let seconds = Duration::from_secs;
        assert_eq!(times, [seconds(3), seconds(4)]);
        assert_eq!(deliveries, [seconds(1), seconds(4)]);
        // The run b ended before its delivery to the watch.
        assert_eq!(operator, [seconds(0), seconds(3)]);
    }

    #[test]
    fn a_quantile_is_interpolated_within_its_bucket() {
        let reconciles =
            Reconciles::from([(1_000, 50.0), (2_000, 90.0), (4_000, 100.0), (u64::MAX, 100.0)]);
        assert_eq!(quantile(&reconciles, 0.5), Duration::from_micros(1_000));
        assert_eq!(quantile(&reconciles, 0.7), Duration::from_micros(1_500));
        assert_eq!(quantile(&reconciles, 0.95), Duration::from_micros(3_000));
        assert_eq!(quantile(&Reconciles::new(), 0.99), Duration::ZERO);
    }
}
