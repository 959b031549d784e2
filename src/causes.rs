//! An error as a log line needs it. Beside the layers: whoever tells of an error may use it.

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
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn why_a_server_cannot_be_reached_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let url = format!("http://{address}").parse().expect("a URL");
        let client = kube::Client::try_from(kube::Config::new(url)).expect("a client");
        let error = client.apiserver_version().await.expect_err("nobody there");
        let told = with_causes(&error);
        assert!(told.contains("refused"), "{told}");
        assert_eq!(told.matches("client error").count(), 1, "{told}");
    }
}
