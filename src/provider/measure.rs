//! Makes one measurement, with any provider.

use std::sync::Arc;

use http::StatusCode;
use http::header::AUTHORIZATION;
use kube::Client;
use tokio::task::JoinSet;

use super::arguments::Arguments;
use super::authentication::credentials;
use super::call_permit::{CallLimits, CallPermit};
use super::cluster::Cluster;
use super::exec::Commands;
use super::filling::Filling;
use super::http::{Http, HttpOptions, HttpRequest, HttpResponse};
use super::job;
use super::tls::Authorities;
use super::tokens::Tokens;
use crate::runtime::evaluation_pool::EvaluationPool;
use crate::runtime::threads::OwnRuntime;
use gamekeeper_core::api::{Authentication, HookRun, JobReference, Metric, SecretKeyRef};
use gamekeeper_core::hook_run::Outcome;

/// A measurement to make.
#[derive(Clone, Debug)]
pub struct Call {
    /// The run.
    pub run: Arc<HookRun>,
    /// Index of the metric.
    pub metric: usize,
    /// Number of the measurement; the first is 1.
    pub number: i32,
    /// The Job that was created for the measurement, if it is in progress.
    pub job: Option<JobReference>,
}

/// Makes measurements.
#[derive(Clone)]
pub struct Probe {
    pub(super) http: Arc<Http>,
    pub(super) evaluation: EvaluationPool,
    pub(super) limits: Arc<CallLimits>,
    tokens: Arc<Tokens>,
    runtime: Arc<OwnRuntime>,
    pub(super) cluster: Option<Cluster>,
    pub(super) commands: Commands,
}

/// Why no measurements can be made.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// TLS cannot be set up.
    #[error("hooks cannot make HTTP calls: {0}")]
    Http(#[from] rustls::Error),
    /// The operating system cannot start threads.
    #[error("hooks cannot start threads: {0}")]
    Threads(#[from] std::io::Error),
}

impl Probe {
    /// Sets up everything that measurements share. If `cluster` is None, Secrets cannot be read, and metrics that
    /// need a cluster end in an error. No commands are run, unless [`Self::with_commands`] allows them.
    ///
    /// # Errors
    /// Fails if TLS or the threads cannot be set up.
    pub fn new(options: HttpOptions, cluster: Option<Client>) -> Result<Self, ProbeError> {
        Ok(Probe {
            http: Arc::new(Http::new(options)?),
            evaluation: EvaluationPool::start()?,
            limits: Arc::default(),
            tokens: Arc::default(),
            runtime: Arc::new(OwnRuntime::start("hook-calls", true)?),
            cluster: cluster.map(Cluster::new),
            commands: Commands::default(),
        })
    }

    /// Lets the probe run the commands of exec metrics where `commands` allows it.
    pub fn with_commands(self, commands: Commands) -> Self {
        Probe { commands, ..self }
    }

    /// Deletes the Job that an abandoned measurement has left running, if there is one.
    ///
    /// # Errors
    /// Fails if the Job may still be running.
    pub async fn stop(&self, call: &Call) -> Result<(), String> {
        let metric = call.run.spec.metrics.get(call.metric);
        let job_metric = metric.filter(|metric| metric.provider.job.is_some());
        match (job_metric, &self.cluster) {
            (Some(metric), Some(cluster)) => {
                let namespace = call.run.metadata.namespace.as_deref().unwrap_or_default();
                let mut permit = self.limits.enter(namespace).await;
                job::stop(cluster, call, &metric.name, &mut permit).await
            }
            _ => Ok(()),
        }
    }

    /// Makes a measurement, on the runtime of calls. Any error becomes the outcome.
    pub async fn measure(&self, call: &Call) -> Outcome {
        let (probe, call) = (self.clone(), call.clone());
        // When this future is dropped, the task is aborted.
        let mut task = JoinSet::new();
        task.spawn_on(probe.measure_here(call), self.runtime.handle());
        let ended = task.join_next().await.and_then(Result::ok);
        ended.unwrap_or_else(|| Outcome::error("internal error (bug in gamekeeper)"))
    }

    async fn measure_here(self, call: Call) -> Outcome {
        if call.run.spec.metrics.len() <= call.metric {
            return Outcome::error("the metric does not exist");
        }
        let namespace = call.run.metadata.namespace.as_deref().unwrap_or_default();
        // The permit comes first, because it covers all memory for the measurement.
        let mut permit = self.limits.enter(namespace).await;
        let arguments = Arguments::look_up(&self, &call.run, call.metric, &mut permit).await;
        let arguments = match arguments {
            Ok(arguments) => Arc::new(arguments),
            Err(why) => return Outcome::error(why),
        };
        let measurement = Measurement { probe: self, call, arguments: Arc::clone(&arguments) };
        let mut outcome = super::call(&measurement, permit).await;
        let hide = |text| arguments.secrets.hide(text);
        let one_line = |text: String| text.replace(char::is_control, " ");
        outcome.message = outcome.message.map(hide).map(one_line);
        outcome.value = outcome.value.map(hide).map(|value| escaped(&value));
        outcome
    }
}

/// Escapes the control characters of a text. The text comes from a server, and a terminal would execute control
/// characters.
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

/// How the client and the server of a call authenticate each other.
pub(super) struct Trust<'a> {
    pub authentication: Option<&'a Authentication>,
    pub ca: Option<&'a SecretKeyRef>,
}

