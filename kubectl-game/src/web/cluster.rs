//! The page as a server of its own in a cluster: `gamekeeper view`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kube::Config;
use tokio::net::TcpListener;

use super::routes::{Site, router};
use super::visitors::{Guests, Visitors};

/// Where the page is served, and for which API server.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Address of the server.
    #[arg(long, env = "GAMEKEEPER_VIEW_LISTEN", default_value = "[::]:8080")]
    listen: SocketAddr,
    /// URL of the API server.
    #[arg(long, env = "GAMEKEEPER_VIEW_SERVER", default_value = "https://kubernetes.default.svc")]
    server: String,
    /// Certificate authority of the API server.
    #[arg(long, env = "GAMEKEEPER_VIEW_CERTIFICATE_AUTHORITY", value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Offer changes, as far as the visitor's permissions go.
    #[arg(long, env = "GAMEKEEPER_VIEW_ACTIONS")]
    actions: bool,
}

/// Serves the page until the process is ended. Visitors bring their own tokens: the server has no permissions.
pub async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::new(options.server.parse()?);
    if let Some(file) = options.certificate_authority {
        // Read now, so that a missing file is reported at the start.
        std::fs::metadata(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        config.root_cert_file = Some(file);
    }
    config.default_retry = false;
    let listener = TcpListener::bind(options.listen).await?;
    println!("serving the page on {}", listener.local_addr()?);
    let guests = Guests { config, actions: options.actions };
    let site = Site { visitors: Visitors::Guests(guests), only_namespace: false };
    tokio::select! {
        served = axum::serve(listener, router(site)).into_future() => Ok(served?),
        () = terminated() => Ok(()),
    }
}

/// Waits for SIGTERM, with which Kubernetes ends a container.
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}
