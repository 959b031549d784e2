//! What commands print: pure functions of objects, a style and the time.

pub mod guard;
pub mod head;
pub mod history;
pub mod hooks;
pub mod list;
pub mod pod;
pub mod run;
pub mod sidecars;
pub mod status;
pub mod tree;

use crate::page::sanitize;

/// A string on one line, truncated to this number of characters.
pub fn cut(text: &str, max: usize) -> String {
    let text = sanitize(text);
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if one_line.chars().count() <= max {
        return one_line;
    }
    let start: String = one_line.chars().take(max.saturating_sub(3)).collect();
    format!("{start}...")
}

/// What kubectl prints for an empty list.
pub fn none_found(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("No resources found in {namespace} namespace."),
        None => "No resources found".to_owned(),
    }
}
