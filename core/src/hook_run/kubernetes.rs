//! Kubernetes metrics, which concern only the pod: what admission and measurements have in common.

/// Why an argument that selects another object is refused.
pub const ALWAYS_THE_POD: &str = "would select another object in bk-bcs; here a kubernetes metric always reads \
                                  the pod, so remove it";

/// Whether an argument of this name makes a kubernetes metric of bk-bcs read an object other than the pod.
pub fn selects_object(argument: &str) -> bool {
    matches!(argument, "Group" | "Version" | "Kind")
}
