//! TLS configurations for calls. They define which servers a call trusts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Certificates (PEM) of authorities that a metric names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authorities {
    /// Only these are trusted.
    Only(String),
    /// These are trusted in addition to the system's.
    Also(String),
}

/// TLS configurations.
pub(super) struct Tls {
    system: RootCertStore,
    checking: Arc<ClientConfig>,
    unchecked: Arc<ClientConfig>,
}

impl Tls {
    /// Reads the system's authorities. If there are none, no server is trusted.
    pub(super) fn new() -> Result<Self, Error> {
        let mut system = RootCertStore::empty();
        system.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let mut unchecked = config(RootCertStore::empty())?;
        let verifier = Arc::new(Unchecked(ring::default_provider()));
        unchecked.dangerous().set_certificate_verifier(verifier);
        Ok(Tls {
            checking: Arc::new(config(system.clone())?),
            unchecked: Arc::new(unchecked),
            system,
        })
    }

    /// The configuration for a call. Configurations with the authorities of a metric are not cached, because tenants
    /// could fill the memory with them.
    pub(super) fn config_for(
        &self,
        insecure: bool,
        ca: Option<&Authorities>,
    ) -> Result<Arc<ClientConfig>, String> {
        let (mut roots, pem) = match ca {
            None if insecure => return Ok(Arc::clone(&self.unchecked)),
            None => return Ok(Arc::clone(&self.checking)),
            Some(Authorities::Only(pem)) => (RootCertStore::empty(), pem),
            Some(Authorities::Also(pem)) => (self.system.clone(), pem),
        };
        let count_before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| format!("caSecret: {error}"))?;
            roots.add(certificate).map_err(|error| format!("caSecret: {error}"))?;
        }
        if roots.len() == count_before {
            return Err("caSecret: contains no certificate; use PEM".into());
        }
        let config = config(roots).map_err(|error| format!("caSecret: {error}"))?;
        Ok(Arc::new(config))
    }
}

fn config(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // No session tickets are kept for further calls, because servers choose their length.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Accepts any certificate, for metrics with `insecure: true`.
#[derive(Debug)]
struct Unchecked(CryptoProvider);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
