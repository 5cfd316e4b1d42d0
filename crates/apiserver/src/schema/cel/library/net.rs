//! IP addresses and networks.

use std::net::IpAddr;

use cel::common::types::{CelBool, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, opaque};

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip(IpAddr);
opaque!(Ip, "net.IP");

/// A network: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cidr {
    address: IpAddr,
    length: u8,
}
opaque!(Cidr, "net.CIDR");

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn is_ip: (CelString) -> CelBool, name = "isIP")?;
    cel::add_overload!(env, fn ip: (CelString) -> Result<Ip>)?;
    cel::add_overload!(env, fn is_canonical: (CelString) -> Result<CelBool>, name = "ip.isCanonical")?;
    cel::add_overload!(env, fn ip_text: (Ip) -> CelString, name = "string")?;
    cel::add_member_overload!(env, fn family: (Ip) -> CelInt)?;
    cel::add_member_overload!(env, fn is_unspecified: (Ip) -> CelBool)?;
    cel::add_member_overload!(env, fn is_loopback: (Ip) -> CelBool)?;
    cel::add_member_overload!(env, fn is_link_local_multicast: (Ip) -> CelBool)?;
    cel::add_member_overload!(env, fn is_link_local_unicast: (Ip) -> CelBool)?;
    cel::add_member_overload!(env, fn is_global_unicast: (Ip) -> CelBool)?;
    cel::add_overload!(env, fn is_cidr: (CelString) -> CelBool, name = "isCIDR")?;
    cel::add_overload!(env, fn cidr: (CelString) -> Result<Cidr>)?;
    cel::add_overload!(env, fn cidr_text: (Cidr) -> CelString, name = "string")?;
    cel::add_member_overload!(env, fn contains_ip: (Cidr, Ip) -> CelBool, name = "containsIP")?;
    cel::add_member_overload!(env, fn contains_ip_text: (Cidr, CelString) -> Result<CelBool>, name = "containsIP")?;
    cel::add_member_overload!(env, fn contains_cidr: (Cidr, Cidr) -> CelBool, name = "containsCIDR")?;
    cel::add_member_overload!(env, fn contains_cidr_text: (Cidr, CelString) -> Result<CelBool>,
        name = "containsCIDR")?;
    cel::add_member_overload!(env, fn network_ip: (Cidr) -> Ip, name = "ip")?;
    cel::add_member_overload!(env, fn masked: (Cidr) -> Cidr)?;
    cel::add_member_overload!(env, fn prefix_length: (Cidr) -> CelInt)?;
    Ok(())
}

/// IPv4-mapped IPv6 addresses are rejected, as in Kubernetes.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let problem =
        |reason: &str| format!("IP Address {text:?} parse error during conversion from string: {reason}");
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(problem("IPv4-mapped IPv6 address is not allowed"))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(problem(&format!("ParseAddr({text:?}): unable to parse IP"))),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let problem =
        || format!("network address parse error during conversion from string: netip.ParsePrefix({text:?})");
    let (address, length) = text.split_once('/').ok_or_else(problem)?;
    let address = parse_ip(address).map_err(|_| problem())?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let canonical = length == "0" || !length.starts_with('0');
    let length: u8 = length.parse().map_err(|_| problem())?;
    if digits && canonical && length <= bits(address) {
        Ok(Cidr { address, length })
    } else {
        Err(problem())
    }
}

fn is_ip(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse_ip(text.inner()).is_ok())
}

fn ip(text: &CelString<'_>) -> Result<Ip, ExecutionError> {
    parse_ip(text.inner())
        .map(Ip)
        .map_err(|error| failed("ip", error))
}

fn is_canonical(text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let address = ip(text)?;
    Ok(CelBool::from(address.0.to_string() == text.inner()))
}

fn ip_text(this: &Ip) -> CelString<'static> {
    CelString::from(this.0.to_string())
}

fn family(this: &Ip) -> CelInt {
    CelInt::from(if this.0.is_ipv4() { 4 } else { 6 })
}

fn is_unspecified(this: &Ip) -> CelBool {
    CelBool::from(this.0.is_unspecified())
}

fn is_loopback(this: &Ip) -> CelBool {
    CelBool::from(this.0.is_loopback())
}

fn is_link_local_multicast(this: &Ip) -> CelBool {
    CelBool::from(match this.0 {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    })
}

fn is_link_local_unicast(this: &Ip) -> CelBool {
    CelBool::from(link_local(this.0))
}

fn is_global_unicast(this: &Ip) -> CelBool {
    let broadcast = matches!(this.0, IpAddr::V4(address) if address.is_broadcast());
    let special =
        this.0.is_unspecified() || this.0.is_loopback() || this.0.is_multicast() || link_local(this.0);
    CelBool::from(!special && !broadcast)
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse_cidr(text.inner()).is_ok())
}

fn cidr(text: &CelString<'_>) -> Result<Cidr, ExecutionError> {
    parse_cidr(text.inner()).map_err(|error| failed("cidr", error))
}

fn cidr_text(this: &Cidr) -> CelString<'static> {
    CelString::from(format!("{}/{}", this.address, this.length))
}

fn contains_ip(this: &Cidr, address: &Ip) -> CelBool {
    CelBool::from(covers(*this, address.0, bits(address.0)))
}

fn contains_ip_text(this: &Cidr, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    ip(text).map(|address| contains_ip(this, &address))
}

fn contains_cidr(this: &Cidr, other: &Cidr) -> CelBool {
    CelBool::from(covers(*this, other.address, other.length))
}

fn contains_cidr_text(this: &Cidr, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    cidr(text).map(|other| contains_cidr(this, &other))
}

fn network_ip(this: &Cidr) -> Ip {
    Ip(this.address)
}

fn masked(this: &Cidr) -> Cidr {
    Cidr {
        address: mask(this.address, this.length),
        length: this.length,
    }
}

fn prefix_length(this: &Cidr) -> CelInt {
    CelInt::from(i64::from(this.length))
}

fn covers(network: Cidr, address: IpAddr, length: u8) -> bool {
    network.address.is_ipv4() == address.is_ipv4()
        && length >= network.length
        && mask(address, network.length) == mask(network.address, network.length)
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}
