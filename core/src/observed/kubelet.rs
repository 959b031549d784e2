//! Kubelets that cannot make every change in a running pod.

use std::sync::Arc;

/// The first minor version of Kubernetes whose kubelet restarts a native sidecar when its image changes
/// (kubernetes/kubernetes#126525).
const RESTARTS_SIDECARS: u32 = 32;

/// The first minor version of Kubernetes in which the resources of running containers change, unless a feature gate is
/// switched off.
const RESIZES: u32 = 33;

/// A kubelet that cannot change the resources of running containers. The API server of its cluster may not be able to
/// either: it is at most three minor versions newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldKubelet {
    /// Its version as the node reports it.
    pub version: Arc<str>,
    minor: u32,
}

impl OldKubelet {
    /// The kubelet of this version, such as `v1.31.4-eks-1`; None if it can make every change. Versions that are not
    /// Kubernetes' own (kwok's for example) are taken for new ones.
    pub fn of(version: &str) -> Option<Self> {
        let minor = version.trim_start_matches('v').strip_prefix("1.")?;
        let minor = minor.split(|c: char| !c.is_ascii_digit()).next()?;
        let minor = minor.parse().ok()?;
        let version = version.into();
        (minor < RESIZES).then_some(OldKubelet { version, minor })
    }

    /// Whether it restarts a native sidecar whose image changes.
    pub fn restarts_sidecars(&self) -> bool {
        self.minor >= RESTARTS_SIDECARS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelets_version_tells_what_it_can_change() {
        for (version, is_old, restarts_sidecars) in [
            ("v1.31.4", true, false),
            ("v1.29.15-eks-1", true, false),
            ("v1.32.0", true, true),
            ("v1.32.7-gke.1", true, true),
            ("v1.33.0", false, true),
            ("v1.36.3+k3s1", false, true),
            ("v0.8.0", false, true),
            ("kwok-v0.8.0", false, true),
            ("", false, true),
        ] {
            let kubelet = OldKubelet::of(version);
            assert_eq!(kubelet.is_some(), is_old, "{version}");
            let restarts = kubelet.is_none_or(|it| it.restarts_sidecars());
            assert_eq!(restarts, restarts_sidecars, "{version}");
        }
    }
}
