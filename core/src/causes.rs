//! Errors in messages.

use std::error::Error;

/// Words of libraries that say nothing to a user, if a cause follows.
const EMPTY_WORDS: [&str; 3] =
    ["ServiceError", "client error (Connect)", "client error (SendRequest)"];
/// What libraries print, and what it means.
const MEANINGS: [(&str, &str); 3] = [
    (
        "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
        "the server's certificate is that of a certificate authority (CA:TRUE), not of a server",
    ),
    (
        "invalid peer certificate: UnknownIssuer",
        "the server's certificate was issued by an authority that is not trusted",
    ),
    ("invalid peer certificate: Expired", "the server's certificate has expired"),
];

/// An error's message, followed by the messages of its causes, except those that it already contains, in words that say
/// something to users.
pub fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if EMPTY_WORDS.contains(&message.as_str()) {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    in_plain_words(message)
}

/// A message of a library, with what it means to a user.
pub fn in_plain_words(message: String) -> String {
    let known = MEANINGS.iter().find(|(words, _)| message.contains(words));
    match known {
        Some((words, meaning)) => message.replace(words, meaning),
        None => message,
    }
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
        assert_eq!(message, "connection refused");
        let message =
            with_causes(&Failed("a", io::Error::other("invalid peer certificate: UnknownIssuer")));
        let expected = "a: the server's certificate was issued by an authority that is not trusted";
        assert_eq!(message, expected);
        let message = with_causes(&Failed("failed: connection refused", refused()));
        assert_eq!(message, "failed: connection refused");
    }
}
