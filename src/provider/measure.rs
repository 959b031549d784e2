//! One measurement, whatever its provider.

use std::sync::Arc;

use kube::Client;
use reqwest::StatusCode;
use reqwest::header::AUTHORIZATION;

use super::arguments::Arguments;
use super::authentication::Tokens;
use super::cluster::Cluster;
use super::http::{Answer, Authorities, Http, HttpOptions, Request};
use super::{job, kubernetes, prometheus, web};
use crate::api::{Authentication, HookRun, Metric, SecretKeyRef};
use crate::expr::Guard;
use crate::plan::hook_run::{Outcome, used_arguments};

/// A measurement to make.
#[derive(Clone, Debug)]
pub struct Call {
    /// The run.
    pub run: Arc<HookRun>,
    /// Index of the metric.
    pub metric: usize,
    /// Number of the measurement; the first is 1.
    pub number: i32,
    /// Whether it was begun already, and is only to be looked at.
    pub resumed: bool,
}

/// Makes measurements.
#[derive(Clone)]
pub struct Probe {
    pub(super) http: Arc<Http>,
    pub(super) guard: Guard,
    tokens: Arc<Tokens>,
    cluster: Option<Cluster>,
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
    /// Sets everything up that measurements share. Without a cluster there are no Secrets and no
    /// Kubernetes metrics.
    ///
    /// # Errors
    /// When the system does not give what is needed.
    pub fn new(options: HttpOptions, cluster: Option<Client>) -> Result<Self, ProbeError> {
        Ok(Probe {
            http: Arc::new(Http::new(options)?),
            guard: Guard::start()?,
            tokens: Arc::default(),
            cluster: cluster.map(Cluster::new),
        })
    }

    /// Ends what a measurement that nobody waits for any more has left running.
    ///
    /// # Errors
    /// In words, when that may still run.
    pub async fn stop(&self, call: &Call) -> Result<(), String> {
        let metric = call.run.spec.metrics.get(call.metric);
        let of_job = metric.filter(|metric| metric.provider.job.is_some());
        match (of_job, &self.cluster) {
            (Some(metric), Some(cluster)) => {
                job::stop(cluster, &call.run, &metric.name, call.number).await
            }
            _ => Ok(()),
        }
    }

    /// Makes a measurement. Whatever goes wrong is its outcome.
    pub async fn measure(&self, call: &Call) -> Outcome {
        let Some(metric) = call.run.spec.metrics.get(call.metric) else {
            return Outcome::error("the metric is not there");
        };
        let mut names = used_arguments(metric);
        if metric.provider.kubernetes.is_some() {
            names.extend(kubernetes::POD_ARGUMENTS.map(str::to_owned));
        }
        let arguments = Arguments::resolve(&call.run, &names, self.cluster.as_ref()).await;
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(why) => return Outcome::error(why),
        };
        let measurement = Measurement {
            probe: self,
            run: &call.run,
            metric,
            arguments: &arguments,
            number: call.number,
            resumed: call.resumed,
        };
        let mut outcome = measurement.make().await;
        let hide = |text| arguments.secrets.hide(text);
        let one_line = |text: String| text.replace(char::is_control, " ");
        outcome.message = outcome.message.map(hide).map(one_line);
        outcome.value = outcome.value.map(hide).map(|value| escaped(&value));
        outcome
    }
}

/// A text as it can be printed. Servers choose what is measured, and a terminal would do what control
/// characters tell it to.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped
}

/// How the two ends of a call know each other.
pub(super) struct Trust<'a> {
    pub authentication: Option<&'a Authentication>,
    pub ca: Option<&'a SecretKeyRef>,
}

/// A measurement with everything that it needs.
pub(super) struct Measurement<'a> {
    pub probe: &'a Probe,
    pub run: &'a HookRun,
    pub metric: &'a Metric,
    pub arguments: &'a Arguments,
    pub number: i32,
    pub resumed: bool,
}

impl Measurement<'_> {
    async fn make(&self) -> Outcome {
        let name = &self.metric.name;
        let provider = &self.metric.provider;
        match (
            &provider.web,
            &provider.prometheus,
            &provider.kubernetes,
            &provider.job,
        ) {
            (Some(web), None, None, None) => web::measure(self, web).await,
            (None, Some(prometheus), None, None) => prometheus::measure(self, prometheus).await,
            (None, None, Some(kubernetes), None) => kubernetes::measure(self, kubernetes).await,
            (None, None, None, Some(job)) => job::measure(self, job).await,
            (None, None, None, None) => {
                Outcome::error(format!("metric {name} has no provider: give it one"))
            }
            _ => Outcome::error(format!(
                "metric {name}: write one of web, prometheus, kubernetes and job"
            )),
        }
    }

    /// The cluster that the run is in.
    pub(super) fn cluster(&self) -> Result<&super::cluster::Cluster, String> {
        self.probe
            .cluster
            .as_ref()
            .ok_or_else(|| "this metric needs a cluster".into())
    }

    /// Fills arguments into a field of the metric.
    pub(super) fn fill(&self, field: &str, text: &str) -> Result<String, String> {
        self.arguments
            .fill(text)
            .map_err(|error| format!("{field}: {error}"))
    }

    /// Sends a request, signed, and has its answer assessed on the guard's threads.
    pub(super) async fn send(
        &self,
        mut request: Request,
        Trust { authentication, ca }: Trust<'_>,
        assess: impl FnOnce(Answer) -> Outcome + Send + 'static,
    ) -> Outcome {
        let probe = self.probe;
        request.secrets.extend(&self.arguments.secrets);
        let namespace = self.run.metadata.namespace.as_deref().unwrap_or_default();
        request.namespace = namespace.to_owned();
        let cluster = probe.cluster.as_ref();
        let mut of_tokens = None;
        if let Some(key) = ca {
            let Some(cluster) = cluster else {
                return Outcome::error("caSecret: needs a cluster");
            };
            match cluster.secret(namespace, key).await {
                Ok(ca) => {
                    // Tokens may come from the same house, or from a server that everybody trusts.
                    of_tokens = Some(Authorities::Also(ca.clone()));
                    request.ca = Some(Authorities::Only(ca));
                }
                Err(why) => return Outcome::error(format!("caSecret: {why}")),
            }
        }
        let mut credentials = None;
        if let Some(authentication) = authentication {
            let tokens = &probe.tokens;
            match tokens
                .credentials(authentication, namespace, cluster, &probe.http, of_tokens)
                .await
            {
                Ok(had) => {
                    request.headers.insert(AUTHORIZATION, had.header.clone());
                    request.secrets.extend(&had.secrets);
                    credentials = Some(had);
                }
                Err(why) => return Outcome::error(why),
            }
        }
        let answer = match probe.http.send(request).await {
            Ok(answer) => answer,
            Err(why) => return Outcome::error(why),
        };
        if answer.status == StatusCode::UNAUTHORIZED
            && let Some(credentials) = &credentials
        {
            probe.tokens.refused(credentials);
        }
        let assessed = probe.guard.run(namespace, move || assess(answer)).await;
        assessed.unwrap_or_else(|panicked| Outcome::error(panicked.to_string()))
    }

    /// The same for each attempt at a measurement, and for no other measurement. What a header
    /// cannot hold is escaped.
    pub(super) fn idempotency_key(&self) -> String {
        let name: String = self
            .metric
            .name
            .bytes()
            .map(|byte| match byte {
                b'!'..=b'~' if byte != b'%' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        let run = self.run.metadata.uid.as_deref().unwrap_or_default();
        format!("{run}/{name}/{}", self.number)
    }
}
