//! Job metrics: a Job in the run's namespace, whose result is the measurement.
//!
//! A Job may run for a long time, so a poll returns immediately, with the time of the next poll.
//!
//! The result of a Job may allow the deletion of a pod, and users may create Jobs with any name and any owner. So a Job
//! counts only if the run's status records its uid. It is created suspended, and started once the stored status records
//! it: a Job without a record, which a crash or another client left behind, has not run for this measurement. It is
//! deleted, and another one is created.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::call_permit::CallPermit;
use super::cluster::{Cluster, RequestError};
use super::container_status::{ContainerStatus, ContainerStatuses};
use super::filling::Filling;
use super::measure::{Call, Measurement};
use gamekeeper_core::api::names::{JOB_AWAITS_RECORD, job_name};
use gamekeeper_core::api::{API_VERSION, HookPhase, HookRun, JobReference, RawJson};
use gamekeeper_core::hook_run::{Outcome, Place};

/// The deadline of a Job that does not set its own: a hook must not hang forever.
const DEADLINE_SECONDS: i64 = 3_600;
/// How long after its pod's creation a container may still be unable to start, for example because its image is
/// missing. Meanwhile, the kubelet keeps retrying.
const START_GRACE: SignedDuration = SignedDuration::from_secs(30);
/// Bounds of the time between two polls.
const MIN_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
const MAX_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Reasons with which the kubelet reports that a container cannot start as it is specified.
const CANNOT_START: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// Starts the Job, or polls it.
pub(super) async fn measure(measurement: &Measurement, permit: CallPermit) -> Outcome {
    match poll(measurement, permit).await {
        Ok(outcome) => outcome,
        // If the measurement ended now, the Job would continue, and the next measurement would start another one.
        Err(error) if error.is_transient() => unknown(&name_of(measurement), error),
        Err(error) => Outcome::error(error),
    }
}

/// Deletes the Job of an abandoned measurement. It may not be recorded yet.
pub(super) async fn stop(
    cluster: &Cluster,
    call: &Call,
    metric: &str,
    permit: &mut CallPermit,
) -> Result<(), String> {
    let name = name(&call.run, metric, call.number);
    match owned(cluster, &call.run, &name, permit).await {
        Ok(Some(uid)) => Ok(cluster.delete_job(permit.namespace(), &name, &uid).await?),
        Ok(None) => Ok(()),
        Err(error) if error.is_transient() => Err(error.into()),
        // It belongs to another owner.
        Err(_) => Ok(()),
    }
}

/// The uid of the Job with this name, if there is one.
///
/// # Errors
/// If the Job belongs to another owner than the run.
async fn owned(
    cluster: &Cluster,
    run: &HookRun,
    name: &str,
    permit: &mut CallPermit,
) -> Result<Option<String>, RequestError> {
    let namespace = permit.namespace().to_owned();
    let Some(found) = cluster.job(&namespace, name, permit).await? else {
        return Ok(None);
    };
    match found.metadata.is_owned_by(run.metadata.uid.as_deref()) {
        true => Ok(Some(found.metadata.uid)),
        false => Err(format!("job {name} has another owner: delete it, or rename the run").into()),
    }
}

fn name(run: &HookRun, metric: &str, number: i32) -> String {
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    let name = run.metadata.name.as_deref().unwrap_or_default();
    job_name(name, uid, metric, number)
}

fn name_of(measurement: &Measurement) -> String {
    name(measurement.run(), &measurement.metric().name, measurement.call.number)
}

