//! The requests that measurements make to the API server: for a run's pod, commands in that pod, Secrets, and Jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::AsyncReadExt;
use http::{Method, Request, header};
use kube::Client;
use kube::core::Status;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::call_permit::{CallPermit, MAX_SHORT_TEXT};
use super::exec::{Ended, with_time_limit};
use super::job::{Job, Pod};
use super::remote_command;
use crate::runtime::fair::{Capacity, NamespaceLimiter};
use gamekeeper_core::api::names::JOB_AWAITS_RECORD;
use gamekeeper_core::hook_run::allowed_by;
use gamekeeper_core::text::truncate;

/// The longest wait for a response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The limits on concurrent requests. Requests above the limits wait.
const REQUEST_CAPACITY: Capacity = Capacity { shared: 64, per_namespace: 48, reserved: 4 };
/// The limits on concurrent commands in containers. Commands above the limits wait. Each command uses a connection to
/// the API server, and one from there to the node.
const COMMAND_CAPACITY: Capacity = Capacity { shared: 256, per_namespace: 192, reserved: 4 };
/// How many pods of a Job are examined: only a few, because any user may give pods the Job's label.
const PODS_OF_JOB: usize = 4;
/// The longest message of the API server that is kept, in characters.
const MAX_MESSAGE: usize = 2_000;
/// The field manager of writes by hooks.
const FIELD_MANAGER: &str = "gamekeeper-hooks";
/// The label of the Secrets that hooks may read.
const HOOK_ACCESS: &str = "tkex.tencent.com/hook-access";

/// The cluster, as far as hooks may see it.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    request_limiter: Arc<NamespaceLimiter>,
    command_limiter: Arc<NamespaceLimiter>,
}

/// Why a request to the API server failed.
pub(super) struct RequestError {
    /// HTTP status; 0 if there was no response.
    code: u16,
    message: String,
}

impl RequestError {
    fn without_response(message: String) -> Self {
        RequestError { code: 0, message }
    }

    fn invalid_response(message: String) -> Self {
        RequestError { code: 200, message }
    }

    /// Whether the same request may succeed later. Such an error proves nothing about the object.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.code, 0 | 429 | 500..)
    }
}

/// An error that every further attempt would meet too, such as an invalid name.
impl From<String> for RequestError {
    fn from(message: String) -> Self {
        RequestError { code: 400, message }
    }
}

impl From<RequestError> for String {
    fn from(error: RequestError) -> String {
        error.message
    }
}

#[derive(Deserialize)]
struct List {
    items: Vec<Pod>,
}

/// A Secret, of which only the requested keys are read.
#[derive(Deserialize)]
struct Secret<'a> {
    #[serde(borrow)]
    metadata: SecretMeta<'a>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SecretMeta<'a> {
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
}

/// Picks the values of these keys from a map of strings.
struct Picking<'k>(&'k BTreeSet<String>);

impl<'de> Visitor<'de> for Picking<'_> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut picked = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            match self.0.contains(&key) {
                true => drop(picked.insert(key, map.next_value()?)),
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(picked)
    }
}

fn picked(
    object: &str,
    map: Option<&RawValue>,
    keys: &BTreeSet<String>,
) -> Result<BTreeMap<String, String>, String> {
    let map = map.map(|map| {
        map.deserialize_map(Picking(keys)).map_err(|error| format!("{object}: {error}"))
    });
    Ok(map.transpose()?.unwrap_or_default())
}

