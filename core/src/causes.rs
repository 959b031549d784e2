//! An error as a log line needs it.

use std::error::Error;

/// An error with its causes: the first one alone often says only that something failed.
pub fn with_causes(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
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
        let told = with_causes(&Failed("client error (Connect)", refused()));
        assert_eq!(told, "client error (Connect): connection refused");
        let told = with_causes(&Failed("failed: connection refused", refused()));
        assert_eq!(told, "failed: connection refused");
    }
}
