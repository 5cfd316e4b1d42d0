//! Updates of user data secrets that an installer or an administrator created for new machines.
//!
//! The secret belongs to its creator, so only what would prevent a machine from booting is changed. Text that is not
//! a pointer config is not changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mco_ignition::convert::{self, ConvertError};
use mco_ignition::{ParseError, SpecVersion};
use serde_json::Value;
use thiserror::Error;

/// The version that a pointer config of an older major version is converted to.
pub const UPGRADED_TO: SpecVersion = SpecVersion::NEWEST;

const AUTHORITIES: &str = "/ignition/security/tls/certificateAuthorities";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("it names several certificate authorities, and which one is ours is unclear")]
pub struct SeveralAuthorities;

#[derive(Debug, Error)]
pub enum UpgradeError {
    #[error("it cannot be read: {0}")]
    Parse(#[from] ParseError),
    #[error("it cannot be converted to version {UPGRADED_TO}: {0}")]
    Convert(#[from] ConvertError),
}

/// Returns the user data with the current certificate authority (CA) certificates; `None` if it already has them, or
/// is not a pointer config with a CA.
pub fn with_authorities(user_data: &[u8], authorities: &str) -> Result<Option<Vec<u8>>, SeveralAuthorities> {
    let Ok(mut document) = serde_json::from_slice::<Value>(user_data) else {
        return Ok(None);
    };
    let Some(named) = document.pointer_mut(AUTHORITIES).and_then(Value::as_array_mut) else {
        return Ok(None);
    };
    let first = match named.as_mut_slice() {
        [] => return Ok(None),
        [first] => first,
        _ => return Err(SeveralAuthorities),
    };
    let current = format!(
        "data:text/plain;charset=utf-8;base64,{}",
        BASE64.encode(authorities)
    );
    if authorities.is_empty() || first.get("source").and_then(Value::as_str) == Some(&current) {
        return Ok(None);
    }
    let Some(first) = first.as_object_mut() else {
        return Ok(None);
    };
    first.insert("source".to_owned(), Value::String(current));
    Ok(Some(document.to_string().into_bytes()))
}

/// Converts the user data to a config of [`UPGRADED_TO`]; returns `None` if it already has that major version, or is
/// not a pointer config.
///
/// Only for machines whose boot images are kept up to date: an old image only supports the old version.
pub fn upgraded(user_data: &[u8]) -> Result<Option<Vec<u8>>, UpgradeError> {
    let Ok(document) = serde_json::from_slice::<Value>(user_data) else {
        return Ok(None);
    };
    let version = document.pointer("/ignition/version").and_then(Value::as_str);
    if version.is_none_or(|version| version.starts_with('3')) {
        return Ok(None);
    }
    let read = mco_ignition::parse(&document)?;
    let written = convert::down(&read.config, UPGRADED_TO)?;
    Ok(Some(written.to_string().into_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointer(sources: &[&str]) -> Value {
        let sources: Vec<Value> = sources.iter().map(|source| json!({"source": source})).collect();
        json!({"ignition": {"version": "2.2.0", "config": {"append": [{"source": "https://old/config/worker"}]},
            "security": {"tls": {"certificateAuthorities": sources}}}})
    }

    fn bytes(document: &Value) -> Vec<u8> {
        document.to_string().into_bytes()
    }

    #[test]
    fn only_the_one_authority_of_a_pointer_is_replaced() {
        let current = format!("data:text/plain;charset=utf-8;base64,{}", BASE64.encode("NEW"));
        let updated = with_authorities(&bytes(&pointer(&["data:,old"])), "NEW")
            .unwrap()
            .unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&updated).unwrap(),
            pointer(&[&current]),
            "version and address stay"
        );
        for (name, document, expected) in [
            ("is current", bytes(&pointer(&[&current])), Ok(None)),
            ("has none", bytes(&pointer(&[])), Ok(None)),
            (
                "has several",
                bytes(&pointer(&["a", "b"])),
                Err(SeveralAuthorities),
            ),
            ("is no JSON", b"#cloud-config".to_vec(), Ok(None)),
            ("is no pointer", b"{\"ignition\": 3}".to_vec(), Ok(None)),
            (
                "has something else in its place",
                br#"{"ignition": {"security": {"tls": {"certificateAuthorities": ["x"]}}}}"#.to_vec(),
                Ok(None),
            ),
        ] {
            assert_eq!(with_authorities(&document, "NEW"), expected, "{name}");
        }
        assert_eq!(
            with_authorities(&bytes(&pointer(&["data:,old"])), ""),
            Ok(None),
            "nothing is known about the present ones"
        );
    }

    #[test]
    fn a_pointer_of_the_old_version_says_the_same_in_the_new_one() {
        // As older installers wrote it.
        let old = json!({
            "ignition": {
                "config": {"append": [{"source": "https://api-int.example.com:22623/config/worker", "verification": {}}]},
                "security": {"tls": {"certificateAuthorities": [
                    {"source": "data:text/plain;charset=utf-8;base64,UEVN", "verification": {}},
                ]}},
                "timeouts": {},
                "version": "2.2.0",
            },
            "networkd": {}, "passwd": {}, "storage": {}, "systemd": {},
        });
        let new = upgraded(&bytes(&old)).unwrap().unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&new).unwrap(),
            json!({"ignition": {
                "version": "3.5.0",
                "config": {"merge": [{"source": "https://api-int.example.com:22623/config/worker"}]},
                "security": {"tls": {"certificateAuthorities": [{"source": "data:text/plain;charset=utf-8;base64,UEVN"}]}},
            }})
        );
        assert_eq!(upgraded(&new).unwrap(), None, "once is enough");
    }

    #[test]
    fn current_or_other_user_data_is_unchanged_and_invalid_user_data_is_reported() {
        for text in [
            r#"{"ignition": {"version": "3.1.0"}}"#,
            r#"{"ignition": {}}"#,
            r#"{"ignition": 3}"#,
            "[]",
            "#cloud-config",
            "",
        ] {
            assert!(matches!(upgraded(text.as_bytes()), Ok(None)), "{text}");
        }
        for text in [
            r#"{"ignition": {"version": "1.0.0"}}"#,
            r#"{"ignition": {"version": "2.2.0"}, "networkd": {"units": [{"name": "a.network", "contents": "x"}]}}"#,
        ] {
            assert!(
                matches!(upgraded(text.as_bytes()), Err(UpgradeError::Parse(_))),
                "{text}"
            );
        }
    }
}
