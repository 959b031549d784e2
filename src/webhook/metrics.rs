//! Metrics of admission. Labels have few values, and no caller can add one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use super::review::AdmissionRequest;
use crate::metrics::{Counts, Timing, Timings};
use gamekeeper_core::admission::KINDS;

/// From a review of cached knowledge alone to one that waited for the API server in vain.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 3.0];

/// What is asked about.
const OPERATIONS: [&str; 2] = ["CREATE", "UPDATE"];
/// How reviews end: failed_open is no answer, so that the API server lets the object pass.
const VERDICTS: [&str; 3] = ["allowed", "refused", "failed_open"];
/// How dry runs of pod templates end: with a verdict, or why there is none.
const OUTCOMES: [&str; 6] = [
    "accepted",
    "refused",
    "timeout",
    "forbidden",
    "unavailable",
    "unclear",
];
/// A kind or operation that is none of ours.
const OTHER: &str = "other";

/// Counters of admission.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionMetrics {
    reviews: Counts<ReviewLabels>,
    durations: Timings<RequestLabels>,
    dry_runs: Counts<DryRunLabels>,
    /// When the certificate that is served runs out.
    until: Arc<Mutex<Option<Timestamp>>>,
}

/// What a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub(super) struct RequestLabels {
    kind: &'static str,
    operation: &'static str,
}

impl RequestLabels {
    /// The labels of a request. Any pod may call the port, so unknown values become one.
    pub(super) fn of(request: &AdmissionRequest) -> Self {
        let kind = request.object["kind"].as_str().unwrap_or_default();
        let one_of = |known: &[&'static str], it: &str| {
            let known = known.iter().find(|known| **known == it);
            known.copied().unwrap_or(OTHER)
        };
        RequestLabels {
            kind: one_of(&KINDS, kind),
            operation: one_of(&OPERATIONS, &request.operation),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ReviewLabels {
    #[prometheus(flatten)]
    asked: RequestLabels,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct DryRunLabels {
    outcome: &'static str,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            reviews: Counts::default(),
            durations: Timings::new(|| Timing::new(&BUCKETS)),
            dry_runs: Counts::default(),
            until: Arc::default(),
        }
    }
}

impl AdmissionMetrics {
    /// Shows all series from the start, apart from those of unknown kinds or operations.
    pub(super) fn begin(&self) {
        for kind in KINDS {
            for operation in OPERATIONS {
                let asked = RequestLabels { kind, operation };
                self.durations.begin(asked);
                for verdict in VERDICTS {
                    self.reviews.begin(ReviewLabels { asked, verdict });
                }
            }
        }
        for outcome in OUTCOMES {
            self.dry_runs.begin(DryRunLabels { outcome });
        }
    }

    /// Counts a review; `allowed` is None when there was no answer.
    pub(super) fn reviewed(&self, asked: RequestLabels, allowed: Option<bool>, took: Duration) {
        let [yes, no, unanswered] = VERDICTS;
        let verdict = allowed.map_or(unanswered, |allowed| if allowed { yes } else { no });
        self.reviews.add(ReviewLabels { asked, verdict });
        self.durations.observe(asked, took);
    }

    /// Counts a dry run of a pod template that ended so.
    pub(super) fn dry_run(&self, outcome: &'static str) {
        self.dry_runs.add(DryRunLabels { outcome });
    }

    /// From now on a certificate is served that runs out then.
    pub(super) fn serves_until(&self, until: Timestamp) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

impl Collector for AdmissionMetrics {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut to;
        let help = "Objects that the API server sent for admission";
        self.reviews
            .encode(to, "gamekeeper_admission_requests", help)?;
        let name = "gamekeeper_admission_request_duration_seconds";
        self.durations
            .encode(to, name, "Duration of an admission review")?;
        let help = "Pod templates that were sent to the API server as a dry run";
        let name = "gamekeeper_admission_template_dry_runs";
        self.dry_runs.encode(to, name, help)?;
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let name = "gamekeeper_admission_certificate_expiry_timestamp_seconds";
        let help = "When the certificate that the webhook serves expires";
        let mut gauge = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        match until {
            Some(until) => gauge.encode_gauge(&(until.as_second() as f64)),
            None => Ok(()),
        }
    }
}
