//! Listening sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// Returns a socket that listens on `address`. `[::]` stands for every IPv6 and IPv4 address; on hosts without IPv6 it
/// falls back to `0.0.0.0`.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with_fallback(address, TcpListener::bind).await
}

async fn bind_with_fallback<T>(
    address: SocketAddr,
    bind: impl AsyncFn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    match bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into()).await
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the address in use on a host where every IPv6 address fails with `failure`.
    async fn bound(address: &str, failure: io::ErrorKind) -> Option<String> {
        let bind = async |address: SocketAddr| {
            if address.is_ipv6() {
                Err(failure.into())
            } else {
                Ok(address.to_string())
            }
        };
        bind_with_fallback(address.parse().unwrap(), bind).await.ok()
    }

    #[tokio::test]
    async fn a_host_without_ipv6_listens_on_ipv4() {
        use io::ErrorKind::{AddrInUse, Unsupported};
        let anywhere = Some("0.0.0.0:9001".to_owned());
        assert_eq!(bound("[::]:9001", Unsupported).await, anywhere);
        assert_eq!(bound("[::]:9001", AddrInUse).await, None, "the port is taken");
        assert_eq!(
            bound("[::1]:9001", Unsupported).await,
            None,
            "only the unspecified address falls back"
        );
        assert_eq!(bound("0.0.0.0:9001", Unsupported).await, anywhere);
    }

    #[tokio::test]
    async fn the_unspecified_address_accepts_ipv4() {
        let listener = bind("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = (Ipv4Addr::LOCALHOST, port);
        tokio::net::TcpStream::connect(address).await.unwrap();
    }
}
