//! The marks on a pod: which SidecarSets were considered when it was created, what they injected, and to which
//! revision its sidecars may be updated.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::AnnotationLimits;
use crate::api::names::SIDECARS_PREFIX;

/// The marks of a pod, by the name of the SidecarSet.
pub type SidecarMarks = BTreeMap<String, SidecarMark>;

/// The mark of one SidecarSet. Each set has its own annotation, so that no value depends on two sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SidecarMark {
    /// The revision of the set that the pod's containers have.
    #[serde(rename = "at")]
    pub revision: String,
    /// The hash of everything in that revision that cannot be changed in a running pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shape: String,
    /// The names of the containers that the set injected.
    #[serde(rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// Why nothing was injected.
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// The token: the revision to which the pod's workload may update the containers.
    #[serde(rename = "to", skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When the pod last got a token.
    #[serde(rename = "since", skip_serializing_if = "Option::is_none")]
    pub token_since: Option<Timestamp>,
    /// The annotation's value as it was read, if [`SidecarMark::text`] does not return the same: other clients and
    /// later versions format marks differently.
    #[serde(skip)]
    pub read_from: Option<Box<str>>,
}

impl SidecarMark {
    /// Whether the pod has the set's containers.
    pub fn is_injected(&self) -> bool {
        self.left_out.is_none()
    }

    /// Whether the mark has a token for this revision.
    pub fn allows(&self, revision: &str) -> bool {
        self.token.as_deref() == Some(revision)
    }

    /// The mark after an update of the containers to a revision. It has no token.
    pub fn updated_to(&self, revision: &str) -> Self {
        Self { revision: revision.to_owned(), token: None, token_since: None, ..self.clone() }
    }

    /// The value that its annotation is set to.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The value that the annotation had when the mark was read. Patches test it.
    pub fn as_read(&self) -> String {
        match &self.read_from {
            Some(text) => text.to_string(),
            None => self.text(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mark: Self = AnnotationLimits::SMALL.read(text)?;
        let is_same = mark.text() == text;
        Some(Self { read_from: (!is_same).then(|| text.into()), ..mark })
    }
}

/// The key of the annotation with the mark of a set.
pub fn mark_key(set: &str) -> String {
    format!("{SIDECARS_PREFIX}{set}")
}

/// The largest number of marks that are read.
const MAX_MARKS: usize = 64;

/// The marks among a pod's annotations. Marks that cannot be decoded are ignored.
pub fn sidecar_marks(annotations: &BTreeMap<String, String>) -> SidecarMarks {
    let start = SIDECARS_PREFIX.to_owned();
    let marks = annotations.range(start..);
    let marks = marks.map_while(|(key, mark)| Some((key.strip_prefix(SIDECARS_PREFIX)?, mark)));
    let decoded = marks
        .take(MAX_MARKS)
        .filter_map(|(set, text)| Some((set.to_owned(), SidecarMark::read(text)?)));
    decoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_written_as_it_was_read() {
        for text in [
            r#"{"at":"log-1","in":["log"]}"#,
            r#"{"at":"log-1","out":"the pod has another container \"log\""}"#,
            r#"{"at":"log-1","shape":"7bf4c","in":["log"],"to":"log-2","since":"2026-01-02T03:04:05Z"}"#,
        ] {
            let annotations = BTreeMap::from([(mark_key("log"), text.to_owned())]);
            assert_eq!(sidecar_marks(&annotations)["log"].text(), text);
        }
    }

    #[test]
    fn a_pod_has_a_limited_number_of_marks() {
        let mark = || r#"{"at":"log-1","in":["log"]}"#.to_owned();
        let annotations = (0..3 * MAX_MARKS).map(|set| (mark_key(&format!("set-{set}")), mark()));
        assert_eq!(sidecar_marks(&annotations.collect()).len(), MAX_MARKS);
    }

    #[test]
    fn a_patch_tests_the_text_of_a_mark_that_another_client_has_formatted() {
        for text in [
            r#"{"at": "log-1", "in": ["log"]}"#,
            r#"{"in":["log"],"at":"log-1"}"#,
            r#"{"at":"log-1","in":["log"],"field-of-a-later-version":true}"#,
        ] {
            let annotations = BTreeMap::from([(mark_key("log"), text.to_owned())]);
            let mark = &sidecar_marks(&annotations)["log"];
            assert_eq!(mark.as_read(), text);
            let new = mark.updated_to("log-2");
            assert_eq!(new.text(), r#"{"at":"log-2","in":["log"]}"#);
        }
    }
}
