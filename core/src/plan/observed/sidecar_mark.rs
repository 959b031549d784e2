//! The marks on a pod: which SidecarSets were considered when it was created, and what they injected.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::names::SIDECARS_PREFIX;

/// The marks of a pod, by the name of the SidecarSet.
pub type SidecarMarks = BTreeMap<String, SidecarMark>;

/// The mark of one SidecarSet. Each set has its own annotation, so that no value depends on two sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SidecarMark {
    /// The revision of the set.
    #[serde(rename = "at")]
    pub revision: String,
    /// The names of the containers that it injected.
    #[serde(rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// Why nothing was injected.
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl SidecarMark {
    /// Whether the pod has the set's containers.
    pub fn is_injected(&self) -> bool {
        self.left_out.is_none()
    }
}

/// The marks among a pod's annotations. Marks that cannot be decoded are ignored.
pub fn sidecar_marks(annotations: &BTreeMap<String, String>) -> SidecarMarks {
    let from = SIDECARS_PREFIX.to_owned();
    let marks = annotations.range(from..);
    let marks = marks.map_while(|(key, mark)| Some((key.strip_prefix(SIDECARS_PREFIX)?, mark)));
    let read =
        marks.filter_map(|(set, mark)| Some((set.to_owned(), serde_json::from_str(mark).ok()?)));
    read.collect()
}
