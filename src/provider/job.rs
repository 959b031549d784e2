//! Job metrics: a Job in the run's namespace, whose exit is the measurement.
//!
//! A Job takes its time, so a look at it ends at once and says when to look again. Its name follows
//! from run, metric and number of the measurement: whoever looks, also after a restart, finds the
//! one Job that belongs to it, and none is made twice.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::measure::Measurement;
use crate::api::names::job_name;
use crate::api::{API_VERSION, HookPhase, HookRun, JobMetric};
use crate::plan::hook_run::Outcome;

/// Longest time that a Job may take unless it says so itself: a hook must not hang.
const DEADLINE_SECONDS: i64 = 3_600;
/// How long an image may be missing. Pulling is tried again all the while.
const IMAGE_PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// Bounds of the time between two looks.
const SOONEST: SignedDuration = SignedDuration::from_secs(1);
const LATEST: SignedDuration = SignedDuration::from_secs(30);
/// What a container waits for that cannot be started as it is written.
const CANNOT_START: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// Starts the Job, or looks how it is.
pub(super) async fn measure(of: &Measurement<'_>, job: &JobMetric) -> Outcome {
    look(of, job).await.unwrap_or_else(Outcome::error)
}

/// Deletes the Job of a measurement that nobody waits for any more.
pub(super) async fn stop(
    cluster: &Cluster,
    run: &HookRun,
    metric: &str,
    number: i32,
) -> Result<(), String> {
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    cluster
        .delete_job(namespace, &name(run, metric, number))
        .await
}

fn name(run: &HookRun, metric: &str, number: i32) -> String {
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    let name = run.metadata.name.as_deref().unwrap_or_default();
    job_name(name, uid, metric, number)
}

async fn look(of: &Measurement<'_>, job: &JobMetric) -> Result<Outcome, String> {
    let cluster = of.cluster()?;
    let namespace = of.run.metadata.namespace.as_deref().unwrap_or_default();
    let name = name(of.run, &of.metric.name, of.number);
    let begun = match of.resumed {
        true => None,
        false => {
            cluster
                .create_job(namespace, &manifest(of, job, &name)?)
                .await?
        }
    };
    let found = match begun {
        Some(begun) => begun,
        None => cluster
            .job(namespace, &name)
            .await?
            .ok_or_else(|| format!("job {name} was deleted before it had ended"))?,
    };
    let mut owners = found["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    if !owners.any(|owner| owner["uid"].as_str() == of.run.metadata.uid.as_deref()) {
        return Err(format!(
            "job {name} is somebody else's: delete it, or rename the run"
        ));
    }
    if let Some(outcome) = ended(&name, &found) {
        return Ok(outcome);
    }
    let now = Timestamp::now();
    let stuck = match found["status"]["ready"].as_i64().unwrap_or_default() {
        0 => cannot_start(&cluster.pods_of_job(namespace, &name).await?),
        _ => None,
    };
    match stuck {
        Some(stuck) if age(&stuck.pod, now) >= IMAGE_PATIENCE => {
            // It would go on trying, beside the next measurement.
            cluster.delete_job(namespace, &name).await?;
            let patience = IMAGE_PATIENCE.as_secs();
            Err(format!(
                "job {name} could not start within {patience} s: {}",
                stuck.why
            ))
        }
        stuck => Ok(under_way(&name, stuck, age(&found, now))),
    }
}

fn under_way(name: &str, stuck: Option<Stuck>, age: SignedDuration) -> Outcome {
    let message = match stuck {
        Some(stuck) => format!("job {name} cannot start yet: {}", stuck.why),
        None => format!("job {name} is under way"),
    };
    Outcome {
        phase: HookPhase::Running,
        message: Some(message),
        // The longer it takes, the less a moment more matters.
        resume_after: Some((age / 4).clamp(SOONEST, LATEST)),
        ..Outcome::default()
    }
}

/// What a Job that has ended means.
fn ended(name: &str, job: &Value) -> Option<Outcome> {
    let conditions = job["status"]["conditions"].as_array();
    let condition = |kind: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.find(|it| it["type"] == kind && it["status"] == "True")
    };
    let (phase, message) = match (condition("Failed"), condition("Complete")) {
        (Some(failed), _) => {
            let [reason, message] =
                ["reason", "message"].map(|field| failed[field].as_str().unwrap_or_default());
            // A Job that ran out of time has given no answer.
            let phase = match reason {
                "DeadlineExceeded" => HookPhase::Error,
                _ => HookPhase::Failed,
            };
            (
                phase,
                Some(format!("job {name} failed: {reason}: {message}")),
            )
        }
        (None, Some(_)) => (HookPhase::Successful, None),
        (None, None) => return None,
    };
    Some(Outcome {
        phase,
        value: Some(name.to_owned()),
        message,
        ..Outcome::default()
    })
}

/// A pod with a container that cannot be started.
struct Stuck {
    pod: Value,
    why: String,
}

