//! `release`: releases pods from their guard, so that they may be deleted without their hook.
//!
//! The change is made as the user, so the audit log shows who ended a match.

use gamekeeper_core::api::names::{GUARDED_LABEL, RELEASED_ANNOTATION, kept_by_autoscalers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::command::put;
use crate::error::{Error, refuse};
use crate::kind::{Reference, name_after};
use crate::options::ClusterOptions;

/// The object that the command names.
#[derive(Debug, PartialEq, Eq)]
enum Released {
    Pod(String),
    Workload(Reference),
}

impl Released {
    fn parse(words: &[String]) -> Result<Self, Error> {
        Ok(match name_after(words, &["pod", "pods", "po"]) {
            Some("") => return Err(Error::Usage("name a pod: pod/NAME".to_owned())),
            Some(name) => Self::Pod(name.to_owned()),
            None => Self::Workload(Reference::parse(words)?),
        })
    }
}

/// Releases a pod, or all guarded pods of a workload.
pub async fn release(at: &ClusterOptions, words: &[String], dry_run: bool) -> Result<(), Error> {
    let released = Released::parse(words)?;
    let cluster = Cluster::connect(at).await?;
    let (pods, of_workload) = match &released {
        Released::Pod(name) => (vec![cluster.pod(name).await?], None),
        Released::Workload(reference) => {
            let game = cluster.find(reference).await?;
            let selector = format!("{GUARDED_LABEL}={}", game.uid);
            (cluster.select::<Pod>(&selector).await?, Some(game))
        }
    };
    let guarded: Vec<&Pod> = pods.iter().filter(|pod| is_guarded(pod)).collect();
    if guarded.is_empty() {
        let name = match (&released, &of_workload) {
            (Released::Pod(name), _) => format!("pod/{name} is not guarded"),
            (_, Some(game)) => format!("no pod of {} is guarded", game.short_name()),
            (Released::Workload(reference), None) => format!("no pod of {reference} is guarded"),
        };
        return refuse(format!("{name}: nothing to release"));
    }
    let suffix = if dry_run { " (server dry run)" } else { "" };
    for pod in &guarded {
        let patch = patch(pod, Timestamp::now());
        cluster.patch_pod(&pod.name_any(), &patch, dry_run).await?;
        put(&format!("pod/{} released{suffix}\n", pod.name_any()))?;
    }
    if let Some(game) = of_workload {
        let count = guarded.len();
        let pods = if count == 1 { "pod" } else { "pods" };
        let name = game.full_name();
        put(&format!("{name} released: {count} {pods}{suffix}\n"))?;
    }
    Ok(())
}

fn is_guarded(pod: &Pod) -> bool {
    pod.labels().contains_key(GUARDED_LABEL)
}

/// The uid is a precondition, because another pod may have the name by now.
fn patch(pod: &Pod, now: Timestamp) -> Value {
    let mut annotations = json!({RELEASED_ANNOTATION: now.to_string()});
    for key in kept_by_autoscalers(pod.annotations()) {
        annotations[key] = Value::Null;
    }
    json!({"metadata": {
        "uid": pod.metadata.uid,
        "labels": {GUARDED_LABEL: null},
        "annotations": annotations,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Released {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Released::parse(&words).expect("words")
    }

    #[test]
    fn a_pod_or_a_workload_is_named() {
        for line in ["pod/game-x", "pods/game-x", "po game-x", "Pod game-x"] {
            assert_eq!(parsed(line), Released::Pod("game-x".to_owned()), "{line}");
        }
        for line in ["game", "gd/game", "gamestatefulset world"] {
            assert!(matches!(parsed(line), Released::Workload(_)), "{line}");
        }
        assert!(Released::parse(&["pod/".to_owned()]).is_err());
    }

    #[test]
    fn a_release_applies_only_to_the_pod_that_was_read() {
        let annotations = json!({"karpenter.sh/do-not-disrupt": "true", "other": "1"});
        let pod = json!({"metadata": {
            "name": "game-x", "uid": "u", "labels": {GUARDED_LABEL: "w"}, "annotations": annotations,
        }});
        let pod: Pod = serde_json::from_value(pod).expect("pod");
        let patch = patch(&pod, Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["metadata"]["labels"], json!({GUARDED_LABEL: null}));
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(
            annotations.get("karpenter.sh/do-not-disrupt"),
            Some(&Value::Null)
        );
        assert_eq!(annotations.as_object().map(|it| it.len()), Some(2));
    }
}
