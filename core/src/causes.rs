//! Errors in log lines.

use std::error::Error;

/// An error's message, followed by the messages of its causes, except those that it already contains.
pub fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Failed(&'static str, #[source] io::Error);

    #[test]
    fn a_cause_is_added_once() {
        let refused = || io::Error::other("connection refused");
        let message = with_causes(&Failed("client error (Connect)", refused()));
        assert_eq!(message, "client error (Connect): connection refused");
        let message = with_causes(&Failed("failed: connection refused", refused()));
        assert_eq!(message, "failed: connection refused");
    }
}
