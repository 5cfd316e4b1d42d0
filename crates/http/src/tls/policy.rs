//! TLS versions and cipher suites of a server.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::ResolvesServerCert;
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use tracing::warn;

use super::TlsError;

/// Suites that clusters may still configure but that are too weak to be implemented here.
const KNOWN_WEAK: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// The protocols that a server negotiates, in order of preference.
pub const ALPN_HTTP1: &[&[u8]] = &[b"http/1.1"];
pub const ALPN_HTTP1_AND_HTTP2: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The versions and cipher suites that a server offers.
#[derive(Clone, Debug)]
pub struct TlsPolicy {
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
}

impl TlsPolicy {
    /// Returns a policy for a minimum version and cipher suites by their IANA names, as components take them in flags.
    /// Without suites, all strong ones are offered.
    pub fn new(minimum: &str, suites: &[String]) -> Result<Self, TlsError> {
        let mut versions = match minimum {
            "" | "VersionTLS12" => vec![&version::TLS13, &version::TLS12],
            "VersionTLS10" | "VersionTLS11" => {
                warn!("{minimum} is too weak to be offered; the minimum is VersionTLS12");
                vec![&version::TLS13, &version::TLS12]
            }
            "VersionTLS13" => vec![&version::TLS13],
            other => return Err(TlsError::Version(other.to_owned())),
        };
        let named = named_suites(suites)?;
        let all = ring::ALL_CIPHER_SUITES;
        let of = |version: &'static SupportedProtocolVersion| {
            let known = all.iter().filter(move |suite| suite.version() == version);
            let chosen: Vec<_> = known
                .clone()
                .filter(|suite| named.contains(&suite.suite()))
                .copied()
                .collect();
            // In Go the suites of TLS 1.3 cannot be configured, so naming none of them means all of them.
            if chosen.is_empty() && (suites.is_empty() || version == &version::TLS13) {
                known.copied().collect()
            } else {
                chosen
            }
        };
        let mut offered = Vec::new();
        versions.retain(|version| {
            let suites = of(version);
            let usable = !suites.is_empty();
            offered.extend(suites);
            usable
        });
        if offered.is_empty() {
            return Err(TlsError::NoSuite(minimum.to_owned()));
        }
        Ok(Self {
            versions,
            suites: offered,
        })
    }

    /// Returns the configuration for new connections.
    pub fn server_config(
        &self,
        certificates: Arc<impl ResolvesServerCert + 'static>,
        alpn: &[&[u8]],
    ) -> Result<ServerConfig, TlsError> {
        let provider = CryptoProvider {
            cipher_suites: self.suites.clone(),
            ..ring::default_provider()
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)?
            .with_no_client_auth()
            .with_cert_resolver(certificates);
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // A machine boots once and a scraper keeps its connection: resuming sessions would only cost memory.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn named_suites(names: &[String]) -> Result<Vec<CipherSuite>, TlsError> {
    let mut suites = Vec::new();
    for name in names
        .iter()
        .map(|name| name.trim())
        .filter(|name| !name.is_empty())
    {
        // rustls names the suites of TLS 1.3 after their version.
        let ours = match name.strip_prefix("TLS_") {
            Some(rest) if !rest.contains("_WITH_") => format!("TLS13_{rest}"),
            _ => name.to_owned(),
        };
        let known = ring::ALL_CIPHER_SUITES
            .iter()
            .map(SupportedCipherSuite::suite)
            .find(|suite| suite.as_str() == Some(ours.as_str()));
        match known {
            Some(suite) => suites.push(suite),
            None if KNOWN_WEAK.contains(&name) => warn!("cipher suite {name} is too weak and is not offered"),
            None => return Err(TlsError::Suite(name.to_owned())),
        }
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(minimum: &str, suites: &str) -> Result<(usize, usize), String> {
        let suites: Vec<_> = suites
            .split(',')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect();
        TlsPolicy::new(minimum, &suites)
            .map(|policy| (policy.versions.len(), policy.suites.len()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_decide_what_is_offered() {
        for (name, minimum, suites, expected) in [
            ("no flags", "", "", (2, 9)),
            ("the default", "VersionTLS12", "", (2, 9)),
            ("a weak minimum is raised", "VersionTLS10", "", (2, 9)),
            ("only TLS 1.3", "VersionTLS13", "", (1, 3)),
            (
                "one old suite; those of TLS 1.3 stay",
                "VersionTLS12",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                (2, 4),
            ),
            (
                "only a new suite",
                "VersionTLS12",
                "TLS_AES_128_GCM_SHA256",
                (1, 1),
            ),
            (
                "weak ones are left out",
                "VersionTLS12",
                "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256",
                (1, 1),
            ),
        ] {
            assert_eq!(offered(minimum, suites), Ok(expected), "{name}");
        }
        assert!(offered("TLS1.2", "").unwrap_err().contains("unknown TLS version"));
        assert!(
            offered("", "TLS_NULL")
                .unwrap_err()
                .contains("unknown TLS cipher suite \"TLS_NULL\"")
        );
    }
}
