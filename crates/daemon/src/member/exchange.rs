//! The join request: one request over a connection whose server is authenticated first.

use std::io;
use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use mco_host::Root;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::pin::{Invitation, PinnedConnector};
use super::record::{MemberRecord, RecordError};

const PATH: &str = "/join";
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_RESPONSE_SIZE: usize = 1 << 20;
const HTTPS: u16 = 443;

#[derive(Debug, Error)]
pub enum JoinError {
    #[error("{0:?} is not a server address; expected a URL like https://10.0.0.5:7443")]
    Address(String),
    #[error(
        "cannot reach {server}: {source}; check that mco up runs there with --listen 0.0.0.0 and that no firewall is in between"
    )]
    Unreachable { server: String, source: io::Error },
    #[error(
        "{server} is not the server this token is for: {why}; nothing was sent to it. Compare --server and --ca-hash with what mco up --join-token prints there"
    )]
    NotTheServer { server: String, why: String },
    #[error("{server} rejected the join token: {why}; create a new token there with mco up --join-token")]
    Token { server: String, why: String },
    #[error(
        "a machine named {node} already exists; choose another name with --node-name, or if that machine is gone: \
         kubectl delete node {node}"
    )]
    NameTaken { node: String },
    #[error("{server} refused this machine: {why}")]
    Refused { server: String, why: String },
    #[error("{server} returned an unexpected response: {why}; is it an mco up of the same version?")]
    Answer { server: String, why: String },
    #[error(transparent)]
    Record(#[from] RecordError),
}

#[derive(Deserialize)]
struct JoinAnswer {
    pool: String,
    #[serde(rename = "certificateAuthority")]
    authority: String,
}

/// Joins a cluster as a node and stores the credentials. Idempotent.
pub async fn join(
    root: &Root,
    server: &str,
    invitation: &Invitation,
    node: &str,
) -> Result<MemberRecord, JoinError> {
    let server = server.trim_end_matches('/');
    let address = Address::parse(server)?;
    let membership = MemberRecord::begin(root, server, node)?;
    let connection = tokio::time::timeout(JOIN_TIMEOUT, connect(&address, server, invitation));
    let timed_out = |_| JoinError::Unreachable {
        server: server.to_owned(),
        source: io::ErrorKind::TimedOut.into(),
    };
    let connection = connection.await.map_err(timed_out)??;
    let answer = tokio::time::timeout(
        JOIN_TIMEOUT,
        send_request(connection, &address, invitation, &membership),
    );
    let (status, body) = answer
        .await
        .map_err(timed_out)?
        .map_err(|why| JoinError::Answer {
            server: server.to_owned(),
            why,
        })?;
    let answer = understand(server, node, status, &body)?;
    Ok(membership.complete(root, answer.pool, &answer.authority)?)
}

struct Address {
    host: String,
    port: u16,
}

impl Address {
    fn parse(server: &str) -> Result<Self, JoinError> {
        let wrong = || JoinError::Address(server.to_owned());
        let uri: Uri = server.parse().map_err(|_| wrong())?;
        if uri.scheme_str() != Some("https") || !matches!(uri.path(), "" | "/") {
            return Err(wrong());
        }
        let host = uri.host().ok_or_else(wrong)?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(HTTPS),
        })
    }

    /// Connects to the first reachable address of the host name.
    async fn connect(&self) -> io::Result<TcpStream> {
        let (host, port) = (self.host.clone(), self.port);
        let found = tokio::task::spawn_blocking(move || (host.as_str(), port).to_socket_addrs())
            .await
            .map_err(io::Error::other)??;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in found {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Connects to the server that issued the join token; fails if its CA does not match the pinned fingerprint.
async fn connect(
    address: &Address,
    server: &str,
    invitation: &Invitation,
) -> Result<TlsStream<TcpStream>, JoinError> {
    let unreachable = |source| JoinError::Unreachable {
        server: server.to_owned(),
        source,
    };
    let stranger = |why: String| JoinError::NotTheServer {
        server: server.to_owned(),
        why,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = PinnedConnector::new(invitation.authority, Arc::clone(&provider));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| stranger(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name =
        ServerName::try_from(address.host.clone()).map_err(|_| JoinError::Address(server.to_owned()))?;
    let stream = address.connect().await.map_err(unreachable)?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(
            |error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => stranger(
                    format!("its certificate is not issued by the CA {}", invitation.authority),
                ),
                Some(error) => stranger(error.to_string()),
                None => unreachable(error),
            },
        )
}

async fn send_request(
    connection: TlsStream<TcpStream>,
    address: &Address,
    invitation: &Invitation,
    membership: &MemberRecord,
) -> Result<(StatusCode, Bytes), String> {
    let body = json!({"node": membership.node, "credential": membership.credential}).to_string();
    let request = Request::post(PATH)
        .header(HOST, format!("{}:{}", address.host, address.port))
        .header(AUTHORIZATION, format!("Bearer {}", invitation.token))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(connection))
        .await
        .map_err(|error| error.to_string())?;
    let driver = tokio::spawn(driver);
    let answered = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_SIZE)
            .collect()
            .await;
        let body = body.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    };
    let answered = answered.await;
    driver.abort();
    answered
}

fn understand(server: &str, node: &str, status: StatusCode, body: &Bytes) -> Result<JoinAnswer, JoinError> {
    let server = server.to_owned();
    if status == StatusCode::OK {
        return serde_json::from_slice(body).map_err(|error| JoinError::Answer {
            server,
            why: error.to_string(),
        });
    }
    let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let why = said["message"]
        .as_str()
        .map_or_else(|| status.to_string(), str::to_owned);
    Err(match status {
        StatusCode::UNAUTHORIZED => JoinError::Token { server, why },
        StatusCode::CONFLICT => JoinError::NameTaken {
            node: node.to_owned(),
        },
        _ => JoinError::Refused { server, why },
    })
}
