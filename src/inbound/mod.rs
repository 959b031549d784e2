//! Servers that any pod may call: the webhook's, and that of metrics and probes.
//!
//! Neither knows its callers, so both have the same bounds for each address and in total: on connections,
//! their duration, and the memory of requests and responses ([`Caller`]). Where all connections are
//! taken, the address that holds most loses its oldest one, so that a kubelet's probe always gets through.

mod callers;
mod connection;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use axum::{Extension, Router};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

pub(crate) use callers::{Caller, MemoryBudget};

use callers::Callers;
use connection::{encrypted, plain};

/// Connections at a time.
const MAX_CONNECTIONS: usize = 256;

/// Serves a listener for as long as the process lives, with TLS where there is an acceptor for it. Each
/// request has an `Extension<Arc<Caller>>`.
pub(crate) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, app: Router) {
    let callers = Callers::default();
    let mut open = OpenConnections::default();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most often there are no file descriptors left.
                warn!(%error, "cannot accept connections");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let address = address.ip().to_canonical();
        let caller = callers.caller(address);
        let Ok(of_caller) = caller.connect() else {
            debug!(%address, "too many connections");
            continue;
        };
        let app = app.clone().layer(Extension(caller));
        let tls = tls.clone();
        let served = tokio::spawn(async move {
            match tls {
                Some(acceptor) => encrypted(stream, acceptor, app).await,
                None => plain(stream, app).await,
            }
            drop(of_caller);
        });
        open.add(address, served.abort_handle());
    }
}

/// The connections that are open, by their age.
#[derive(Default)]
struct OpenConnections {
    next: u64,
    by_age: BTreeMap<u64, (IpAddr, AbortHandle)>,
}

impl OpenConnections {
    /// One connection more; another one is ended for it where there are too many.
    fn add(&mut self, address: IpAddr, connection: AbortHandle) {
        self.by_age.insert(self.next, (address, connection));
        self.next += 1;
        if self.by_age.len() <= MAX_CONNECTIONS {
            return;
        }
        self.by_age.retain(|_, (_, it)| !it.is_finished());
        if self.by_age.len() > MAX_CONNECTIONS
            && let Some(age) = self.to_end()
            && let Some((address, connection)) = self.by_age.remove(&age)
        {
            debug!(%address, "too many connections; closing the oldest one");
            connection.abort();
        }
    }

    /// The oldest connection of the address that holds most.
    fn to_end(&self) -> Option<u64> {
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        for (address, _) in self.by_age.values() {
            *held.entry(*address).or_default() += 1;
        }
        let most = held.values().max()?;
        let oldest = self
            .by_age
            .iter()
            .find(|(_, (address, _))| held.get(address) == Some(most));
        oldest.map(|(age, _)| *age)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::Ipv4Addr;

    use super::*;

    fn connection() -> AbortHandle {
        tokio::spawn(pending::<()>()).abort_handle()
    }

    #[tokio::test]
    async fn a_new_connection_closes_the_oldest_one_of_the_caller_with_most() {
        let address = |last: u8| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
        let mut open = OpenConnections::default();
        let first_of_few = connection();
        open.add(address(1), first_of_few.clone());
        let first_of_many = connection();
        open.add(address(2), first_of_many.clone());
        for _ in 0..MAX_CONNECTIONS {
            open.add(address(2), connection());
        }
        assert_eq!(open.by_age.len(), MAX_CONNECTIONS);
        tokio::task::yield_now().await;
        assert!(first_of_many.is_finished());
        assert!(!first_of_few.is_finished());
    }

    #[tokio::test]
    async fn closed_connections_are_not_counted() {
        let mut open = OpenConnections::default();
        let lasting = connection();
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        open.add(address, lasting.clone());
        for _ in 0..2 * MAX_CONNECTIONS {
            let ended = connection();
            ended.abort();
            tokio::task::yield_now().await;
            open.add(address, ended);
        }
        assert!(!lasting.is_finished());
    }
}
