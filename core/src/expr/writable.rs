//! The labels and annotations that a hook may write on its pod.

use super::field::metadata_key;
use crate::api::names::DELETING_ANNOTATION;

/// The domains of keys that hooks may not write, because the keys belong to Kubernetes, the operator or the
/// controllers of bk-bcs.
const RESERVED: [&str; 6] = [
    "kubernetes.io",
    "k8s.io",
    "tkex.tencent.com",
    "bkbcs.tencent.com",
    "io.tencent.bcs.dev",
    "io.kubernetes.hotpatch.container",
];
/// The exception among these domains: existing hooks for bk-bcs set load balancer weights there. They also set
/// [`DELETING_ANNOTATION`] to false, which is allowed for the same reason.
const NETWORK: &str = "networkextension.bkbcs.tencent.com";
const RESERVED_LABELS: [&str; 2] = ["controller-revision-hash", "pod-template-hash"];

/// The map (`labels` or `annotations`) and the key that a path names, if hooks may write this value there.
///
/// # Errors
/// If hooks may not write it; the error is the message.
pub fn writable<'a>(path: &'a str, value: &str) -> Result<(&'static str, &'a str), String> {
    let (map, key) = metadata_key(path).ok_or_else(|| {
        format!("{path} cannot be written: write metadata.annotations.KEY or metadata.labels.KEY")
    })?;
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let is_in = |reserved: &str| {
        domain.strip_suffix(reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let is_exception = domain == NETWORK || (key == DELETING_ANNOTATION && value == "false");
    let is_reserved =
        RESERVED.iter().any(|reserved| is_in(reserved)) || RESERVED_LABELS.contains(&key);
    if is_reserved && !is_exception {
        return Err(format!("{path} cannot be written by hooks: use a key of your own"));
    }
    Ok((map, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_cannot_write_reserved_labels_and_annotations() {
        for path in [
            "metadata.annotations.example.com/drained",
            "metadata.labels.drained",
            "metadata.annotations.notkubernetes.io/x",
            "metadata.annotations.networkextension.bkbcs.tencent.com/clb-weight",
        ] {
            assert!(writable(path, "true").is_ok(), "{path}");
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
            "metadata.annotations.x.networkextension.bkbcs.tencent.com/y",
            "metadata.labels.controller-revision-hash",
        ] {
            assert!(writable(path, "true").is_err(), "{path}");
        }
        let deleting = "metadata.annotations.io.tencent.bcs.dev/game-pod-deleting";
        assert!(writable(deleting, "false").is_ok());
    }
}
