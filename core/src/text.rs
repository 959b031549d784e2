//! Helpers for the text of messages.

/// Cuts a string after `max` characters, and appends `...` if anything was cut off.
///
/// ```
/// use gamekeeper_core::text::truncate;
///
/// assert_eq!(truncate("players > 10", 20), "players > 10");
/// assert_eq!(truncate("players > 10", 7), "players...");
/// ```
pub fn truncate(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A number, followed by `one` if the number is 1, and by `many` if not.
///
/// ```
/// use gamekeeper_core::text::counted;
///
/// assert_eq!(counted(1, "pod is", "pods are"), "1 pod is");
/// assert_eq!(counted(0, "pod is", "pods are"), "0 pods are");
/// ```
pub fn counted(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}
