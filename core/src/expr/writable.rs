//! The labels and annotations of its pod that a hook may write.

use super::field::metadata_key;

/// Domains of keys that belong to Kubernetes, the operator or the controllers of bk-bcs.
const FOREIGN: [&str; 6] = [
    "kubernetes.io",
    "k8s.io",
    "tkex.tencent.com",
    "bkbcs.tencent.com",
    "io.tencent.bcs.dev",
    "io.kubernetes.hotpatch.container",
];
const FOREIGN_LABELS: [&str; 2] = ["controller-revision-hash", "pod-template-hash"];

/// The map and key of a label or annotation, if hooks may write it.
///
/// # Errors
/// A message if they may not.
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
            "{path} cannot be written by hooks: use a key of your own"
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
