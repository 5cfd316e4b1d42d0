//! Which versions and suites are offered. Knows no certificate.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::ResolvesServerCert;
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use tracing::warn;

use crate::TlsError;

/// Suites that clusters may still name but that are too weak to be implemented here.
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

/// The names that OpenSSL, and the TLS profiles of clusters, use for suites.
const OPENSSL_NAMES: &[(&str, &str)] = &[
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];

/// What is offered to clients.
#[derive(Clone, Debug)]
pub struct Offer {
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
}

impl Offer {
    /// From the flags of the command line. No suites means all good ones.
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
            // Nobody could ever choose among the suites of TLS 1.3, so naming none of them means all of them.
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

    /// The configuration for new connections, whose certificate comes from `certificates`.
    pub fn server_config(
        &self,
        certificates: Arc<impl ResolvesServerCert + 'static>,
    ) -> Result<ServerConfig, TlsError> {
        let provider = CryptoProvider {
            cipher_suites: self.suites.clone(),
            ..ring::default_provider()
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)?
            .with_no_client_auth()
            .with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A machine boots once and a scraper keeps its connection: remembering sessions would only cost memory.
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
        let iana = OPENSSL_NAMES
            .iter()
            .find(|(openssl, _)| *openssl == name)
            .map_or(name, |(_, iana)| *iana);
        // rustls spells the suites of TLS 1.3 with their version.
        let ours = match iana.strip_prefix("TLS_") {
            Some(rest) if !rest.contains("_WITH_") => format!("TLS13_{rest}"),
            _ => iana.to_owned(),
        };
        let known = ring::ALL_CIPHER_SUITES
            .iter()
            .map(SupportedCipherSuite::suite)
            .find(|suite| suite.as_str() == Some(ours.as_str()));
        match known {
            Some(suite) => suites.push(suite),
            None if KNOWN_WEAK.contains(&iana) => warn!("cipher suite {name} is too weak and is not offered"),
            None => return Err(TlsError::Suite(name.to_owned())),
        }
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minimum: &str, suites: &str) -> Result<(usize, usize), String> {
        let suites: Vec<_> = suites
            .split(',')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect();
        Offer::new(minimum, &suites)
            .map(|offer| (offer.versions.len(), offer.suites.len()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_decide_what_is_offered() {
        for (name, minimum, suites, expected) in [
            ("nothing said", "", "", (2, 9)),
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
                "OpenSSL's names",
                "VersionTLS12",
                "ECDHE-RSA-AES128-GCM-SHA256,TLS_AES_128_GCM_SHA256",
                (2, 2),
            ),
            (
                "weak ones are left out",
                "VersionTLS12",
                "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256",
                (1, 1),
            ),
        ] {
            assert_eq!(offer(minimum, suites), Ok(expected), "{name}");
        }
        assert!(offer("TLS1.2", "").unwrap_err().contains("unknown TLS version"));
        assert!(
            offer("", "TLS_NULL")
                .unwrap_err()
                .contains("unknown TLS cipher suite \"TLS_NULL\"")
        );
    }
}
