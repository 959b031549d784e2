//! The program in the images that run on the node with a real kubelet: a game server that answers every request with
//! its version.
//!
//! | variable | meaning |
//! |---|---|
//! | `VERSION` | the version; if unset, the program only waits, as the container of a pod's sandbox does |
//! | `ANSWER_AFTER_MS` | the server answers only after this time, as if it were loading its maps |
//! | `EXIT_AFTER_MS` | the server never answers, and exits with code 1 after this time |

use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How long the server continues after SIGTERM, so that connected players can be notified.
const SHUTDOWN_DELAY: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Without a handler, process 1 of a container would ignore SIGTERM.
    let mut terminated = signal(SignalKind::terminate())?;
    let until_terminated = async move {
        terminated.recv().await;
        sleep(SHUTDOWN_DELAY).await;
    };
    tokio::select! {
        () = until_terminated => Ok(()),
        end = serve() => end,
    }
}

async fn serve() -> Result<()> {
    let Ok(version) = std::env::var("VERSION") else {
        return std::future::pending().await;
    };
    if let Some(time) = milliseconds("EXIT_AFTER_MS") {
        sleep(time).await;
        std::process::exit(1);
    }
    sleep(milliseconds("ANSWER_AFTER_MS").unwrap_or_default()).await;
    let listener = TcpListener::bind(("0.0.0.0", 8080)).await?;
    let length = version.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{version}"
    );
    loop {
        let (mut client, _) = listener.accept().await?;
        let response = response.clone();
        tokio::spawn(async move {
            let mut request = [0; 1024];
            let _ = client.read(&mut request).await;
            // A client that has disconnected needs no response.
            let _ = client.write_all(response.as_bytes()).await;
        });
    }
}

fn milliseconds(variable: &str) -> Option<Duration> {
    let text = std::env::var(variable).ok()?;
    Some(Duration::from_millis(text.parse().ok()?))
}
