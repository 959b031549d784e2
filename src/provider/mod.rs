//! The providers of metrics: each makes one call and returns its outcome. No state of a run is kept here;
//! [`gamekeeper_core::hook_run`] decides what an outcome means for the run.

mod address;
mod arguments;
mod authentication;
mod call_permit;
mod cluster;
mod command_output;
mod connection;
mod container_status;
mod exec;
mod filling;
mod http;
mod job;
mod judge;
mod keys;
mod kubernetes;
mod lookups;
mod measure;
mod own_pod;
mod prometheus;
mod query_result;
mod remote_command;
mod secrets;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;
mod web;

pub use exec::Commands;
pub use http::HttpOptions;
pub use measure::{Call, Probe, ProbeError};

use self::call_permit::CallPermit;
use self::measure::Measurement;
use gamekeeper_core::api::{MetricProvider, Provider};
use gamekeeper_core::hook_run::Outcome;

/// Makes the call of a measurement.
async fn call(measurement: &Measurement, permit: CallPermit) -> Outcome {
    let metric = measurement.metric();
    let mut given = metric.provider.given();
    match (given.next(), given.next()) {
        (Some(Provider::Web(web)), None) => web::measure(measurement, web, permit).await,
        (Some(Provider::Prometheus(prometheus)), None) => {
            prometheus::measure(measurement, prometheus, permit).await
        }
        (Some(Provider::Kubernetes(kubernetes)), None) => {
            kubernetes::measure(measurement, kubernetes, permit).await
        }
        (Some(Provider::Job(_)), None) => job::measure(measurement, permit).await,
        (Some(Provider::Exec(exec)), None) => exec::measure(measurement, exec, permit).await,
        (None, _) => Outcome::error(format!("metric {} has no provider: add one", metric.name)),
        (Some(_), Some(_)) => {
            let (name, names) = (&metric.name, MetricProvider::names());
            Outcome::error(format!("metric {name}: set one of {names}"))
        }
    }
}
