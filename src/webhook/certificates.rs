//! The certificates, and when they are due for renewal. Pure except for the random keys.
//!
//! Each serving certificate has its own certificate authority, which signs nothing else: the authority's key is
//! discarded, so it cannot be stolen. A new pair is announced first: its authority is added to the bundle that API
//! servers trust. Its certificate is served later, when all API servers have the new bundle. The old authority stays in
//! the bundle until it expires, because another replica may serve the old certificate a little longer.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

pub(super) type Data = BTreeMap<String, ByteString>;

/// A serving certificate and the authority that signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub authority: String,
    pub certificate: String,
    pub key: String,
    /// The host names of the certificate, separated by commas.
    pub names: String,
    /// When the pair was created.
    pub from: Timestamp,
    pub until: Timestamp,
}

/// The contents of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificates {
    /// The pair that is served.
    pub current: Pair,
    /// The pair that is announced.
    pub next: Option<Pair>,
    /// The previous authority, and until when it is trusted.
    pub old: Option<(String, Timestamp)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Create a pair, because there is none that is valid, and serve it immediately.
    Create,
    /// Create the next pair, so that it is trusted before it is served.
    Announce,
    /// Serve the next pair.
    Promote,
    /// Remove the old authority, which has expired.
    RemoveOld,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("cannot read the certificate: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("cannot serve the certificate: {0}")]
    Serve(#[from] rustls::Error),
}

impl Pair {
    pub(super) fn new(
        names: &[String],
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Self, CertificateError> {
        // The clocks of API servers may be a little behind.
        let not_before = now - Duration::from_secs(60);
        let until = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        let params = |names: &[String], common_name: String| {
            let mut params = CertificateParams::new(names)?;
            let epoch = rcgen::date_time_ymd(1970, 1, 1);
            params.not_before = epoch + since_epoch(not_before);
            params.not_after = epoch + since_epoch(until);
            params.use_authority_key_identifier_extension = true;
            params.distinguished_name.push(DnType::CommonName, common_name);
            Ok::<_, rcgen::Error>(params)
        };
        let mut authority = params(&[], format!("gamekeeper webhook {now}"))?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut serving = params(names, names.first().cloned().unwrap_or_default())?;
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = serving.signed_by(&key, &authority)?;
        Ok(Pair {
            authority: authority.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            names: names.join(","),
            from: now,
            until,
        })
    }

    /// The certificate and key for TLS.
    pub(super) fn serving_key(&self) -> Result<CertifiedKey, CertificateError> {
        let chain = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let provider = rustls::crypto::ring::default_provider();
        Ok(CertifiedKey::from_der(vec![chain], key, &provider)?)
    }

    fn read(data: &Data, prefix: &str) -> Option<Self> {
        let field = |name: &str| text(data, &format!("{prefix}{name}"));
        Some(Pair {
            authority: field("ca.crt")?,
            certificate: field("tls.crt")?,
            key: field("tls.key")?,
            names: field("names")?,
            from: field("from")?.parse().ok()?,
            until: field("until")?.parse().ok()?,
        })
    }

    fn write(&self, data: &mut Data, prefix: &str) {
        for (name, value) in [
            ("ca.crt", self.authority.clone()),
            ("tls.crt", self.certificate.clone()),
            ("tls.key", self.key.clone()),
            ("names", self.names.clone()),
            ("from", self.from.to_string()),
            ("until", self.until.to_string()),
        ] {
            data.insert(format!("{prefix}{name}"), ByteString(value.into_bytes()));
        }
    }
}

impl Certificates {
    pub(super) fn new(current: Pair) -> Self {
        Certificates { current, next: None, old: None }
    }

    /// Reads the data of a Secret; None if it has no valid certificate.
    pub(super) fn read(data: &Data) -> Option<Self> {
        let current = Pair::read(data, "")?;
        let until = text(data, "old-until").and_then(|until| until.parse().ok());
        let old = text(data, "old-ca.crt").zip(until);
        current.serving_key().ok()?;
        Some(Certificates {
            current,
            next: Pair::read(data, "next-").filter(|next| next.serving_key().is_ok()),
            old,
        })
    }

    /// The data of the Secret.
    pub(super) fn write(&self) -> Data {
        let mut data = Data::new();
        self.current.write(&mut data, "");
        if let Some(next) = &self.next {
            next.write(&mut data, "next-");
        }
        if let Some((authority, until)) = &self.old {
            for (name, value) in
                [("old-ca.crt", authority.clone()), ("old-until", until.to_string())]
            {
                data.insert(name.to_owned(), ByteString(value.into_bytes()));
            }
        }
        data
    }

    /// The CA bundle for API servers.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.authority.as_str());
        let old = self.old.iter().map(|(old, _)| old.as_str());
        let all = [self.current.authority.as_str()].into_iter().chain(next).chain(old);
        all.collect()
    }

    /// Makes the next pair the current one.
    pub(super) fn promote(self) -> Self {
        match self.next {
            Some(next) => Certificates {
                old: Some((self.current.authority, self.current.until)),
                current: next,
                next: None,
            },
            None => self,
        }
    }
}

/// What is due for the certificates. `announced` is whether the webhook's configuration had the current bundle
/// before this check.
pub(super) fn due(
    certificates: Option<&Certificates>,
    names: &[String],
    now: Timestamp,
    lifetime: Duration,
    announced: bool,
) -> Due {
    let Some(Certificates { current, next, old }) = certificates else {
        return Due::Create;
    };
    if current.until <= now {
        return Due::Create;
    }
    if let Some(next) = next {
        let trusted_from =
            next.from.checked_add(announcement_time(lifetime)).unwrap_or(Timestamp::MAX);
        return match announced && trusted_from <= now {
            true => Due::Promote,
            false => Due::Nothing,
        };
    }
    let a_third = i64::try_from(lifetime.as_secs() / 3).unwrap_or(i64::MAX);
    let expires_soon = current.until.duration_since(now).as_secs() < a_third;
    if expires_soon || current.names != names.join(",") {
        return Due::Announce;
    }
    match old {
        Some((_, until)) if *until <= now => Due::RemoveOld,
        _ => Due::Nothing,
    }
}

/// How long a pair is announced before it is served: long enough for all API servers to load the webhook's
/// configuration, and for all replicas to read the Secret.
pub(super) fn announcement_time(lifetime: Duration) -> Duration {
    lifetime / 10
}

fn since_epoch(time: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default())
}

fn text(data: &Data, name: &str) -> Option<String> {
    String::from_utf8(data.get(name)?.0.clone()).ok()
}
