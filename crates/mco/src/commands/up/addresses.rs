//! Names and addresses by which other machines reach this one.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// An address reserved for documentation; nothing is sent to it.
const ELSEWHERE: [(&str, &str); 2] = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];

/// Returns the names and addresses for the certificate of a listener on this address.
pub fn names(listen: IpAddr, advertised: &[String]) -> Vec<String> {
    let mut names = advertised.to_vec();
    if listen.is_unspecified() {
        names.extend(own_name());
        names.extend(own_addresses().iter().map(ToString::to_string));
    } else {
        names.push(listen.to_string());
    }
    let mut seen = Vec::new();
    names.retain(|name| {
        let is_new = !seen.contains(name);
        seen.push(name.clone());
        is_new
    });
    names
}

/// Returns the name or address that is advertised to other machines.
pub fn best(listen: IpAddr, advertised: &[String]) -> String {
    match advertised.first() {
        Some(chosen) => chosen.clone(),
        None if listen.is_unspecified() => primary().unwrap_or(loopback(listen)).to_string(),
        None => listen.to_string(),
    }
}

/// Returns the source address of connections to other hosts.
pub fn primary() -> Option<IpAddr> {
    ELSEWHERE.iter().find_map(|(any, elsewhere)| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(elsewhere).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_loopback() && !address.is_unspecified()).then_some(address)
    })
}

/// Returns a host and a port as in a URL.
pub fn with_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// Returns the name if a certificate can contain it.
fn own_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_lowercase();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    (!name.is_empty() && name.chars().all(allowed)).then_some(name)
}

fn own_addresses() -> Vec<IpAddr> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut all = local_v4(&read("/proc/net/fib_trie"));
    all.extend(local_v6(&read("/proc/net/if_inet6")));
    all.extend(primary());
    all
}

/// Parses the kernel's routing trie, where a local address is on the line before its type.
fn local_v4(trie: &str) -> Vec<IpAddr> {
    let mut last = None;
    let mut found: Vec<IpAddr> = Vec::new();
    for line in trie.lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.contains("/32 host LOCAL") {
            found.extend(last.filter(|address: &IpAddr| !address.is_loopback()));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Parses 32 digits and the fields behind them. Link-local addresses are useless without an interface.
fn local_v6(table: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let digits = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        Some(Ipv6Addr::from(digits))
    };
    let found = table.lines().filter_map(address);
    found
        .filter(|address| !address.is_loopback() && !address.is_unicast_link_local())
        .map(IpAddr::V6)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_this_machine_come_from_the_routing_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\nLocal:\n        |-- 10.0.0.5\n           \
                    /32 host LOCAL\n        |-- 10.0.0.255\n           /32 link BROADCAST\n        |-- 127.0.0.1\n           /32 host LOCAL\n";
        assert_eq!(local_v4(trie), ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fe80000000000000000000fffe000001 02 40 20 80     eth0\n\
                     20010db8000000000000000000000005 02 40 00 80     eth0\n";
        assert_eq!(local_v6(table), ["2001:db8::5".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn what_was_chosen_comes_first_and_nothing_twice() {
        let chosen = ["lab.example".to_owned(), "10.0.0.5".to_owned()];
        let listen = "10.0.0.5".parse().unwrap();
        assert_eq!(names(listen, &chosen), chosen);
        assert_eq!(best(listen, &chosen), "lab.example");
        assert_eq!(best(listen, &[]), "10.0.0.5");
        assert_eq!(with_port("2001:db8::5", 7443), "[2001:db8::5]:7443");
        assert_eq!(with_port("lab.example", 7443), "lab.example:7443");
    }
}
