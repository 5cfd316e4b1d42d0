//! Clients by network, for limits per client.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the network that one client controls: the address in IPv4, the /64 in IPv6.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_client_have_one_network() {
        for (name, address, expected) in [
            ("IPv4", "192.0.2.1", "192.0.2.1"),
            ("IPv4 on an IPv6 socket", "::ffff:192.0.2.1", "192.0.2.1"),
            ("IPv6", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let network = client_network(address.parse().unwrap());
            assert_eq!(network.to_string(), expected, "{name}");
        }
    }
}
