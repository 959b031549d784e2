//! The range from which a GameDeployment's pods get their indexes, in the format of bk-bcs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::AnnotationLimits;
use super::names::{INDEX_ON, INDEX_RANGE};

/// The indexes from `start` (inclusive) to `end` (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// The first index.
    pub start: u32,
    /// The first number after the last index.
    pub end: u32,
}

/// Why a range is invalid. The message completes a sentence that begins with the annotation's key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidIndexRange(String);

/// The annotation's value.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnnotationValue {
    #[serde(default)]
    pod_start_index: u32,
    pod_end_index: u32,
}

const EXAMPLE: &str =
    r#"must be JSON such as {"podStartIndex": 100, "podEndIndex": 110}, for indexes 100 to 109"#;

impl IndexRange {
    /// The range in a workload's annotations; None while its pods get no indexes.
    ///
    /// # Errors
    /// If indexes are enabled and the range is missing, empty or cannot be parsed.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, InvalidIndexRange> {
        if annotations.get(INDEX_ON).is_none_or(|value| value != "true") {
            return Ok(None);
        }
        let Some(text) = annotations.get(INDEX_RANGE) else {
            return Err(InvalidIndexRange(EXAMPLE.to_owned()));
        };
        let value: AnnotationValue = AnnotationLimits::SMALL.read(text).ok_or_else(|| {
            InvalidIndexRange(format!("{EXAMPLE}: both must be whole numbers, 0 or more"))
        })?;
        let range = Self { start: value.pod_start_index, end: value.pod_end_index };
        match range.is_empty() {
            true => Err(InvalidIndexRange(format!(
                "{EXAMPLE}: podEndIndex must be greater than podStartIndex"
            ))),
            false => Ok(Some(range)),
        }
    }

    fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// How many indexes there are.
    pub fn count(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether an index is in the range.
    pub fn contains(self, index: u32) -> bool {
        (self.start..self.end).contains(&index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(enabled: &str, range: Option<&str>) -> Result<Option<IndexRange>, InvalidIndexRange> {
        let enabled = (INDEX_ON.to_owned(), enabled.to_owned());
        let range = range.map(|range| (INDEX_RANGE.to_owned(), range.to_owned()));
        IndexRange::of(&std::iter::once(enabled).chain(range).collect())
    }

    #[test]
    fn a_range_is_half_open() {
        let range = read("true", Some(r#"{"podStartIndex": 100, "podEndIndex": 110}"#));
        let range = range.unwrap().unwrap();
        assert_eq!((range.start, range.end, range.count()), (100, 110, 10));
        assert!(range.contains(100) && range.contains(109) && !range.contains(110));
        let from_0 = read("true", Some(r#"{"podEndIndex": 3}"#)).unwrap().unwrap();
        assert_eq!((from_0.start, from_0.end), (0, 3));
    }

    #[test]
    fn only_true_turns_indexes_on() {
        for value in ["True", "1", "false", ""] {
            assert_eq!(read(value, None), Ok(None), "{value}");
        }
        assert_eq!(IndexRange::of(&BTreeMap::new()), Ok(None));
    }

    #[test]
    fn a_range_that_cannot_be_used_is_an_error() {
        for range in [
            None,
            Some("100-110"),
            Some("{}"),
            Some(r#"{"podStartIndex": -1, "podEndIndex": 3}"#),
            Some(r#"{"podStartIndex": 3, "podEndIndex": 3}"#),
            Some(r#"{"podStartIndex": 4, "podEndIndex": 3}"#),
            Some(r#"{"podStartIndex": "1", "podEndIndex": 3}"#),
            Some(r#"{"podstart": 1, "podEndIndex": 3}"#),
        ] {
            let error = read("true", range).unwrap_err().to_string();
            assert!(error.starts_with(EXAMPLE), "{range:?}: {error}");
        }
    }
}
