//! Servers that any pod may call: the webhook's, and the one for metrics and probes.
//!
//! They do not authenticate callers, so they limit each address and all addresses together: the number and duration
//! of connections, and the memory of requests and responses ([`Caller`]). If all connections are in use, the oldest
//! one of the address with the most connections is closed, so that a kubelet's probe always succeeds.

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
use connection::{serve_plain, serve_tls};

const MAX_CONNECTIONS: usize = 256;

/// Serves a listener forever, with TLS if there is an acceptor. Each request has an `Extension<Arc<Caller>>`.
pub(crate) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, app: Router) {
    let callers = Callers::default();
    let mut open = OpenConnections::default();
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
        let connection = tokio::spawn(async move {
            match tls {
                Some(acceptor) => serve_tls(stream, acceptor, app).await,
                None => serve_plain(stream, app).await,
            }
            drop(permit);
        });
        open.add(address, connection.abort_handle());
    }
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    /// By consecutive number.
    by_age: BTreeMap<u64, (IpAddr, AbortHandle)>,
}

impl OpenConnections {
    /// Adds a connection; closes another one if there are too many.
    fn add(&mut self, address: IpAddr, connection: AbortHandle) {
        self.by_age.insert(self.next, (address, connection));
        self.next += 1;
        if self.by_age.len() <= MAX_CONNECTIONS {
            return;
        }
        self.by_age.retain(|_, (_, it)| !it.is_finished());
        if self.by_age.len() > MAX_CONNECTIONS
            && let Some(number) = self.oldest_of_busiest()
            && let Some((address, connection)) = self.by_age.remove(&number)
        {
            debug!(%address, "too many connections; closing the oldest one");
            connection.abort();
        }
    }

    /// The number of the oldest connection of the address with the most connections.
    fn oldest_of_busiest(&self) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (address, _) in self.by_age.values() {
            *counts.entry(*address).or_default() += 1;
        }
        let most = counts.values().max()?;
        let mut connections = self.by_age.iter();
        let oldest = connections.find(|(_, (address, _))| counts.get(address) == Some(most));
        oldest.map(|(number, _)| *number)
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
    async fn a_new_connection_closes_the_oldest_one_of_the_caller_with_the_most() {
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
