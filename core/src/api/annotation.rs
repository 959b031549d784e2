//! JSON in annotations. All who may write an object may write any text of up to 256 KiB into its annotations, in which
//! maps take eighty times the memory of their text.

use serde::Deserialize;

use super::json_memory;

/// The limits of the JSON in one annotation, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationLimits {
    /// The longest text.
    pub length: usize,
    /// The most memory that it may take as maps.
    pub memory: usize,
}

impl AnnotationLimits {
    /// For a few fields.
    pub const SMALL: Self = Self::of_length(4 << 10);
    /// For a few fields of each container of a pod.
    pub const PER_CONTAINER: Self = Self::of_length(64 << 10);
    /// For a hook with its metrics, whose bodies stay text.
    pub const HOOK: Self = Self { length: 256 << 10, memory: 16 << 20 };

    const fn of_length(length: usize) -> Self {
        Self { length, memory: 8 * length }
    }

    /// Reads JSON. None if the text has another form or exceeds the limits, which is checked before it is parsed.
    pub fn read<'t, T: Deserialize<'t>>(self, text: &'t str) -> Option<T> {
        let fits = text.len() <= self.length && json_memory(text.as_bytes()) <= self.memory;
        fits.then(|| serde_json::from_str(text).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;

    #[test]
    fn text_that_is_too_long_or_takes_too_much_memory_is_not_parsed() {
        let limits = AnnotationLimits::PER_CONTAINER;
        let list = |count: usize| format!(r#"{{"a":[{}]}}"#, vec![r#"{"b":1}"#; count].join(","));
        let read = |text: &str| limits.read::<BTreeMap<String, Value>>(text).is_some();
        assert!(read(&list(500)));
        assert!(!read(&list(1_000)));
        let text = |length: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(length));
        assert!(read(&text(65_000)));
        assert!(!read(&text(66_000)));
        assert!(!read("[]"));
    }
}