async fn poll(measurement: &Measurement, mut permit: CallPermit) -> Result<Outcome, RequestError> {
    let cluster = measurement.cluster()?;
    let namespace = &permit.namespace().to_owned();
    let name = name_of(measurement);
    let Some(JobReference { uid, .. }) = &measurement.call.job else {
        return create(measurement, &name, &mut permit).await;
    };
    let found = cluster.job(namespace, &name, &mut permit).await?;
    let found = found
        .filter(|found| found.metadata.uid == *uid)
        .ok_or_else(|| format!("job {name} was deleted before it had finished"))?;
    let now = Timestamp::now();
    if found.metadata.annotations.awaits_record.is_some() {
        cluster.start_job(namespace, &name, uid).await?;
        return Ok(in_progress(&name, None, SignedDuration::ZERO));
    }
    if let Some(mut outcome) = final_outcome(&name, &found) {
        if outcome.phase == HookPhase::Failed {
            let pods = cluster.pods_of_job(namespace, &name, uid, "Failed", &mut permit);
            // If the Job's pods cannot be read, the Job's own reason is shown.
            let exit = exit(&pods.await.unwrap_or_default());
            outcome.message =
                exit.map(|exit| format!("job {name} failed: {exit}")).or(outcome.message);
        }
        return Ok(outcome);
    }
    let (stuck, why_unscheduled) = match found.status.ready {
        None | Some(0) => {
            let pending = cluster.pods_of_job(namespace, &name, uid, "Pending", &mut permit);
            let pending = pending.await?;
            (stuck_pod(&pending), why_unscheduled(&pending))
        }
        Some(_) => (None, None),
    };
    match stuck {
        Some(stuck) if age(stuck.since, now) >= START_GRACE => {
            // If the Job were kept, the kubelet would keep retrying, in parallel with the next measurement.
            cluster.delete_job(namespace, &name, uid).await?;
            let limit = START_GRACE.as_secs();
            Err(format!("job {name} could not start within {limit} s: {}", stuck.why).into())
        }
        stuck => Ok(in_progress(
            &name,
            stuck.map(|stuck| stuck.why).or(why_unscheduled),
            age(found.metadata.creation_timestamp, now),
        )),
    }
}

/// Creates the Job. It starts at the next poll, which follows once the stored status records it.
async fn create(
    measurement: &Measurement,
    name: &str,
    permit: &mut CallPermit,
) -> Result<Outcome, RequestError> {
    let cluster = measurement.cluster()?;
    let manifest = measurement.filled(permit, manifest).await?;
    let mut created = cluster.create_job(manifest.clone(), permit).await?;
    if created.is_none() {
        if let Some(uid) = owned(cluster, measurement.run(), name, permit).await? {
            cluster.delete_job(permit.namespace(), name, &uid).await?;
        }
        created = cluster.create_job(manifest, permit).await?;
    }
    let created = created.ok_or_else(|| {
        format!("job {name} exists, but was not created for this measurement: delete it")
    })?;
    Ok(Outcome {
        phase: HookPhase::Running,
        message: Some(format!("job {name} is created")),
        resume_after: Some(SignedDuration::ZERO),
        job: Some(JobReference { name: name.to_owned(), uid: created.metadata.uid }),
        ..Outcome::default()
    })
}

/// The outcome of a poll that could not determine the Job's state. The Job's own deadline limits how often this
/// happens.
fn unknown(name: &str, error: RequestError) -> Outcome {
    Outcome {
        phase: HookPhase::Running,
        message: Some(format!("job {name} cannot be read now: {}", String::from(error))),
        resume_after: Some(MIN_POLL_INTERVAL),
        ..Outcome::default()
    }
}

fn in_progress(name: &str, obstacle: Option<String>, age: SignedDuration) -> Outcome {
    let message = match obstacle {
        Some(why) => format!("job {name} cannot start yet: {why}"),
        None => format!("job {name} is in progress"),
    };
    Outcome {
        phase: HookPhase::Running,
        message: Some(message),
        // The longer the Job has run, the less a short delay matters.
        resume_after: Some((age / 4).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)),
        ..Outcome::default()
    }
}

/// The fields of a Job that are read. The other fields are up to its author, and might be long.
#[derive(Debug, Deserialize)]
pub(super) struct Job {
    #[serde(default)]
    metadata: Head,
    #[serde(default)]
    status: JobStatus,
}

/// The fields of an object's metadata that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Head {
    name: String,
    uid: String,
    annotations: Annotations,
    owner_references: Vec<Owner>,
    creation_timestamp: Option<Timestamp>,
}

impl Head {
    /// Whether an object with this uid is among the owners.
    pub(super) fn is_owned_by(&self, uid: Option<&str>) -> bool {
        let mut owners = self.owner_references.iter();
        owners.any(|owner| Some(owner.uid.as_str()) == uid)
    }
}

