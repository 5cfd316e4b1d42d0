//! TLS security profiles: the minimum protocol version and the cipher suites of each profile.

use mco_api::foreign::tls::TlsSecurityProfile;

/// The settings of a profile, in the format of Kubernetes components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub min_version: String,
    /// IANA names.
    pub cipher_suites: Vec<String>,
}

const MODERN: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

const INTERMEDIATE: [&str; 9] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

const OLD: [&str; 21] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA256",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

/// OpenSSL names and their IANA names, for the suites that Go's TLS library supports. Others cannot be configured.
const IANA: [(&str, &str); 21] = [
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
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
    (
        "ECDHE-ECDSA-AES128-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    ),
    ("ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    ("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
    ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
];

/// Returns the IANA name of a cipher suite by its OpenSSL name; `None` for suites that Go's TLS library does not have.
pub fn iana_name(openssl: &str) -> Option<&'static str> {
    let known = IANA.iter().find(|(name, _)| *name == openssl);
    known.map(|(_, iana)| *iana)
}

/// Returns the settings of a profile. A missing or unrecognised one, and a custom one without settings, default to
/// Intermediate.
pub fn settings(profile: Option<&TlsSecurityProfile>) -> TlsSettings {
    let intermediate = || named("VersionTLS12", INTERMEDIATE.iter().copied());
    let Some(profile) = profile else {
        return intermediate();
    };
    match (profile.type_.as_str(), &profile.custom) {
        ("Old", _) => named("VersionTLS10", OLD.iter().copied()),
        ("Modern", _) => named("VersionTLS13", MODERN.iter().copied()),
        ("Custom", Some(custom)) => named(&custom.min_tls_version, custom.ciphers.iter().map(String::as_str)),
        _ => intermediate(),
    }
}

fn named<'a>(min_version: &str, ciphers: impl Iterator<Item = &'a str>) -> TlsSettings {
    TlsSettings {
        min_version: min_version.to_owned(),
        cipher_suites: ciphers.filter_map(iana_name).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_profile_names_a_version_and_suites() {
        let cases = [
            ("none", json!(null), "VersionTLS12", 9),
            ("Old", json!({"type": "Old", "old": {}}), "VersionTLS10", 21),
            ("Modern", json!({"type": "Modern"}), "VersionTLS13", 3),
            ("unknown", json!({"type": "Future"}), "VersionTLS12", 9),
            (
                "Custom without body",
                json!({"type": "Custom"}),
                "VersionTLS12",
                9,
            ),
            (
                "Custom with a suite that cannot be mapped",
                json!({"type": "Custom", "custom": {"minTLSVersion": "VersionTLS11", "ciphers": ["ECDHE-RSA-AES256-SHA384", "AES128-SHA"]}}),
                "VersionTLS11",
                1,
            ),
        ];
        for (name, profile, version, suites) in cases {
            let profile: Option<TlsSecurityProfile> = serde_json::from_value(profile).unwrap();
            let settings = settings(profile.as_ref());
            assert_eq!(settings.min_version, version, "{name}");
            assert_eq!(settings.cipher_suites.len(), suites, "{name}");
        }
    }
}
