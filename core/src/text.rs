//! Text in messages.

/// Cuts a string to a maximum number of characters.
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
