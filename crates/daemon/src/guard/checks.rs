//! The health checks of a changed node: its kubelet, and its network to the API server.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::RequiredHealth;
use crate::agent::{HealthEndpoint, probe_kubelet};

/// A healthy component of the same machine, or of the same network, responds much faster.
const LONGEST_CHECK: Duration = Duration::from_secs(5);

/// Runs the checks and returns the first problem; `None` if the node is healthy.
pub async fn problem(required: &RequiredHealth) -> Option<String> {
    if let Some(url) = &required.kubelet {
        let checked = match url.parse::<HealthEndpoint>() {
            Ok(endpoint) => probe_kubelet(endpoint, LONGEST_CHECK).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = checked {
            return Some(format!("the kubelet is not healthy at {url}: {why}"));
        }
    }
    if let Some(server) = &required.api_server
        && let Err(why) = reach(server).await
    {
        return Some(format!("the API server is not reached at {server}: {why}"));
    }
    None
}

/// Connects to the server. Of interest is the node's network: a server that refuses connections is reached, unless it
/// is on this machine.
async fn reach(server: &str) -> Result<(), String> {
    let addresses = timeout(LONGEST_CHECK, lookup_host(server)).await;
    let addresses = addresses
        .map_err(|_| "its name was not resolved in time".to_owned())?
        .map_err(|error| format!("its name cannot be resolved: {error}"))?;
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match timeout(LONGEST_CHECK, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) if refuses(error.kind()) && !is_own(address) => return Ok(()),
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => why = format!("no answer within {} s", LONGEST_CHECK.as_secs()),
        }
    }
    Err(why)
}

fn refuses(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
}

/// Returns whether an address is one of this machine: only then a socket can be bound to it.
fn is_own(address: SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn required(kubelet: Option<String>, api_server: Option<String>) -> RequiredHealth {
        RequiredHealth::new(Duration::from_mins(1), kubelet, api_server)
    }

    /// Serves this response to each request; returns the address.
    async fn serve(response: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        address
    }

    async fn closed_port() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const BAD: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nnope\n";

    #[tokio::test]
    async fn a_node_needs_both_its_kubelet_and_its_network() {
        let (well, ill, closed) = (serve(OK).await, serve(BAD).await, closed_port().await);
        let kubelet = |address: SocketAddr| Some(format!("http://{address}/healthz"));
        let server = |address: SocketAddr| Some(address.to_string());
        for (name, kubelet, server, expected) in [
            ("healthy", kubelet(well), server(well), ""),
            (
                "an ill kubelet",
                kubelet(ill),
                server(well),
                "the response is 500",
            ),
            ("no kubelet", kubelet(closed), server(well), "refused"),
            (
                "its own API server is down",
                kubelet(well),
                server(closed),
                "refused",
            ),
            (
                "no name",
                None,
                Some("no-such-host.invalid:1".to_owned()),
                "resolved",
            ),
            ("nothing to check", None, None, ""),
        ] {
            let found = problem(&required(kubelet, server)).await.unwrap_or_default();
            assert_eq!(found.is_empty(), expected.is_empty(), "{name}: {found}");
            assert!(found.contains(expected), "{name}: {found}");
        }
    }

    #[tokio::test]
    async fn only_what_the_node_showed_before_is_required() {
        let (well, closed) = (serve(OK).await, closed_port().await);
        let kubelet = Some(format!("http://{well}/healthz"));
        let passing = required(kubelet.clone(), Some(closed.to_string()))
            .passing()
            .await;
        assert_eq!(passing, required(kubelet, None));
        let none = required(Some(format!("http://{closed}/healthz")), None);
        assert!(none.passing().await.is_empty());
    }

    #[test]
    fn addresses_of_this_machine_are_recognized() {
        assert!(is_own("127.0.0.1:1".parse().unwrap()));
        // Of a block that is reserved for documentation.
        assert!(!is_own("192.0.2.1:1".parse().unwrap()));
    }
}