fn parsed<'a, T: Deserialize<'a>>(object: &str, text: &'a str) -> Result<T, RequestError> {
    let parsed = serde_json::from_str(text);
    parsed.map_err(|error| RequestError::invalid_response(format!("{object}: {error}")))
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Cluster {
            client,
            request_limiter: Arc::new(NamespaceLimiter::new(REQUEST_CAPACITY)),
            command_limiter: Arc::new(NamespaceLimiter::new(COMMAND_CAPACITY)),
        }
    }

    /// Reads a pod, as JSON.
    pub(super) async fn pod(
        &self,
        namespace: &str,
        name: &str,
        permit: &mut CallPermit,
    ) -> Result<String, String> {
        let path = path("/api/v1", namespace, "pods", name)?;
        Ok(self.get(&format!("pod {name}"), &path, permit).await?)
    }

    /// Patches a pod with a merge patch.
    pub(super) async fn patch_pod(
        &self,
        namespace: &str,
        name: &str,
        patch: String,
    ) -> Result<(), String> {
        let path = path("/api/v1", namespace, "pods", name)?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let object = format!("pod {name}");
        self.send(&object, Method::PATCH, &path, patch.into_bytes(), 0).await?;
        Ok(())
    }

    /// Waits for a permit, and then runs a command in a container for at most `limit`.
    pub(super) async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        command: Vec<String>,
        limit: Duration,
    ) -> Result<Ended, String> {
        let (namespace, pod) = (valid_name(namespace)?, valid_name(pod)?);
        let _permit = self.command_limiter.take(namespace).await;
        let ended = remote_command::run(&self.client, namespace, pod, container, command);
        with_time_limit(limit, ended).await
    }

    /// Creates a Job; None if there is one with this name.
    pub(super) async fn create_job(
        &self,
        job: String,
        permit: &mut CallPermit,
    ) -> Result<Option<Job>, RequestError> {
        let path = path("/apis/batch/v1", permit.namespace(), "jobs", "")?;
        let path = format!("{path}?fieldValidation=Strict&fieldManager={FIELD_MANAGER}");
        let object = "the job";
        // The response contains the manifest, the API server's defaults and the names of all fields.
        if job.len() > MAX_SHORT_TEXT / 4 {
            permit.grow().await;
        }
        let max = permit.longest_text();
        match self.send(object, Method::POST, &path, job.into_bytes(), max).await {
            Ok(Some(job)) => Ok(Some(parsed(object, &job)?)),
            Ok(None) => Err(too_long(object, max)),
            Err(RequestError { code: 409, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a Job; None if it does not exist.
    pub(super) async fn job(
        &self,
        namespace: &str,
        name: &str,
        permit: &mut CallPermit,
    ) -> Result<Option<Job>, RequestError> {
        let path = path("/apis/batch/v1", namespace, "jobs", name)?;
        let object = format!("job {name}");
        match self.get(&object, &path, permit).await {
            Ok(job) => Ok(Some(parsed(&object, &job)?)),
            Err(RequestError { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a Job that was created suspended.
    pub(super) async fn start_job(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), RequestError> {
        let path = path("/apis/batch/v1", namespace, "jobs", name)?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let patch = json!({
            "metadata": {"uid": uid, "annotations": {JOB_AWAITS_RECORD: null}},
            "spec": {"suspend": false},
        });
        let object = format!("job {name}");
        let patch = patch.to_string().into_bytes();
        self.send(&object, Method::PATCH, &path, patch, 0).await?;
        Ok(())
    }

    /// Deletes the Job with this name and uid, with its pods, if it exists.
    pub(super) async fn delete_job(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), RequestError> {
        let path = path("/apis/batch/v1", namespace, "jobs", name)?;
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        });
        let object = format!("job {name}");
        let options = options.to_string().into_bytes();
        match self.send(&object, Method::DELETE, &path, options, 0).await {
            Ok(_) | Err(RequestError { code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The first few pods of a Job that are in this phase.
    pub(super) async fn pods_of_job(
        &self,
        namespace: &str,
        job: &str,
        job_uid: &str,
        phase: &str,
        permit: &mut CallPermit,
    ) -> Result<Vec<Pod>, RequestError> {
        let path = path("/api/v1", namespace, "pods", "")?;
        let path = format!(
            "{path}?limit={PODS_OF_JOB}&fieldSelector=status.phase={phase}\
             &labelSelector=batch.kubernetes.io/controller-uid={}",
            valid_name(job_uid)?
        );
        let object = format!("pods of job {job}");
        let list = self.get(&object, &path, permit).await?;
        let mut pods = parsed::<List>(&object, &list)?.items;
        pods.retain(|pod| pod.metadata.is_owned_by(Some(job_uid)));
        Ok(pods)
    }

    /// Reads these keys of a Secret; keys that it does not have are left out. The Secret must be labeled for hooks.
    pub(super) async fn secret(
        &self,
        namespace: &str,
        name: &str,
        keys: &BTreeSet<String>,
        permit: &mut CallPermit,
    ) -> Result<BTreeMap<String, String>, String> {
        let object = format!("secret {name}");
        let path = path("/api/v1", namespace, "secrets", name)?;
        let text = self.get(&object, &path, permit).await?;
        let secret: Secret = parsed(&object, &text)?;
        let label = BTreeSet::from([HOOK_ACCESS.to_owned()]);
        let labels = picked(&object, secret.metadata.labels, &label)?;
        if labels.get(HOOK_ACCESS).map(String::as_str) != Some("true") {
            return Err(format!("{object} is not readable by hooks: label it {HOOK_ACCESS}=true"));
        }
        let data = picked(&object, secret.data, keys)?.into_iter();
        let texts = data.map(|(key, value)| {
            let text = STANDARD.decode(value).ok().map(String::from_utf8);
            match text {
                Some(Ok(text)) => Ok((key, text)),
                _ => Err(format!("{object}: key {key} is not text")),
            }
        });
        texts.collect()
    }

    /// Reads the response for a path. Waits for a permit for long texts if the response is long.
    async fn get(
        &self,
        object: &str,
        path: &str,
        permit: &mut CallPermit,
    ) -> Result<String, RequestError> {
        loop {
            let max = permit.longest_text();
            match self.send(object, Method::GET, path, Vec::new(), max).await? {
                Some(text) => return Ok(text),
                None if !permit.allows_long_texts() => permit.grow().await,
                None => return Err(too_long(object, max)),
            }
        }
    }

    /// Sends a request, and returns the response; None if it is longer than `max` bytes.
    async fn send(
        &self,
        object: &str,
        method: Method,
        path: &str,
        body: Vec<u8>,
        max: usize,
    ) -> Result<Option<String>, RequestError> {
        let failed = |why: &dyn std::fmt::Display| {
            RequestError::without_response(format!("{object}: {why}"))
        };
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::CONTENT_TYPE, content).body(body);
        let request = request.map_err(|error| failed(&error))?;
        let response = async {
            let mut response = self.client.request_stream(request).await?.take(max as u64 + 1);
            let mut text = Vec::new();
            let read = response.read_to_end(&mut text).await;
            read.map_err(|error| kube::Error::Service(error.into()))?;
            Ok(text)
        };
        let _permit = self.request_limiter.take(namespace_of(path)).await;
        match timeout(REQUEST_TIMEOUT, response).await {
            Ok(Ok(text)) if text.len() > max => Ok(None),
            Ok(Ok(text)) => String::from_utf8(text)
                .map(Some)
                .map_err(|error| RequestError::invalid_response(format!("{object}: {error}"))),
            Ok(Err(kube::Error::Api(status))) => {
                // The API server quotes what it refuses, however long that is.
                let message = truncate(&status.message, MAX_MESSAGE);
                let message = match setting_for(path).filter(|_| is_missing_permission(&status)) {
                    Some(setting) => allowed_by(&message, setting),
                    None => message,
                };
                Err(RequestError { code: status.code, message })
            }
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(failed(&"the API server does not respond")),
        }
    }
}

/// Whether the operator lacks a permission. Quotas, policies and webhooks also answer with 403.
fn is_missing_permission(status: &Status) -> bool {
    status.code == 403 && status.message.contains(" cannot ")
}

/// The value of the chart that permits requests for a path.
fn setting_for(path: &str) -> Option<&'static str> {
    let settings = [("/jobs", "hooks.jobs"), ("/secrets/", "hooks.secrets")];
    settings.into_iter().find(|(resource, _)| path.contains(resource)).map(|(_, setting)| setting)
}

fn too_long(object: &str, max: usize) -> RequestError {
    let max = max >> 10;
    RequestError::invalid_response(format!("{object}: it is longer than {max} KiB"))
}

/// The path of an object, or of a collection if the name is empty.
fn path(api: &str, namespace: &str, resource: &str, name: &str) -> Result<String, String> {
    let namespace = valid_name(namespace)?;
    Ok(match name {
        "" => format!("{api}/namespaces/{namespace}/{resource}"),
        name => format!("{api}/namespaces/{namespace}/{resource}/{}", valid_name(name)?),
    })
}

/// The namespace in the path of an object or collection.
fn namespace_of(path: &str) -> &str {
    let after = path.split_once("/namespaces/").map(|(_, after)| after);
    after.and_then(|it| it.split('/').next()).unwrap_or_default()
}

/// Checks that a name is valid in a path, because filled-in arguments could contain anything.
fn valid_name(name: &str) -> Result<&str, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    match !name.is_empty() && name != "." && name != ".." && name.chars().all(valid) {
        true => Ok(name),
        false => Err(format!("{name:?} is not an object name")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Mutex;

    use futures::future::{join_all, pending};
    use http::Response;
    use kube::client::Body;

    use super::*;
    use crate::provider::call_permit::CallLimits;

    const BRIEFLY: Duration = Duration::from_secs(1);

    /// A cluster whose API server never responds, and the number of its requests, by namespace.
    fn silent() -> (Cluster, Arc<Mutex<BTreeMap<String, usize>>>) {
        let received: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let counted = Arc::clone(&received);
        let server = tower::service_fn(move |request: Request<Body>| {
            let namespace = namespace_of(request.uri().path()).to_owned();
            *counted.lock().expect("counts").entry(namespace).or_default() += 1;
            pending::<Result<Response<Body>, Infallible>>()
        });
        (Cluster::new(Client::new(server, "games")), received)
    }

    fn counts(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
        counts.iter().map(|(namespace, count)| ((*namespace).to_owned(), *count)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_one_namespace_leave_some_to_others() {
        let (cluster, received) = silent();
        let read = async |namespace: &str| {
            let mut permit = Arc::new(CallLimits::default()).enter(namespace).await;
            cluster.pod(namespace, "game-1", &mut permit).await
        };
        let mut greedy = std::pin::pin!(join_all((0..100).map(|_| read("greedy"))));
        assert!(timeout(BRIEFLY, &mut greedy).await.is_err());
        let other = join_all((0..100).map(|_| read("other")));
        assert!(timeout(BRIEFLY, other).await.is_err());
        let expected = counts(&[("greedy", 48 + 4), ("other", 16 + 4)]);
        assert_eq!(*received.lock().expect("counts"), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn commands_of_one_namespace_leave_some_to_others() {
        let (cluster, received) = silent();
        let run = |namespace: &'static str| {
            let limit = Duration::from_secs(3_600);
            cluster.exec(namespace, "game-1", "game", vec!["true".to_owned()], limit)
        };
        let mut greedy = std::pin::pin!(join_all((0..300).map(|_| run("greedy"))));
        assert!(timeout(BRIEFLY, &mut greedy).await.is_err());
        let other = join_all((0..300).map(|_| run("other")));
        assert!(timeout(BRIEFLY, other).await.is_err());
        let expected = counts(&[("greedy", 192 + 4), ("other", 64 + 4)]);
        assert_eq!(*received.lock().expect("counts"), expected);
    }

    /// A cluster whose API server answers each request with this code and object.
    fn answering(code: u16, object: &serde_json::Value) -> Cluster {
        let text = object.to_string();
        let server = tower::service_fn(move |_: Request<Body>| {
            let body = Body::from(text.clone().into_bytes());
            let response = Response::builder().status(code).body(body);
            std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
        });
        Cluster::new(Client::new(server, "games"))
    }

    /// Clients that may change a Job decide how long it is.
    #[tokio::test]
    async fn a_job_is_read_as_a_long_text_up_to_a_limit() {
        for (length, is_long, expected) in [
            (1_000, false, None),
            (1 << 20, true, None),
            (3 << 20, true, Some("job check: it is longer than 2048 KiB")),
        ] {
            let job =
                json!({"metadata": {"name": "check", "uid": "u"}, "spec": "x".repeat(length)});
            let limits = Arc::new(CallLimits::default());
            let mut permit = limits.enter("games").await;
            let read = answering(200, &job).job("games", "check", &mut permit).await;
            assert_eq!(limits.long.taken() == 1, is_long, "{length} bytes");
            assert_eq!(read.err().map(String::from).as_deref(), expected, "{length} bytes");
        }
    }

    #[tokio::test]
    async fn the_message_of_a_refused_request_is_cut() {
        let message = format!("Invalid value: {}", "x".repeat(1 << 20));
        let refusal = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422,
            "reason": "Invalid", "message": message,
        });
        let cluster = answering(422, &refusal);
        let why = cluster.patch_pod("games", "game-1", "{}".to_owned()).await.err();
        assert_eq!(why.map(|it| it.len()), Some(MAX_MESSAGE + 3));
    }
}
