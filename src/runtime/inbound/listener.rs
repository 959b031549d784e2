//! Listens on all addresses of both families. Clusters may have IPv4, IPv6 or both, and a node's kernel may lack IPv6.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket};
use tracing::info;

/// How many connections the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Listens on an address. `[::]` stands for all addresses of both families, and is replaced by 0.0.0.0 on a kernel
/// without IPv6.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    match bind(address).await {
        Err(error) => match fallback(address, &error) {
            Some(ipv4) => {
                info!(%error, %ipv4, "this kernel has no IPv6; listening on IPv4 alone");
                bind(ipv4).await
            }
            None => Err(error),
        },
        listener => listener,
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return TcpListener::bind(address).await;
    }
    let socket = TcpSocket::new_v6()?;
    // A node may be configured so that `[::]` stands for IPv6 alone.
    set_ipv6_v6only(&socket, false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The address to listen on instead of one that this kernel does not support.
fn fallback(address: SocketAddr, error: &Error) -> Option<SocketAddr> {
    /// "Address family not supported by protocol".
    const EAFNOSUPPORT: i32 = 97;
    let has_no_ipv6 =
        error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == ErrorKind::AddrNotAvailable;
    let is_for_both = address.ip() == Ipv6Addr::UNSPECIFIED;
    (is_for_both && has_no_ipv6).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn both_families_reach_a_listener_on_all_addresses() {
        let listener = listen("[::]:0".parse().expect("an address")).await;
        let listener = listener.expect("a listener");
        let port = listener.local_addr().expect("an address");
        for address in ["127.0.0.1", "::1"] {
            let connected = TcpStream::connect((address, port.port())).await;
            assert!(connected.is_ok(), "{address}: {connected:?}");
        }
    }

    #[tokio::test]
    async fn a_listener_on_one_address_serves_no_other() {
        let listener = listen("[::1]:0".parse().expect("an address")).await;
        let listener = listener.expect("a listener");
        let port = listener.local_addr().expect("an address");
        assert!(TcpStream::connect(("127.0.0.1", port.port())).await.is_err());
    }

    #[test]
    fn only_all_addresses_fall_back_to_ipv4() {
        let both: SocketAddr = "[::]:80".parse().expect("an address");
        let not_supported = Error::from_raw_os_error(97);
        let ipv4 = "0.0.0.0:80".parse().ok();
        assert_eq!(fallback(both, &not_supported), ipv4);
        assert_eq!(fallback(both, &ErrorKind::AddrNotAvailable.into()), ipv4);
        assert_eq!(fallback(both, &ErrorKind::AddrInUse.into()), None);
        for one in ["[::1]:80", "0.0.0.0:80"] {
            let one = one.parse().expect("an address");
            assert_eq!(fallback(one, &not_supported), None, "{one}");
        }
    }
}
