//! Resolves host names with the system's resolver, and checks the addresses at each lookup.
//!
//! A lookup by the system's resolver blocks a thread until it returns. That may take a minute if a tenant's name
//! server does not answer, and it cannot be canceled. So lookups have a limiter of their own, and a lookup keeps its
//! permit until it has really ended, even if the call that needs it has timed out.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::vec::IntoIter;

use tokio::task::spawn_blocking;

use super::address;
use super::http::HttpOptions;
use crate::runtime::fair::{Capacity, NamespaceLimiter};

/// The limits on concurrent lookups. Tokio runs blocking work on up to 512 threads, which it starts as needed.
const LOOKUP_CAPACITY: Capacity = Capacity { shared: 64, per_namespace: 48, reserved: 1 };

/// Resolves a host name to addresses.
type Lookup = dyn Fn(&str) -> std::io::Result<Vec<IpAddr>> + Send + Sync;

pub(super) struct Lookups {
    options: HttpOptions,
    limiter: NamespaceLimiter,
    lookup: Arc<Lookup>,
}

/// Why a name could not be resolved.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookupError {
    #[error(transparent)]
    Unknown(#[from] std::io::Error),
    #[error(transparent)]
    Refused(#[from] address::AddressRefused),
    #[error("internal error (bug in gamekeeper) in the lookup: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl Lookups {
    pub(super) fn new(options: HttpOptions) -> Self {
        Self::with_lookup(options, |name| {
            let found = (name, 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    fn with_lookup(
        options: HttpOptions,
        lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        Lookups {
            options,
            limiter: NamespaceLimiter::new(LOOKUP_CAPACITY),
            lookup: Arc::new(lookup),
        }
    }

    /// The addresses of a host name; fails if one of them is refused.
    pub(super) async fn find(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<IntoIter<IpAddr>, LookupError> {
        let permit = self.limiter.take(namespace).await;
        let (lookup, name) = (Arc::clone(&self.lookup), name.to_owned());
        let found = spawn_blocking(move || {
            let found = lookup(&name);
            drop(permit);
            found
        });
        let found = found.await??;
        for address in &found {
            address::check(*address, self.options)?;
        }
        Ok(found.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_name_that_resolves_to_a_refused_address_is_refused() {
        let allows_loopback = HttpOptions { allow_loopback: true, ..HttpOptions::default() };
        let lookups = Lookups::new(allows_loopback);
        // A URL would have normalized this spelling of 169.254.169.254. Here only the resolver interprets it.
        let refused = lookups.find("games", "0xa9fea9fe").await.expect_err("a refusal");
        assert_eq!(
            refused.to_string(),
            "169.254.169.254 is refused: it is a link-local or metadata address, which an administrator can \
             allow with the chart's value hooks.allowLinkLocal"
        );
        assert!(lookups.find("games", "localhost").await.is_ok());
        let lookups = Lookups::new(HttpOptions::default());
        assert!(lookups.find("games", "localhost").await.is_err());
    }

    /// The calls have long timed out, but their lookups still occupy threads.
    #[tokio::test]
    async fn a_silent_name_server_delays_no_other_namespace() {
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (gate, started) = (Mutex::new(gate), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&started);
        let lookups = Lookups::with_lookup(HttpOptions::default(), move |name| {
            if name == "silent" {
                *count.lock().expect("a count") += 1;
                // Blocks until `go` is dropped.
                let _ = gate.lock().expect("a gate").recv();
            }
            Ok(vec![IpAddr::from([10, 0, 0, 1])])
        });
        for _ in 0..1_000 {
            let timed_out = timeout(Duration::ZERO, lookups.find("hostile", "silent")).await;
            assert!(timed_out.is_err());
        }
        let other = timeout(TEST_TIMEOUT, lookups.find("games", "match-api")).await;
        assert!(other.expect("an answer in time").is_ok());
        let same = timeout(Duration::from_millis(50), lookups.find("hostile", "match-api")).await;
        assert!(same.is_err(), "the namespace has more concurrent lookups than it may have");
        drop(go);
        let later = timeout(TEST_TIMEOUT, lookups.find("hostile", "match-api")).await;
        assert!(later.expect("an answer in time").is_ok());
        assert!(*started.lock().expect("a count") <= 49);
    }
}
