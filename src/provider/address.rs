//! Which addresses may be called.
//!
//! Calls are made from the operator's own pod, and any user who may write a HookTemplate chooses their target. So
//! link-local addresses, metadata addresses (at which clouds hand out the credentials of a machine) and loopback
//! addresses are refused. The addresses of a host name are checked each time it is resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Url;

use super::http::HttpOptions;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} is refused: it is a {kind} address, which an administrator can allow with the chart's value {setting}"
)]
pub(super) struct AddressRefused {
    address: IpAddr,
    kind: &'static str,
    /// The value of the chart that allows such addresses.
    setting: &'static str,
}

/// Metadata addresses outside the link-local range.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(168, 63, 129, 16),   // Azure
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
    Ipv4Addr::new(100, 80, 80, 80),    // UCloud
    Ipv4Addr::new(100, 96, 0, 96),     // Volcano Engine
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

/// Checks an address that is about to be called.
pub(super) fn check(address: IpAddr, options: HttpOptions) -> Result<(), AddressRefused> {
    let (v4, v6) = match address {
        IpAddr::V4(v4) => (vec![v4], None),
        IpAddr::V6(v6) => (embedded_v4(v6), Some(v6)),
    };
    let is_link_local_or_metadata = v4.iter().any(|v4| is_link_local_or_metadata_v4(*v4))
        || v6.is_some_and(|v6| v6.is_unicast_link_local() || METADATA_V6.contains(&v6));
    let (kind, setting) = if is_link_local_or_metadata && !options.allow_link_local {
        ("link-local or metadata", "hooks.allowLinkLocal")
    } else if v4.iter().any(|v4| is_loopback_v4(*v4)) && !options.allow_loopback {
        ("loopback", "hooks.allowLoopback")
    } else {
        return Ok(());
    };
    Err(AddressRefused { address, kind, setting })
}

fn is_link_local_or_metadata_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || METADATA_V4.contains(&address)
}

/// Whether an address belongs to the calling pod itself: a loopback address, or an address in 0.0.0.0/8, because Linux
/// connects 0.0.0.0 to the local host.
fn is_loopback_v4(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [0 | 127, ..])
}

/// The IPv4 addresses that an IPv6 address may represent: IPv4-mapped, IPv4-compatible (`::1` is one of these),
/// IPv4-translated, or behind NAT64 or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            vec![v4(g, h)]
        }
        [0x64, 0xff9b, 1, ..] => behind_local_nat64(address),
        [0x2002, high, low, ..] => vec![v4(high, low)],
        _ => Vec::new(),
    }
}

/// The IPv4 addresses that an address in 64:ff9b:1::/48 may represent. A cluster uses a prefix of 48, 56, 64 or 96
/// bits within it (RFC 8215), and the length of the prefix determines where the IPv4 address is (RFC 6052). The length
/// is not known here, so the address is read with each length; a reading in 0.0.0.0/8 comes from a wrong length.
fn behind_local_nat64(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bytes = address.octets();
    let readings = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    let readings = readings.map(|places| Ipv4Addr::from(places.map(|place: usize| bytes[place])));
    { readings.into_iter() }.filter(|reading| reading.octets()[0] != 0).collect()
}

/// Checks the host of a URL if it is an address; host names are checked when they are resolved.
pub(super) fn check_host(url: &Url, options: HttpOptions) -> Result<(), AddressRefused> {
    let host = url.host_str().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse().map_or(Ok(()), |address| check(address, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: HttpOptions = options(false, false);
    const LENIENT: HttpOptions = options(true, true);

    const fn options(allow_link_local: bool, allow_loopback: bool) -> HttpOptions {
        HttpOptions { allow_link_local, allow_loopback }
    }

    #[test]
    fn link_local_and_loopback_are_allowed_separately() {
        let link_local = "169.254.0.1".parse().expect("an address");
        let loopback = "127.0.0.1".parse().expect("an address");
        for (options, refused) in
            [(options(true, false), [false, true]), (options(false, true), [true, false])]
        {
            let checked = [link_local, loopback].map(|it| check(it, options).is_err());
            assert_eq!(checked, refused, "{options:?}");
        }
    }

    #[test]
    fn link_local_metadata_and_loopback_addresses_are_refused_in_every_spelling() {
        for refused in [
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "100.96.0.96",
            "100.80.80.80",
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
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1::a9:fea9:fe00:0",
            "127.0.0.1",
            "127.9.0.4",
            "0.0.0.0",
            "0.1.2.3",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "64:ff9b:1:7f00:0:100::",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
        ] {
            let address = refused.parse().expect(refused);
            assert!(check(address, STRICT).is_err(), "{refused}");
            assert_eq!(check(address, LENIENT), Ok(()), "{refused}");
        }
        for allowed in [
            "10.0.0.1",
            "192.168.1.1",
            "8.8.8.8",
            "fd00::1",
            "fd20:ce::1",
            "2001:db8::1",
            "64:ff9b:1::10.0.0.1",
            "64:ff9b:1:a00:0:100::",
            "64:ff9b::10.0.0.1",
        ] {
            assert_eq!(check(allowed.parse().expect(allowed), STRICT), Ok(()));
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
            "http://127.1/",
            "http://0/",
            "http://[::]:9091/",
        ] {
            assert!(check_host(&url.parse().expect(url), STRICT).is_err(), "{url}");
        }
        for url in ["http://10.0.0.1:9091/", "http://[fd00::1]:9091/", "http://example.com/"] {
            assert!(check_host(&url.parse().expect(url), STRICT).is_ok(), "{url}");
        }
    }
}