/// A measurement, with everything that it needs except its permit.
#[derive(Clone)]
pub(super) struct Measurement {
    pub probe: Probe,
    pub call: Call,
    pub arguments: Arc<Arguments>,
}

impl Measurement {
    pub(super) fn run(&self) -> &HookRun {
        &self.call.run
    }

    pub(super) fn metric(&self) -> &Metric {
        &self.call.run.spec.metrics[self.call.metric]
    }

    /// The cluster that the run is in.
    pub(super) fn cluster(&self) -> Result<&Cluster, String> {
        let cluster = self.probe.cluster.as_ref();
        cluster.ok_or_else(|| "this metric needs a cluster".into())
    }

    /// Runs work on the evaluation pool.
    pub(super) async fn evaluated<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let namespace = self.run().metadata.namespace.as_deref().unwrap_or_default();
        let done = self.probe.evaluation.run(namespace, work).await;
        done.map_err(|panicked| panicked.to_string())
    }

    /// Fills arguments into the metric's texts. If the texts become too long for the permit, this waits for a permit
    /// for long texts, and fills them again.
    pub(super) async fn filled<T: Send + 'static>(
        &self,
        permit: &mut CallPermit,
        fill: fn(&Measurement, &mut Filling<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        loop {
            let (measurement, allows_long_texts) = (self.clone(), permit.allows_long_texts());
            let filled = self.evaluated(move || {
                let mut filling = Filling::new(
                    measurement.arguments.values(measurement.run()),
                    allows_long_texts,
                );
                let filled = fill(&measurement, &mut filling);
                (filled, filling.overflowed())
            });
            match filled.await? {
                (Err(_), true) if !allows_long_texts => permit.grow().await,
                (filled, _) => return filled,
            }
        }
    }

    /// Authenticates and sends a request, and assesses its response on the evaluation pool.
    pub(super) async fn send(
        &self,
        request: HttpRequest,
        trust: Trust<'_>,
        permit: CallPermit,
        assess: impl FnOnce(&HttpResponse) -> Outcome + Send + 'static,
    ) -> Outcome {
        let outcome = self.try_send(request, trust, permit, assess).await;
        outcome.unwrap_or_else(Outcome::error)
    }

    async fn try_send(
        &self,
        mut request: HttpRequest,
        Trust { authentication, ca }: Trust<'_>,
        mut permit: CallPermit,
        assess: impl FnOnce(&HttpResponse) -> Outcome + Send + 'static,
    ) -> Result<Outcome, String> {
        let Probe { http, tokens, .. } = &self.probe;
        let Arguments { secrets, keys, .. } = &*self.arguments;
        request.secrets.extend(secrets);
        let mut token_authorities = None;
        if let Some(key) = ca {
            let ca = keys.get(key).map_err(|why| format!("caSecret: {why}"))?;
            // The token server may use the same CA, or a publicly trusted one.
            token_authorities = Some(Authorities::Also(ca.to_owned()));
            request.ca = Some(Authorities::Only(ca.to_owned()));
        }
        let mut token = None;
        if let Some(authentication) = authentication {
            let credentials =
                credentials(authentication, keys, tokens, http, token_authorities, &mut permit);
            let credentials = credentials.await?;
            request.headers.insert(AUTHORIZATION, credentials.header.clone());
            request.secrets.extend(&credentials.secrets);
            token = credentials.token;
        }
        let response = http.send(request, &mut permit).await?;
        if response.status == StatusCode::UNAUTHORIZED
            && let Some(token) = &token
        {
            tokens.forget(token);
        }
        self.evaluated(move || {
            // The permit is held until the response is assessed and dropped.
            let _permit = permit;
            assess(&response.without_secrets())
        })
        .await
    }

    /// A key that is the same for each attempt at this measurement, and differs from that of any other measurement.
    /// Characters that are not allowed in a header are escaped.
    pub(super) fn idempotency_key(&self) -> String {
        let name: String = { self.metric().name.bytes() }
            .map(|byte| match byte {
                b'!'..=b'~' if byte != b'%' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        let run = self.run().metadata.uid.as_deref().unwrap_or_default();
        format!("{run}/{name}/{}", self.call.number)
    }
}