/// The annotations that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    /// Present until the Job is started. The name is that of [`JOB_AWAITS_RECORD`].
    #[serde(rename = "gamekeeper.tkex.tencent.com/awaits-record")]
    awaits_record: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobStatus {
    ready: Option<i64>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

/// The fields of a Job's pod that are read.
#[derive(Debug, Deserialize)]
pub(super) struct Pod {
    #[serde(default)]
    pub(super) metadata: Head,
    #[serde(default)]
    status: ContainerStatuses,
}

/// The outcome of a Job; None if the Job has not finished.
fn final_outcome(name: &str, job: &Job) -> Option<Outcome> {
    let conditions = job.status.conditions.as_deref().unwrap_or_default();
    let condition = |kind: &str| {
        let mut conditions = conditions.iter();
        conditions.find(|it| it.kind == kind && it.status == "True")
    };
    let (phase, message) = match (condition("Failed"), condition("Complete")) {
        (Some(Condition { reason, message, .. }), _) => {
            // A Job that exceeded its deadline has not measured anything.
            let phase = match reason.as_str() {
                "DeadlineExceeded" => HookPhase::Error,
                _ => HookPhase::Failed,
            };
            (phase, Some(format!("job {name} failed: {reason}: {message}")))
        }
        (None, Some(_)) => (HookPhase::Successful, None),
        (None, None) => return None,
    };
    Some(Outcome { phase, value: Some(name.to_owned()), message, ..Outcome::default() })
}

/// A pod with a container that cannot be started.
struct Stuck {
    /// When the pod was created.
    since: Option<Timestamp>,
    why: String,
}

fn stuck_pod(pods: &[Pod]) -> Option<Stuck> {
    pods.iter().find_map(|pod| {
        let mut containers = pod.status.iter();
        let (container, reason) = containers.find_map(|container| {
            let reason = container.waiting_reason()?;
            CANNOT_START.contains(&reason).then_some((container, reason))
        })?;
        let ContainerStatus { name: container, image, .. } = container;
        let name = &pod.metadata.name;
        Some(Stuck {
            since: pod.metadata.creation_timestamp,
            why: format!("container {container} of pod {name}, image {image}: {reason}"),
        })
    })
}

/// Why a pod of the Job is not scheduled. Only the Job's deadline ends the wait, because a node may become available.
fn why_unscheduled(pods: &[Pod]) -> Option<String> {
    pods.iter().find_map(|pod| {
        let why = pod.status.why_unscheduled()?;
        Some(format!("pod {} is not scheduled: {why}", pod.metadata.name))
    })
}

/// The exit code and the termination message of the container that failed.
fn exit(pods: &[Pod]) -> Option<String> {
    let mut containers = pods.iter().flat_map(|pod| pod.status.iter());
    let ended = containers.find_map(|it| it.terminated().filter(|it| it.exit_code != 0))?;
    let code = ended.exit_code;
    Some(match ended.message.trim() {
        "" => format!("exit {code}"),
        message => format!("exit {code}: {message}"),
    })
}

/// The time since an object was created.
fn age(created: Option<Timestamp>, now: Timestamp) -> SignedDuration {
    created.map_or(SignedDuration::ZERO, |created| now.duration_since(created))
}

/// The manifest with which the Job is created.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    spec: Fields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'a str,
    #[serde(flatten)]
    given: Given<'a>,
    owner_references: Value,
}

/// The metadata that a metric gives its Jobs.
#[derive(Default, Deserialize, Serialize)]
struct Given<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    annotations: Option<Fields<'a>>,
}

/// The fields of an object, each as unparsed JSON.
type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

fn manifest(measurement: &Measurement, filling: &mut Filling<'_>) -> Result<String, String> {
    refuse_unsupported_fields(measurement)?;
    let job = measurement.metric().provider.job.as_ref().ok_or("no job metric")?;
    let filled = filling.json("spec of the job", &job.spec, Place::JobSpec)?;
    let mut spec: Fields = serde_json::from_str(&filled).map_err(|error| error.to_string())?;
    let deadline = to_raw_value(&DEADLINE_SECONDS).map_err(|error| error.to_string())?;
    let specified = spec.get("activeDeadlineSeconds");
    if specified.is_none_or(|specified| specified.get() == "null") {
        spec.insert("activeDeadlineSeconds".into(), &deadline);
    }
    let given = job.metadata.as_ref().map(RawJson::read).transpose();
    let given: Option<Given> = given.map_err(|error| format!("metadata of the job: {error}"))?;
    let mut given = given.unwrap_or_default();
    let (suspended, yes) = (to_raw_value(&true), to_raw_value("true"));
    let suspended = suspended.map_err(|error| error.to_string())?;
    let yes = yes.map_err(|error| error.to_string())?;
    if { spec.get("manualSelector") }.is_some_and(|it| it.get() == "true") {
        return Err(
            "a Job whose manualSelector is true would count other pods: remove it, and selector"
                .into(),
        );
    }
    spec.insert("suspend".into(), &suspended);
    let annotations = given.annotations.get_or_insert_default();
    annotations.insert(JOB_AWAITS_RECORD.into(), &yes);
    let metadata = Metadata {
        name: &name_of(measurement),
        given,
        // The Job is deleted with its run, or before it if the deletion of the run asks for that.
        owner_references: json!([{
            "apiVersion": API_VERSION, "kind": "HookRun", "controller": true, "blockOwnerDeletion": true,
            "name": measurement.run().metadata.name, "uid": measurement.run().metadata.uid,
        }]),
    };
    let manifest = Manifest { api_version: "batch/v1", kind: "Job", metadata, spec };
    serde_json::to_string(&manifest).map_err(|error| error.to_string())
}

