//! Changes to several pods. If a pod no longer exists, or cannot be changed, the others are still changed.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;

use crate::cluster::{Cluster, PodChange};
use crate::command::put;
use crate::error::Error;

/// Changes pods one after another.
pub struct PodChanges<'a> {
    pub cluster: &'a Cluster,
    /// What the command prints about a pod that it has changed.
    pub done: &'a str,
    pub dry_run: bool,
}

/// How many pods were changed, and why others could not be.
#[derive(Default)]
pub struct Changed {
    pub count: usize,
    errors: Vec<Error>,
}

impl PodChanges<'_> {
    /// Changes these pods, and prints the outcome for each.
    pub async fn apply(
        &self,
        pods: &[&Pod],
        patch: impl Fn(&Pod) -> Value,
    ) -> Result<Changed, Error> {
        let mut changed = Changed::default();
        for pod in pods {
            let name = pod.name_any();
            let cluster = self.cluster.in_namespace(pod.namespace().unwrap_or_default());
            match cluster.change_pod(pod, &patch, self.dry_run).await {
                Ok(change) => {
                    let done = format!("{}{}", self.done, self.suffix());
                    put(&format!("{}\n", outcome(&name, &done, change)))?;
                    changed.count += usize::from(change == PodChange::Done);
                }
                Err(error @ Error::Server(_)) => changed.errors.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }

    /// What follows the outcome of a change in a dry run.
    pub fn suffix(&self) -> &'static str {
        match self.dry_run {
            true => " (server dry run)",
            false => "",
        }
    }
}

/// The outcome of a change to a pod.
pub fn outcome(name: &str, done: &str, change: PodChange) -> String {
    match change {
        PodChange::Done => format!("pod/{name} {done}"),
        PodChange::NoPod => format!("pod/{name} no longer exists: skipped"),
    }
}

impl Changed {
    /// Fails if a pod could not be changed.
    pub fn into_result(self) -> Result<(), Error> {
        match <[Error; 1]>::try_from(self.errors) {
            Ok([error]) => Err(error),
            Err(errors) if errors.is_empty() => Ok(()),
            Err(errors) => Err(Error::Several(errors)),
        }
    }
}
