//! A certificate authority for servers on this machine.

use std::sync::Arc;

use anyhow::Result;
use axum::serve::Listener;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

/// An acceptor for TLS on 127.0.0.1 with these ALPN protocols and a certificate from a new authority. Also returns
/// the authority's certificate (PEM).
pub fn acceptor(protocols: &[&str]) -> Result<(TlsAcceptor, String)> {
    let ca = CertifiedIssuer::self_signed(authority_params()?, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &ca)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    Ok((TlsAcceptor::from(Arc::new(config)), ca.pem()))
}

fn authority_params() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    Ok(params)
}

/// Accepts TLS connections.
pub struct TlsListener {
    /// Listens for connections.
    pub tcp: TcpListener,
    /// Makes their handshakes.
    pub tls: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.tcp).await;
            if let Ok(stream) = self.tls.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