fn refuse_unsupported_fields(measurement: &Measurement) -> Result<(), String> {
    if measurement.metric().success_condition.is_some()
        || measurement.metric().failure_condition.is_some()
    {
        return Err(
            "a Job's exit code decides: remove successCondition and failureCondition".into()
        );
    }
    match measurement.arguments.secrets.is_empty() {
        true => Ok(()),
        false => {
            Err("a secret argument would be readable in the Job: pass the Secret to the container \
             with env and valueFrom"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(conditions: Value) -> Option<Outcome> {
        let job = json!({"status": {"conditions": conditions}});
        final_outcome("backup", &serde_json::from_value(job).expect("a job"))
    }

    #[test]
    fn the_result_of_a_job_is_the_measurement() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "m"});
        let rows = [
            (json!([condition("Complete", "True", "")]), Some(HookPhase::Successful)),
            (json!([condition("SuccessCriteriaMet", "True", "")]), None),
            (json!([condition("FailureTarget", "True", "")]), None),
            (json!([condition("Failed", "True", "BackoffLimitExceeded")]), Some(HookPhase::Failed)),
            (json!([condition("Failed", "True", "DeadlineExceeded")]), Some(HookPhase::Error)),
            (json!([condition("Failed", "False", "")]), None),
            (json!([condition("Complete", "Unknown", "")]), None),
            (
                json!([condition("Complete", "True", ""), condition("Failed", "True", "x")]),
                Some(HookPhase::Failed),
            ),
            (Value::Null, None),
        ];
        for (conditions, phase) in rows {
            let found = outcome(conditions.clone()).map(|outcome| outcome.phase);
            assert_eq!(found, phase, "{conditions}");
        }
    }

    fn pods(pods: &[Value]) -> Vec<Pod> {
        let pods = pods.iter().map(|pod| serde_json::from_value(pod.clone()));
        pods.collect::<Result<_, _>>().expect("pods")
    }

    #[test]
    fn the_exit_code_and_message_of_the_failed_container_are_shown() {
        let pod = |code: i32, message: &str| {
            let ended = json!({"terminated": {"exitCode": code, "message": message}});
            json!({"status": {"containerStatuses": [{"name": "a", "state": ended}]}})
        };
        for (given, expected) in [
            (vec![], None),
            (vec![pod(0, "")], None),
            (vec![pod(0, ""), pod(3, "")], Some("exit 3")),
            (vec![pod(3, "disk full\n")], Some("exit 3: disk full")),
            (vec![json!({"status": {}})], None),
        ] {
            assert_eq!(exit(&pods(&given)).as_deref(), expected);
        }
    }

    #[test]
    fn the_message_of_the_scheduler_is_shown() {
        let pod = json!({"metadata": {"name": "backup-x"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"},
        ]}});
        assert_eq!(
            why_unscheduled(&pods(&[json!({}), pod])).as_deref(),
            Some("pod backup-x is not scheduled: 0/3 nodes are available")
        );
    }

    #[test]
    fn a_container_that_cannot_start_is_reported() {
        let pod = |reason: &str| {
            json!({"metadata": {"name": "backup-x"}, "status": {"containerStatuses": [
                {"name": "a", "image": "a:1", "state": {"running": {}}},
                {"name": "b", "image": "b:1", "state": {"waiting": {"reason": reason}}},
            ]}})
        };
        let why = |pods: &[Value]| stuck_pod(&self::tests::pods(pods)).map(|stuck| stuck.why);
        assert_eq!(why(&[pod("ContainerCreating")]), None);
        assert_eq!(why(&[pod("CrashLoopBackOff"), json!({})]), None);
        assert_eq!(
            why(&[json!({}), pod("ImagePullBackOff")]).as_deref(),
            Some("container b of pod backup-x, image b:1: ImagePullBackOff")
        );
    }
}
