//! One measurement, whatever its provider.

use std::sync::Arc;

use super::arguments::Arguments;
use super::http::{Http, HttpOptions};
use super::web;
use crate::api::{HookRun, Metric};
use crate::expr::Guard;
use crate::plan::hook_run::Outcome;

/// A measurement to make.
#[derive(Clone, Debug)]
pub struct Call {
    /// The run.
    pub run: Arc<HookRun>,
    /// Index of the metric.
    pub metric: usize,
    /// Number of the measurement; the first is 1.
    pub number: i32,
}

/// Makes measurements.
#[derive(Clone)]
pub struct Probe {
    http: Arc<Http>,
    guard: Guard,
}

/// Measurements cannot be made at all.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// TLS cannot be set up.
    #[error("hooks cannot make HTTP calls: {0}")]
    Http(#[from] reqwest::Error),
    /// The operating system gives no threads.
    #[error("hooks cannot evaluate conditions: {0}")]
    Threads(#[from] std::io::Error),
}

impl Probe {
    /// Sets everything up that measurements share.
    ///
    /// # Errors
    /// When the system does not give what is needed.
    pub fn new(options: HttpOptions) -> Result<Self, ProbeError> {
        Ok(Probe {
            http: Arc::new(Http::new(options)?),
            guard: Guard::start()?,
        })
    }

    /// Makes a measurement. Whatever goes wrong is its outcome.
    pub async fn measure(&self, call: &Call) -> Outcome {
        let Some(metric) = call.run.spec.metrics.get(call.metric) else {
            return Outcome::error("the metric is not there");
        };
        let arguments = Arguments::of(&call.run.spec.args);
        let provider = &metric.provider;
        match (
            &provider.web,
            &provider.prometheus,
            &provider.kubernetes,
            &provider.job,
        ) {
            (Some(web), None, None, None) => {
                let key = idempotency_key(call, metric);
                web::measure(&self.http, &self.guard, metric, web, &arguments, &key).await
            }
            (None, None, None, None) => Outcome::error(format!(
                "metric {} has no provider: give it one",
                metric.name
            )),
            _ => Outcome::error(format!(
                "metric {}: this provider is not supported: write web",
                metric.name
            )),
        }
    }
}

/// The same for each attempt at a measurement, and for no other measurement. What a header cannot
/// hold is escaped.
fn idempotency_key(call: &Call, metric: &Metric) -> String {
    let name: String = metric
        .name
        .bytes()
        .map(|byte| match byte {
            b'!'..=b'~' if byte != b'%' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    let run = call.run.metadata.uid.as_deref().unwrap_or_default();
    format!("{run}/{name}/{}", call.number)
}
