//! The change of a running pod, with everything that the API server tests before it makes the change.

use super::PodRef;
use crate::observed::InPlaceRecord;

/// One patch of a running pod. The API server tests everything that the decision is based on: uid (and
/// resourceVersion), the images that are changed, the revision label, and the tokens of SidecarSets.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlacePatch {
    /// The pod.
    pub pod: PodRef,
    /// The revision label that the decision is based on.
    pub from_revision: String,
    /// Images to change.
    pub images: Vec<ImageChange>,
    /// Labels to set, or (None) to remove; the revision label is among them.
    pub labels: Vec<(String, Option<String>)>,
    /// Whether the pod already has any annotations.
    pub annotated: bool,
    /// Annotations to set, or (None) to remove.
    pub annotations: Vec<(String, Option<String>)>,
    /// The annotations with the tokens that allow sidecars to be changed, as they were observed.
    pub tokens: Vec<(String, String)>,
    /// The record to leave on the pod.
    pub record: InPlaceRecord,
}

impl InPlacePatch {
    /// Whether this patch continues an update with the next container. The update's first patch has already set the
    /// revision label.
    pub fn is_continuation(&self) -> bool {
        self.labels.is_empty()
    }
}

/// The change of one container's image.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageChange {
    /// Whether the container is a native sidecar (an init container that keeps running).
    pub init: bool,
    /// Its index in spec.containers or spec.initContainers.
    pub index: usize,
    /// Its name, which the patch tests.
    pub name: String,
    /// Its current image, which the patch tests.
    pub from: String,
    /// Its new image.
    pub to: String,
}
