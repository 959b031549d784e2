//! Metrics of admission. Labels have few values, and callers cannot add any.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};

use super::review::AdmissionRequest;
use crate::runtime::metrics::{Counts, Timings, encode_one};
use gamekeeper_core::admission::KINDS;

/// Histogram buckets, in seconds. The shortest reviews make no request to the API server, the longest time out.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 3.0];

const OPERATIONS: [&str; 2] = ["CREATE", "UPDATE"];
/// `failed_open` means that there was no response, so the API server admitted the object.
const VERDICTS: [&str; 3] = ["allowed", "refused", "failed_open"];
/// The kind of the pods that get sidecars.
const POD: &str = "Pod";
/// The verdict if there was no response, so the API server refused the pod.
const POD_FAILED: &str = "failed_closed";
/// The kinds whose pod templates are tried in a dry run.
const TRIED_KINDS: [&str; 3] = ["GameDeployment", "GameStatefulSet", "SidecarSet"];
/// Results of dry runs of pod templates: a verdict, or why there is none.
const OUTCOMES: [&str; 6] =
    ["accepted", "refused", "timeout", "forbidden", "unavailable", "unclear"];
/// Any other kind or operation.
const OTHER: &str = "other";

#[derive(Clone, Debug)]
pub(crate) struct AdmissionMetrics {
    reviews: Counts<ReviewLabels>,
    durations: Timings<RequestLabels>,
    dry_runs: Counts<DryRunLabels>,
    certificate_expiry: Arc<Mutex<Option<Timestamp>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub(super) struct RequestLabels {
    kind: &'static str,
    operation: &'static str,
}

impl RequestLabels {
    /// Any pod can call the port, so all unknown values share one label value.
    pub(super) fn of(request: &AdmissionRequest) -> Self {
        let kind = request.object["kind"].as_str().unwrap_or_default();
        let one_of = |known: &[&'static str], value: &str| {
            let known = known.iter().find(|known| **known == value);
            known.copied().unwrap_or(OTHER)
        };
        RequestLabels {
            kind: if kind == POD { POD } else { one_of(&KINDS, kind) },
            operation: one_of(&OPERATIONS, &request.operation),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ReviewLabels {
    #[prometheus(flatten)]
    request: RequestLabels,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct DryRunLabels {
    kind: &'static str,
    outcome: &'static str,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            reviews: Counts::default(),
            durations: Timings::with_buckets(&BUCKETS),
            dry_runs: Counts::default(),
            certificate_expiry: Arc::default(),
        }
    }
}

impl AdmissionMetrics {
    /// Adds all series, except those of unknown kinds or operations.
    pub(super) fn init(&self) {
        for kind in KINDS {
            for operation in OPERATIONS {
                let request = RequestLabels { kind, operation };
                self.durations.init(request);
                for verdict in VERDICTS {
                    self.reviews.init(ReviewLabels { request, verdict });
                }
            }
        }
        let request = RequestLabels { kind: POD, operation: "CREATE" };
        self.durations.init(request);
        for verdict in ["allowed", POD_FAILED] {
            self.reviews.init(ReviewLabels { request, verdict });
        }
        for kind in TRIED_KINDS {
            for outcome in OUTCOMES {
                self.dry_runs.init(DryRunLabels { kind, outcome });
            }
        }
    }

    /// Counts a review. `allowed` is None if there was no response.
    pub(super) fn reviewed(&self, request: RequestLabels, allowed: Option<bool>, took: Duration) {
        let [yes, no, failed_open] = VERDICTS;
        let failed = if request.kind == POD { POD_FAILED } else { failed_open };
        let verdict = allowed.map_or(failed, |allowed| if allowed { yes } else { no });
        self.reviews.increment(ReviewLabels { request, verdict });
        self.durations.observe(request, took);
    }

    pub(super) fn dry_run(&self, request: RequestLabels, outcome: &'static str) {
        let kind = request.kind;
        self.dry_runs.increment(DryRunLabels { kind, outcome });
    }

    pub(super) fn set_certificate_expiry(&self, expiry: Timestamp) {
        *self.certificate_expiry() = Some(expiry);
    }

    fn certificate_expiry(&self) -> MutexGuard<'_, Option<Timestamp>> {
        let expiry = self.certificate_expiry.lock();
        expiry.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for AdmissionMetrics {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut to;
        let help = "Objects that the API server sent for admission";
        self.reviews.encode(to, "gamekeeper_admission_requests", help)?;
        let name = "gamekeeper_admission_request_duration_seconds";
        self.durations.encode(to, name, "Duration of an admission review")?;
        let help = "Pod templates that were sent to the API server as a dry run";
        let name = "gamekeeper_admission_template_dry_runs";
        self.dry_runs.encode(to, name, help)?;
        let name = "gamekeeper_admission_certificate_expiry_timestamp_seconds";
        let help = "When the certificate that the webhook serves expires";
        let expiry = *self.certificate_expiry();
        let expiry = expiry.map(|it| it.as_second() as f64);
        encode_one(to, name, help, expiry)
    }
}
