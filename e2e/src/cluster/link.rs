//! A network link between an operator and the API server, which a test can cut.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use http::Uri;
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::control_plane::ControlPlane;

/// Forwards bytes. While the link is cut, it forwards nothing, but connections stay open. They break when
/// the link is restored, and their data in flight is lost.
pub struct Link {
    address: SocketAddr,
    is_up: Arc<watch::Sender<bool>>,
    task: JoinHandle<()>,
}

impl Link {
    /// A link to the API server.
    pub async fn to(plane: &ControlPlane) -> Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST.into(), plane).await
    }

    /// A link over IPv6 to the API server.
    pub async fn over_ipv6(plane: &ControlPlane) -> Result<Self> {
        Self::at(Ipv6Addr::LOCALHOST.into(), plane).await
    }

    async fn at(host: IpAddr, plane: &ControlPlane) -> Result<Self> {
        let config: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(&plane.kubeconfig)?)?;
        let server = config["clusters"][0]["cluster"]["server"].as_str();
        let server: Uri = server.context("the kubeconfig names no server")?.parse()?;
        let server = server.port_u16().context("the server's URL has no port")?;
        let listener = TcpListener::bind((host, 0)).await?;
        let address = listener.local_addr()?;
        let is_up = Arc::new(watch::Sender::new(true));
        let state = Arc::clone(&is_up);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, server, state.subscribe()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Link { address, is_up, task })
    }

    /// The `server` of a kubeconfig that uses the link.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Cuts the link.
    pub fn cut(&self) {
        self.is_up.send_replace(false);
    }

    /// Restores the link for new connections.
    pub fn restore(&self) {
        self.is_up.send_replace(true);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, server: u16, mut link: watch::Receiver<bool>) {
    let forwarding = async {
        let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    let has_ended = tokio::select! {
        biased;
        () = until_state(&mut link, false) => false,
        _ = forwarding => true,
    };
    // Keeps the connection open, without forwarding data, until the link is restored.
    if !has_ended {
        until_state(&mut link, true).await;
    }
}

/// Waits until the link is up, or, if `is_up` is false, until it is cut.
async fn until_state(link: &mut watch::Receiver<bool>, is_up: bool) {
    // An error means that the link, and with it the sender, was dropped.
    let _ = link.wait_for(|state| *state == is_up).await;
}
