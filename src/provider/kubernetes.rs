//! Kubernetes metrics: fields of the pod that the run is about, compared or written.
//!
//! The pod is the one named by the arguments PodName and PodNamespace, and never one of another
//! namespace than the run's: who may write a HookRun here need not be allowed anything there. Nor need
//! they be allowed to change pods here, so that is done in runs alone that the operator made for a pod.

use serde_json::{Map, Value, json};

use super::field::{NoField, field, metadata_key};
use super::judge::Conditions;
use super::measure::Measurement;
use crate::api::names::RUN_POD_UID;
use crate::api::{HookPhase, KubernetesField, KubernetesFunction, KubernetesMetric};
use crate::expr::{Subject, brief};
use crate::plan::hook_run::Outcome;

/// Names of the arguments that say which pod.
pub(super) const POD_ARGUMENTS: [&str; 2] = ["PodName", "PodNamespace"];

/// Keys that belong to Kubernetes, to the operator or to bk-bcs' own controllers.
const FOREIGN: [&str; 6] = [
    "kubernetes.io",
    "k8s.io",
    "tkex.tencent.com",
    "bkbcs.tencent.com",
    "io.tencent.bcs.dev",
    "io.kubernetes.hotpatch.container",
];
const FOREIGN_LABELS: [&str; 2] = ["controller-revision-hash", "pod-template-hash"];

/// Compares or writes fields of the pod.
pub(super) async fn measure(of: &Measurement<'_>, kubernetes: &KubernetesMetric) -> Outcome {
    let measured = match kubernetes.function {
        KubernetesFunction::Get => get(of, &kubernetes.fields).await,
        KubernetesFunction::Patch => patch(of, &kubernetes.fields).await,
    };
    measured.unwrap_or_else(Outcome::error)
}

/// Namespace and name of the pod.
fn pod<'a>(of: &'a Measurement<'_>) -> Result<(&'a str, &'a str), String> {
    let namespace = of.run.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(other) = of
        .arguments
        .get("PodNamespace")
        .filter(|other| *other != namespace)
    {
        return Err(format!(
            "pods of namespace {other} are out of reach: the run is in {namespace}"
        ));
    }
    match of.arguments.get("PodName") {
        Some(name) if !name.is_empty() => Ok((namespace, name)),
        _ => Err("which pod? give the argument PodName a value".into()),
    }
}

/// Uid of the pod that the run was made for, where it was made for one.
fn wanted_uid<'a>(of: &'a Measurement<'_>) -> Option<&'a str> {
    let annotations = of.run.metadata.annotations.as_ref()?;
    annotations
        .get(RUN_POD_UID)
        .map(String::as_str)
        .filter(|uid| !uid.is_empty())
}

async fn get(of: &Measurement<'_>, fields: &[KubernetesField]) -> Result<Outcome, String> {
    let (namespace, name) = pod(of)?;
    let pod = of.cluster()?.pod(namespace, name).await?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    if wanted_uid(of).is_some_and(|wanted| wanted != uid) {
        return Err(format!(
            "pod {name} is another one now than the run was made for"
        ));
    }
    let mut found = Vec::new();
    for KubernetesField { path, value } in fields {
        let path = of.fill("path", path)?;
        let wanted = value
            .as_ref()
            .map(|value| of.fill("value", value))
            .transpose()?;
        let text = match field(&pod, &path) {
            Ok(text) => text,
            Err(NoField::Bad(why)) => return Err(why),
            Err(NoField::NotSet) => {
                return Ok(failed("", format!("{path} of pod {name} is not set")));
            }
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != text) {
            let (is, wanted) = (brief(&text), brief(&wanted));
            return Ok(failed(
                &text,
                format!("{path} of pod {name} is {is}, not {wanted}"),
            ));
        }
        found.push(text);
    }
    let conditions = Conditions::of(of.metric);
    let judged = of
        .probe
        .guard
        .run(namespace, move || match found.as_slice() {
            [one] => conditions.judge(&Subject::text(one.as_str()), None),
            many => {
                let list = Value::from(many);
                conditions.judge(&Subject::whole(&list), None)
            }
        });
    judged.await.map_err(|panicked| panicked.to_string())
}

fn failed(value: &str, message: String) -> Outcome {
    let value = (!value.is_empty()).then(|| brief(value));
    Outcome {
        phase: HookPhase::Failed,
        value,
        message: Some(message),
        ..Outcome::default()
    }
}

async fn patch(of: &Measurement<'_>, fields: &[KubernetesField]) -> Result<Outcome, String> {
    let Some(uid) = wanted_uid(of).filter(|_| of.run.controlling_workload().is_some()) else {
        return Err(
            "function patch is for HookRuns that a workload made for one of its pods: by hand, use \
            kubectl annotate or kubectl label"
                .into(),
        );
    };
    let (namespace, name) = pod(of)?;
    let mut maps: Map<String, Value> = Map::new();
    for KubernetesField { path, value } in fields {
        let path = of.fill("path", path)?;
        let (map, key) = writable(&path)?;
        let value = value
            .as_deref()
            .ok_or_else(|| format!("{path} needs a value to write"))?;
        let value = of.fill("value", value)?;
        maps.entry(map).or_insert_with(|| json!({}))[key] = Value::from(value);
    }
    // A pod of the same name that came later has another uid, and is not written to.
    maps.insert("uid".to_owned(), Value::from(uid));
    of.cluster()?
        .patch_pod(namespace, name, &json!({"metadata": maps}))
        .await?;
    Ok(Outcome {
        phase: HookPhase::Successful,
        ..Outcome::default()
    })
}

/// The label or annotation of a path, if hooks may write it.
///
/// # Errors
/// In words, when they may not.
pub fn writable(path: &str) -> Result<(&'static str, &str), String> {
    let (map, key) = metadata_key(path).ok_or_else(|| {
        format!("{path} cannot be written: write metadata.annotations.KEY or metadata.labels.KEY")
    })?;
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let is_of = |foreign: &str| {
        domain
            .strip_suffix(foreign)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if FOREIGN.iter().any(|foreign| is_of(foreign)) || FOREIGN_LABELS.contains(&key) {
        return Err(format!(
            "{path} is not for hooks to write: take a key of your own"
        ));
    }
    Ok((map, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_labels_and_annotations_can_be_written() {
        for path in [
            "metadata.annotations.example.com/drained",
            "metadata.labels.drained",
            "metadata.annotations.notkubernetes.io/x",
        ] {
            assert!(writable(path).is_ok(), "{path}");
        }
        for path in [
            "metadata.name",
            "spec.nodeName",
            "{.metadata.annotations.x}",
            "metadata.annotations.",
            "metadata.finalizers.0",
            "metadata.annotations.controller.kubernetes.io/pod-deletion-cost",
            "metadata.annotations.kubernetes.io/x",
            "metadata.annotations.x.k8s.io/y",
            "metadata.annotations.gamekeeper.tkex.tencent.com/in-place-record",
            "metadata.labels.tkex.bkbcs.tencent.com/gamedeployment-instance-id",
            "metadata.annotations.io.tencent.bcs.dev/game-pod-deleting",
            "metadata.annotations.io.kubernetes.hotpatch.container",
            "metadata.labels.controller-revision-hash",
        ] {
            assert!(writable(path).is_err(), "{path}");
        }
    }
}