fn cannot_start(pods: &[Value]) -> Option<Stuck> {
    pods.iter().find_map(|pod| {
        let statuses = ["initContainerStatuses", "containerStatuses"]
            .map(|list| pod["status"][list].as_array())
            .into_iter()
            .flatten()
            .flatten();
        let waits = |status: &&Value| {
            let reason = status["state"]["waiting"]["reason"].as_str();
            reason.is_some_and(|reason| CANNOT_START.contains(&reason))
        };
        let status = { statuses }.find(waits)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let why = format!(
            "container {} of pod {}, image {}: {}",
            text(&status["name"]),
            text(&pod["metadata"]["name"]),
            text(&status["image"]),
            text(&status["state"]["waiting"]["reason"]),
        );
        let pod = pod.clone();
        Some(Stuck { pod, why })
    })
}

/// How long ago an object was created.
fn age(object: &Value, now: Timestamp) -> SignedDuration {
    let created = object["metadata"]["creationTimestamp"].as_str();
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    created.map_or(SignedDuration::ZERO, |created| now.duration_since(created))
}

/// The Job as it is created.
fn manifest(of: &Measurement<'_>, job: &JobMetric, name: &str) -> Result<Value, String> {
    refuse_what_cannot_be(of)?;
    let mut spec = job.spec.clone();
    let pod = &mut spec["template"]["spec"];
    for list in ["initContainers", "containers"] {
        for container in pod[list].as_array_mut().into_iter().flatten() {
            for part in ["command", "args", "env"] {
                let filled = of.arguments.fill_json(&container[part]);
                let filled = filled.map_err(|error| format!("{part} of a container: {error}"))?;
                if !filled.is_null() {
                    container[part] = filled;
                }
            }
        }
    }
    if spec["activeDeadlineSeconds"].is_null() {
        spec["activeDeadlineSeconds"] = json!(DEADLINE_SECONDS);
    }
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let given = job.metadata.as_ref().and_then(|given| given.get(field));
        metadata.extend(given.map(|given| (field.to_owned(), given.clone())));
    }
    metadata.insert("name".into(), json!(name));
    // The Job goes with its run.
    metadata.insert(
        "ownerReferences".into(),
        json!([{
            "apiVersion": API_VERSION, "kind": "HookRun", "controller": true,
            "name": of.run.metadata.name, "uid": of.run.metadata.uid,
        }]),
    );
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
}

fn refuse_what_cannot_be(of: &Measurement<'_>) -> Result<(), String> {
    if of.metric.success_condition.is_some() || of.metric.failure_condition.is_some() {
        return Err("a Job's exit decides: leave out successCondition and failureCondition".into());
    }
    match of.arguments.secrets.is_empty() {
        true => Ok(()),
        false => Err(
            "a secret argument would stand in the Job for all to read: give the container the \
             Secret itself, with env and valueFrom"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(conditions: Value) -> Option<Outcome> {
        ended("backup", &json!({"status": {"conditions": conditions}}))
    }

    #[test]
    fn the_exit_of_a_job_is_the_measurement() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "m"});
        let rows = [
            (
                json!([condition("Complete", "True", "")]),
                Some(HookPhase::Successful),
            ),
            (json!([condition("SuccessCriteriaMet", "True", "")]), None),
            (json!([condition("FailureTarget", "True", "")]), None),
            (
                json!([condition("Failed", "True", "BackoffLimitExceeded")]),
                Some(HookPhase::Failed),
            ),
            (
                json!([condition("Failed", "True", "DeadlineExceeded")]),
                Some(HookPhase::Error),
            ),
            (json!([condition("Failed", "False", "")]), None),
            (json!([condition("Complete", "Unknown", "")]), None),
            (
                json!([
                    condition("Complete", "True", ""),
                    condition("Failed", "True", "x")
                ]),
                Some(HookPhase::Failed),
            ),
            (Value::Null, None),
        ];
        for (conditions, phase) in rows {
            let found = job(conditions.clone()).map(|outcome| outcome.phase);
            assert_eq!(found, phase, "{conditions}");
        }
    }

    #[test]
    fn a_container_that_cannot_start_is_found() {
        let pod = |reason: &str| {
            json!({"metadata": {"name": "backup-x"}, "status": {"containerStatuses": [
                {"name": "a", "image": "a:1", "state": {"running": {}}},
                {"name": "b", "image": "b:1", "state": {"waiting": {"reason": reason}}},
            ]}})
        };
        let why = |pods: &[Value]| cannot_start(pods).map(|stuck| stuck.why);
        assert_eq!(why(&[pod("ContainerCreating")]), None);
        assert_eq!(why(&[pod("CrashLoopBackOff"), json!({})]), None);
        assert_eq!(
            why(&[json!({}), pod("ImagePullBackOff")]).as_deref(),
            Some("container b of pod backup-x, image b:1: ImagePullBackOff")
        );
    }
}
