//! Where calls may go.
//!
//! Calls go out from the operator's own pod, and anybody who may write a HookTemplate chooses their
//! target. Link-local addresses, and those at which clouds hand out the credentials of a machine,
//! are refused; also when a name resolves to one, which is checked at each resolution.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// An address that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is refused: it is a link-local or metadata address")]
pub(super) struct Refused {
    address: IpAddr,
}

/// Addresses at which clouds serve metadata, besides the link-local ones.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(168, 63, 129, 16),   // Azure
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
];
const METADATA_V6: [Ipv6Addr; 7] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // AWS
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),  // AWS, for pods of EKS
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // Google
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), // Oracle
    Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200), // Alibaba
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),   // Scaleway
    Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1), // Akamai
];

pub(super) fn check(address: IpAddr) -> Result<(), Refused> {
    let refused = match address {
        IpAddr::V4(v4) => is_refused_v4(v4),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || METADATA_V6.contains(&v6)
                || embedded_v4(v6).is_some_and(is_refused_v4)
        }
    };
    if refused {
        Err(Refused { address })
    } else {
        Ok(())
    }
}

fn is_refused_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || METADATA_V4.contains(&address)
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, translated, or behind NAT64
/// (its well-known prefix, or the local one) or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0 | 0xffff]
        | [0, 0, 0, 0, 0xffff, 0]
        | [0x64, 0xff9b, 0, 0, 0, 0]
        | [0x64, 0xff9b, 1, ..] => Some(v4(g, h)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Checks a URL whose host is an address; names are checked when they are resolved.
pub(super) fn check_host(url: &Url) -> Result<(), Refused> {
    let host = url.host_str().unwrap_or_default();
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.parse().map_or(Ok(()), check)
}

/// Resolves names by the system's resolver, and refuses those that lead to a refused address.
pub(super) struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The port is the connector's business.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            for address in &found {
                check(address.ip())?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_and_metadata_addresses_are_refused_in_every_spelling() {
        for refused in [
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:100::100:200",
            "fd00:42::42",
            "fd00:a9fe:a9fe::1",
            "::ffff:0:169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(check(refused.parse().expect(refused)).is_err(), "{refused}");
        }
        for allowed in [
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "8.8.8.8",
            "::1",
            "fd00::1",
            "fd20:ce::1",
            "2001:db8::1",
        ] {
            assert!(check(allowed.parse().expect(allowed)).is_ok(), "{allowed}");
        }
    }

    #[test]
    fn a_host_is_checked_however_it_is_written() {
        for url in [
            "http://169.254.169.254/latest",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://169.254.43518/",
            "http://[::ffff:a9fe:a9fe]:80/",
            "https://[fe80::1]/",
        ] {
            assert!(check_host(&url.parse().expect(url)).is_err(), "{url}");
        }
        for url in [
            "http://127.0.0.1:9091/",
            "http://[::1]:9091/",
            "http://example.com/",
        ] {
            assert!(check_host(&url.parse().expect(url)).is_ok(), "{url}");
        }
    }
}
