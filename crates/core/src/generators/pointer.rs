//! The pointer config: the short Ignition config a machine is created with, which refers to its full configuration on
//! the server and contains the CA certificates to trust.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mco_ignition::SpecVersion;
use mco_ignition::convert::{self, ConvertError};
use mco_ignition::model::{Config, HttpHeader, Resource};
use serde_json::Value;
use thiserror::Error;

use crate::config::pools;

/// The contents of a pointer config.
#[derive(Clone, Copy, Debug)]
pub struct PointerConfig<'a> {
    pub pool: &'a str,
    /// Host or address of the server, with a port where it is not [`DEFAULT_PORT`].
    pub server: &'a str,
    /// PEM CA certificates to verify the server's certificate with, in addition to the machine's own; may be empty.
    pub authorities: &'a [u8],
    pub token: Option<&'a str>,
    pub version: SpecVersion,
}

/// The port of the Ignition server in the reference implementation.
pub const DEFAULT_PORT: u16 = 22623;

#[derive(Debug, Error)]
pub enum PointerError {
    #[error("{0:?} is not a pool name; use lower-case letters, digits, '-' and '.'")]
    Pool(String),
    #[error("{0:?} is not a host, an address, or either of them with a port")]
    Server(String),
    #[error(
        "spec {0} cannot carry a token: request headers were added in 3.1.0. Use 3.1.0 or newer, or omit the token"
    )]
    TokenTooNew(SpecVersion),
    #[error("the certificate file holds no PEM certificate")]
    Authorities,
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

/// Returns the pointer config as JSON.
pub fn pointer(wanted: &PointerConfig<'_>) -> Result<Value, PointerError> {
    if !pools::is_name(wanted.pool) {
        return Err(PointerError::Pool(wanted.pool.to_owned()));
    }
    if wanted.token.is_some() && wanted.version < SpecVersion::V3_1 {
        return Err(PointerError::TokenTooNew(wanted.version));
    }
    let authority = authority(wanted.server).ok_or_else(|| PointerError::Server(wanted.server.to_owned()))?;
    let mut config = Config::default();
    config.ignition.config.merge.push(Resource {
        source: Some(format!("https://{authority}/config/{}", wanted.pool)),
        http_headers: wanted.token.map(authorization).into_iter().collect(),
        ..Resource::default()
    });
    if !wanted.authorities.is_empty() {
        if !contains_certificate(wanted.authorities) {
            return Err(PointerError::Authorities);
        }
        config
            .ignition
            .security
            .tls
            .certificate_authorities
            .push(Resource {
                source: Some(format!(
                    "data:text/plain;charset=utf-8;base64,{}",
                    STANDARD.encode(wanted.authorities)
                )),
                ..Resource::default()
            });
    }
    Ok(convert::down(&config, wanted.version)?)
}

fn authorization(token: &str) -> HttpHeader {
    HttpHeader {
        name: "Authorization".to_owned(),
        value: Some(format!("Bearer {token}")),
    }
}

fn contains_certificate(pem: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    pem.windows(BEGIN.len()).any(|window| window == BEGIN)
}

/// Returns `host:port` for a URL, with the default port and IPv6 brackets added where they are missing.
fn authority(server: &str) -> Option<String> {
    if server.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!("[{server}]:{DEFAULT_PORT}"));
    }
    if let Some(rest) = server.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        let port = if port.is_empty() {
            DEFAULT_PORT
        } else {
            port.strip_prefix(':')?.parse().ok()?
        };
        return Some(format!("[{address}]:{port}"));
    }
    let (host, port) = match server.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (server, DEFAULT_PORT),
    };
    let is_host = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    is_host.then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn wanted() -> PointerConfig<'static> {
        PointerConfig {
            pool: "worker",
            server: "api-int.example.com",
            authorities: PEM,
            token: None,
            version: SpecVersion::V3_5,
        }
    }

    #[test]
    fn it_points_at_the_pool_and_carries_the_authority() {
        assert_eq!(
            pointer(&wanted()).unwrap(),
            json!({"ignition": {"version": "3.5.0",
                "config": {"merge": [{"source": "https://api-int.example.com:22623/config/worker"}]},
                "security": {"tls": {"certificateAuthorities": [{"source":
                    format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(PEM))}]}}}})
        );
        let old = pointer(&PointerConfig {
            version: SpecVersion::V2_2,
            ..wanted()
        })
        .unwrap();
        assert_eq!(old["ignition"]["version"], "2.2.0");
        assert_eq!(
            old["ignition"]["config"]["append"][0]["source"],
            "https://api-int.example.com:22623/config/worker"
        );
    }

    #[test]
    fn a_token_travels_as_a_request_header() {
        let value = pointer(&PointerConfig {
            token: Some("secret"),
            ..wanted()
        })
        .unwrap();
        assert_eq!(
            value["ignition"]["config"]["merge"][0]["httpHeaders"],
            json!([{"name": "Authorization", "value": "Bearer secret"}])
        );
        let too_old = PointerConfig {
            token: Some("secret"),
            version: SpecVersion::V3_0,
            ..wanted()
        };
        assert!(matches!(pointer(&too_old), Err(PointerError::TokenTooNew(_))));
    }

    #[test]
    fn servers_are_written_as_urls_need_them() {
        for (server, expected) in [
            ("api-int.example.com", Some("api-int.example.com:22623")),
            ("api-int.example.com:443", Some("api-int.example.com:443")),
            ("192.0.2.1", Some("192.0.2.1:22623")),
            ("fd00::1", Some("[fd00::1]:22623")),
            ("[fd00::1]", Some("[fd00::1]:22623")),
            ("[fd00::1]:8443", Some("[fd00::1]:8443")),
            ("", None),
            ("host/path", None),
            ("host:port", None),
            ("[fd00::1]8443", None),
        ] {
            assert_eq!(authority(server).as_deref(), expected, "{server}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(matches!(
            pointer(&PointerConfig {
                pool: "No Pool",
                ..wanted()
            }),
            Err(PointerError::Pool(_))
        ));
        assert!(matches!(
            pointer(&PointerConfig {
                server: "a b",
                ..wanted()
            }),
            Err(PointerError::Server(_))
        ));
        assert!(matches!(
            pointer(&PointerConfig {
                authorities: b"x",
                ..wanted()
            }),
            Err(PointerError::Authorities)
        ));
    }
}
