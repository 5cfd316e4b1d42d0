//! Every address of a machine, of whatever kind it has.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// Listens there. `[::]` means every address of both kinds, and where there is no IPv6 those of IPv4.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bound(address, TcpListener::bind).await
}

async fn bound<T>(address: SocketAddr, bind: impl AsyncFn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
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

    /// What is listened on where everything of IPv6 fails like this.
    async fn found(address: &str, failure: io::ErrorKind) -> Option<String> {
        let bind = async |address: SocketAddr| {
            if address.is_ipv6() {
                Err(failure.into())
            } else {
                Ok(address.to_string())
            }
        };
        bound(address.parse().unwrap(), bind).await.ok()
    }

    #[tokio::test]
    async fn a_machine_without_ipv6_is_reached_by_ipv4() {
        use io::ErrorKind::{AddrInUse, Unsupported};
        let anywhere = Some("0.0.0.0:9001".to_owned());
        assert_eq!(found("[::]:9001", Unsupported).await, anywhere);
        assert_eq!(found("[::]:9001", AddrInUse).await, None, "somebody else has it");
        assert_eq!(
            found("[::1]:9001", Unsupported).await,
            None,
            "nobody asked for more"
        );
        assert_eq!(found("0.0.0.0:9001", Unsupported).await, anywhere);
    }

    #[tokio::test]
    async fn every_address_is_listened_on() {
        let listener = listen("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = (Ipv4Addr::LOCALHOST, port);
        tokio::net::TcpStream::connect(address).await.unwrap();
    }
}
