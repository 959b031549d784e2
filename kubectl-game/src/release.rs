//! `release`: releases pods from their guard, so they may be deleted without their hook.
//!
//! The change is made as the user, so the audit log shows who ended a match. It asks first: a match that has ended does
//! not come back.

use std::collections::BTreeMap;
use std::io::Write as _;

use gamekeeper_core::api::names::{
    GUARDED_LABEL, RELEASED_ANNOTATION, WorkloadKind, autoscaler_annotations,
};
use gamekeeper_core::text::counted;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::command::put;
use crate::error::{Error, refuse};
use crate::kind::{Reference, full_name, name_after, short_name};
use crate::options::ClusterOptions;
use crate::page::sanitize;
use crate::pod_changes::{PodChanges, outcome};
use crate::scene::workload_of;

/// What the command releases.
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

/// Guarded pods of a workload.
struct GuardedPods {
    kind: WorkloadKind,
    name: String,
    pods: Vec<Pod>,
}

/// Whether the user has confirmed that matches may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed(pub bool);

/// Asks whether the matches on these pods may end.
fn confirm(confirmed: Confirmed, pods: &[&Pod]) -> Result<(), Error> {
    if confirmed.0 {
        return Ok(());
    }
    let names: Vec<String> = pods.iter().take(SHOWN).map(|pod| pod.name_any()).collect();
    let more = match pods.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = sanitize(&names.join(", ")).into_owned();
    eprint!("Players on {names}{more} may lose their match. Continue? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => refuse("not released; --yes releases without asking"),
    }
}

/// The number of pods that the question names.
const SHOWN: usize = 5;

/// Releases a pod, or all guarded pods of a workload.
pub async fn release(
    target: &ClusterOptions,
    words: &[String],
    confirmed: Confirmed,
    dry_run: bool,
) -> Result<(), Error> {
    let released = Released::parse(words)?;
    let cluster = Cluster::connect(target).await?;
    let changes = PodChanges { cluster: &cluster, done: "released", dry_run };
    let patch = |pod: &Pod| patch(pod, Timestamp::now());
    match released {
        Released::Pod(name) => {
            let pod = guarded(&cluster, &name).await?;
            confirm(confirmed, &[&pod])?;
            changes.apply(&[&pod], patch).await?.into_result()
        }
        Released::Workload(reference) => {
            let guarded = guarded_pods(&cluster, &reference).await?;
            if guarded.pods.is_empty() {
                let name = short_name(guarded.kind, &guarded.name);
                return refuse(format!("no pod of {name} is guarded: nothing to release"));
            }
            let pods: Vec<&Pod> = guarded.pods.iter().collect();
            confirm(confirmed, &pods)?;
            let changed = changes.apply(&pods, patch).await?;
            let count = counted(changed.count, "pod", "pods");
            let name = full_name(guarded.kind, &guarded.name);
            put(&format!("{name} released: {count}{}\n", changes.suffix()))?;
            changed.into_result()
        }
    }
}

/// Releases one pod, and returns the outcome.
pub async fn request(cluster: &Cluster, name: &str) -> Result<String, Error> {
    let pod = guarded(cluster, name).await?;
    let changed = cluster.change_pod(&pod, |pod| patch(pod, Timestamp::now()), false).await?;
    Ok(outcome(name, "released", changed))
}

/// The pod with this name, which must be guarded.
async fn guarded(cluster: &Cluster, name: &str) -> Result<Pod, Error> {
    let pod = cluster.pod(name).await?;
    match is_guarded(&pod) {
        true => Ok(pod),
        false => refuse(format!("pod/{name} is not guarded: nothing to release")),
    }
}

/// The guarded pods of a workload. A workload that no longer exists may have left some: pods stay guarded if a user
/// removed its finalizer, or its CRD.
async fn guarded_pods(cluster: &Cluster, reference: &Reference) -> Result<GuardedPods, Error> {
    let found = cluster.find(reference).await;
    let labeled = async || cluster.select::<Pod>(GUARDED_LABEL).await;
    match found {
        Ok(game) => {
            let mut pods = labeled().await?;
            pods.retain(|pod| is_guarded_for(pod, &game.uid));
            Ok(GuardedPods { kind: game.kind, name: game.name, pods })
        }
        Err(missing @ Error::NotFound(_)) => {
            let pods = labeled().await.unwrap_or_default();
            left_by(reference, pods).unwrap_or(Err(missing))
        }
        Err(error) => Err(error),
    }
}

/// Whether a guarded pod belongs to the workload with this uid. The owner reference decides, because users may change
/// labels. If no workload controls the pod anymore, the label's value decides.
fn is_guarded_for(pod: &Pod, uid: &str) -> bool {
    match workload_of(pod) {
        Some(owner) => owner.uid == uid,
        None => pod.labels().get(GUARDED_LABEL).is_some_and(|it| it == uid),
    }
}

/// The guarded pods that a deleted workload has left; None if there are none. Fails if two workloads of this name have
/// left some.
fn left_by(reference: &Reference, pods: Vec<Pod>) -> Option<Result<GuardedPods, Error>> {
    let mut left: BTreeMap<WorkloadKind, Vec<Pod>> = BTreeMap::new();
    for pod in pods {
        let kind = kind_of_controller(&pod, &reference.name);
        if let Some(kind) = kind.filter(|kind| reference.kinds().contains(kind)) {
            left.entry(kind).or_default().push(pod);
        }
    }
    let name = &reference.name;
    let (kind, pods) = left.pop_first()?;
    if let Some((other, _)) = left.pop_first() {
        let (one, other) = (short_name(kind, name), short_name(other, name));
        let why =
            format!("two workloads named {name} have left guarded pods: write {one} or {other}");
        return Some(Err(Error::Usage(why)));
    }
    Some(Ok(GuardedPods { kind, name: name.clone(), pods }))
}

/// The kind of a pod's controller, if it is a workload of this name.
fn kind_of_controller(pod: &Pod, name: &str) -> Option<WorkloadKind> {
    let owner = workload_of(pod).filter(|owner| owner.name == name)?;
    WorkloadKind::parse(&owner.kind)
}

fn is_guarded(pod: &Pod) -> bool {
    pod.labels().contains_key(GUARDED_LABEL)
}

/// The patch that releases a pod. The uid is a precondition, because another pod may have the name by now.
fn patch(pod: &Pod, now: Timestamp) -> Value {
    let mut annotations = json!({RELEASED_ANNOTATION: now.to_string()});
    for key in autoscaler_annotations(pod.annotations()) {
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
    fn words_refer_to_a_pod_or_a_workload() {
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
        assert_eq!(annotations.get("karpenter.sh/do-not-disrupt"), Some(&Value::Null));
        assert_eq!(annotations.as_object().map(|it| it.len()), Some(2));
    }
}
