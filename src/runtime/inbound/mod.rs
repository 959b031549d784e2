//! Servers that any pod may call: the webhook's, and the one for metrics and probes.
//!
//! They do not authenticate callers, so they limit each address and all addresses together: the number and duration
//! of connections, and the memory of requests ([`Caller`]). If all connections are in use, the one that has been idle
//! for longest is closed once its requests are answered, so that a kubelet's probe always succeeds, and a crowd of pods
//! with one connection each cannot take away an API server's.

mod callers;
mod connection;
mod listener;
mod open;

use std::future::pending;
use std::time::Duration;

use axum::{Extension, Router};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

pub(crate) use callers::{Caller, MemoryBudget};
pub(crate) use listener::listen;
pub(crate) use open::Connections;

use callers::Callers;
use connection::{serve_plain, serve_tls};

/// Serves a listener until the connections are closed, with TLS if there is an acceptor. Each request has an
/// `Extension<Arc<Caller>>`. Never returns.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Router,
    connections: Connections,
) {
    tokio::select! {
        () = accept(&listener, tls, app, &connections) => {}
        () = connections.until_closing() => {}
    }
    drop(listener);
    pending().await
}

async fn accept(
    listener: &TcpListener,
    tls: Option<TlsAcceptor>,
    app: Router,
    connections: &Connections,
) {
    let callers = Callers::default();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually because no file descriptors are left.
                warn!(%error, "cannot accept connections");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let address = address.ip().to_canonical();
        let caller = callers.caller(address);
        let Ok(permit) = caller.connect() else {
            debug!(%address, "too many connections");
            continue;
        };
        let app = app.clone().layer(Extension(caller));
        let tls = tls.clone();
        connections.run(|activity| async move {
            match tls {
                Some(acceptor) => serve_tls(stream, acceptor, app, &activity).await,
                None => serve_plain(stream, app, &activity).await,
            }
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// An API server cannot repeat a review, so one in progress is answered when the process ends.
    #[tokio::test]
    async fn requests_in_progress_are_answered_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let slow = || async {
            sleep(Duration::from_millis(500)).await;
            "done"
        };
        let connections = Connections::default();
        tokio::spawn(serve(
            listener,
            None,
            Router::new().route("/", get(slow)),
            connections.clone(),
        ));
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
        sleep(Duration::from_millis(100)).await;
        connections.close(Duration::from_secs(4)).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.ends_with("done"), "{answer}");
        assert!(TcpStream::connect(address).await.is_err(), "no more connections are accepted");
    }
}
