//! Puts load on a running server and prints its latencies: `load HOST:PORT CA PATH CONNECTIONS SECONDS [handshakes]`.
//!
//! Requests are sent over keep-alive TLS connections, one after another on each; with `handshakes`, each on a new
//! connection.

#![allow(clippy::print_stdout, reason = "it is a command")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
struct Load {
    address: String,
    path: String,
    connector: TlsConnector,
    until: Instant,
    new_connections: bool,
}

impl Load {
    async fn connect(&self) -> Result<TlsStream<TcpStream>, Failure> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(self
            .connector
            .connect(ServerName::try_from("localhost")?, stream)
            .await?)
    }

    /// Returns the durations of all requests of one connection, and the size of one response.
    async fn run(self) -> Result<(Vec<Duration>, usize), Failure> {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nAccept: application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1\r\n\r\n",
            self.path
        );
        let (mut times, mut size) = (Vec::new(), 0);
        let mut stream = self.connect().await?;
        let mut buffer = vec![0; 256 << 10];
        while Instant::now() < self.until {
            let started = Instant::now();
            if self.new_connections && !times.is_empty() {
                stream = self.connect().await?;
            }
            stream.write_all(request.as_bytes()).await?;
            size = read_response(&mut stream, &mut buffer).await?;
            times.push(started.elapsed());
        }
        Ok((times, size))
    }
}

/// Reads and discards one response.
async fn read_response(stream: &mut TlsStream<TcpStream>, buffer: &mut [u8]) -> Result<usize, Failure> {
    let mut head = Vec::new();
    let (length, mut got) = loop {
        let count = stream.read(buffer).await?;
        if count == 0 {
            return Err("the server closed the connection".into());
        }
        head.extend_from_slice(&buffer[..count]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = std::str::from_utf8(&head[..end])?;
            if !text.starts_with("HTTP/1.1 200") {
                return Err(text.lines().next().unwrap_or_default().into());
            }
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .ok_or("no length")?;
            break (length.parse::<usize>()?, head.len() - end - 4);
        }
    };
    while got < length {
        match stream.read(buffer).await? {
            0 => return Err("the response was truncated".into()),
            count => got += count,
        }
    }
    Ok(length)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, ca, path, connections, seconds, rest @ ..] = arguments.as_slice() else {
        return Err("usage: load HOST:PORT CA PATH CONNECTIONS SECONDS [handshakes]".into());
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca)?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let started = Instant::now();
    let load = Load {
        address: address.clone(),
        path: path.clone(),
        connector: TlsConnector::from(Arc::new(config)),
        until: started + Duration::from_secs(seconds.parse()?),
        new_connections: rest.first().is_some_and(|word| word == "handshakes"),
    };
    let mut running = JoinSet::new();
    for _ in 0..connections.parse::<usize>()? {
        running.spawn(load.clone().run());
    }
    let (mut times, mut bytes) = (Vec::new(), 0);
    while let Some(result) = running.join_next().await {
        let (some, size) = result??;
        times.extend(some);
        bytes = bytes.max(size);
    }
    let took = started.elapsed().as_secs_f64();
    times.sort_unstable();
    let percentile = |percent: usize| {
        times
            .get(times.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "far fewer requests than the precision of f64"
    )]
    let rate = times.len() as f64 / took;
    println!(
        "requests={} bytes_each={bytes} per_second={rate:.0} p50_ms={:.2} p99_ms={:.2}",
        times.len(),
        percentile(50).as_secs_f64() * 1000.0,
        percentile(99).as_secs_f64() * 1000.0,
    );
    Ok(())
}
