//! Updates of user data secrets that an installer or an administrator created for new machines.
//!
//! The secret belongs to its creator, so only what would prevent a machine from booting is changed. Text that is not
//! a pointer config is not changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mco_ignition::convert::{self, ConvertError};
use mco_ignition::{ParseError, SpecVersion};
use serde_json::{Value, json};
use thiserror::Error;

/// The version that a pointer config of an older major version is converted to.
pub const UPGRADED_TO: SpecVersion = SpecVersion::NEWEST;

const VERSION: &str = "/ignition/version";
const MERGED: &str = "/ignition/config/merge";
const APPENDED: &str = "/ignition/config/append";
const AUTHORIZATION: &str = "Authorization";
const BEARER: &str = "Bearer ";
const AUTHORITIES: &str = "/ignition/security/tls/certificateAuthorities";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("it names several certificate authorities, and which one is ours is unclear")]
pub struct SeveralAuthorities;

/// The pointer config cannot carry a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "its version {version} has no request headers for the token that the config server requires, so machines created \
     with it cannot boot; use 3.1.0 or newer"
)]
pub struct NoRequestHeaders {
    version: String,
}

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

/// Returns the token of a pointer config of ours; `None` if it has none.
pub fn token(user_data: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(user_data).ok()?;
    let headers = document.pointer(MERGED)?.get(0)?.get("httpHeaders")?.as_array()?;
    let header = headers.iter().find(|header| is_authorization(header))?;
    let token = header.get("value")?.as_str()?.strip_prefix(BEARER)?;
    Some(token.to_owned())
}

/// Returns the user data with the token that `token_of` returns for the URL it refers to; `None` if it already has it,
/// refers to another server, or is not a pointer config.
pub fn with_token<'t>(
    user_data: &[u8],
    token_of: impl Fn(&str) -> Option<&'t str>,
) -> Result<Option<Vec<u8>>, NoRequestHeaders> {
    let Ok(mut document) = serde_json::from_slice::<Value>(user_data) else {
        return Ok(None);
    };
    let version = document
        .pointer(VERSION)
        .and_then(Value::as_str)
        .unwrap_or_default();
    let version = version.to_owned();
    let mut changed = false;
    for list in [MERGED, APPENDED] {
        let entries = document.pointer_mut(list).and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            let source = entry.get("source").and_then(Value::as_str);
            let Some(token) = source.and_then(&token_of) else {
                continue;
            };
            if version.starts_with("2.") || version == "3.0.0" {
                return Err(NoRequestHeaders { version });
            }
            changed |= authorize(entry, token);
        }
    }
    Ok(changed.then(|| document.to_string().into_bytes()))
}

/// Sets the token of one referenced config and returns whether it had another.
fn authorize(entry: &mut Value, token: &str) -> bool {
    let wanted = json!({"name": AUTHORIZATION, "value": format!("{BEARER}{token}")});
    let Some(headers) = entry.get_mut("httpHeaders").and_then(Value::as_array_mut) else {
        entry["httpHeaders"] = json!([wanted]);
        return true;
    };
    if headers.contains(&wanted) {
        return false;
    }
    headers.retain(|header| !is_authorization(header));
    headers.push(wanted);
    true
}

fn is_authorization(header: &Value) -> bool {
    let name = header.get("name").and_then(Value::as_str);
    name.is_some_and(|name| name.eq_ignore_ascii_case(AUTHORIZATION))
}

#[cfg(test)]
mod tests {
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

    const URL: &str = "https://api-int.example.com:22623/config/worker";

    fn merging(version: &str, source: &str, headers: Option<Value>) -> Value {
        let mut entry = json!({"source": source});
        if let Some(headers) = headers {
            entry["httpHeaders"] = headers;
        }
        json!({"ignition": {"version": version, "config": {"merge": [entry]}}})
    }

    fn bearer(token: &str) -> Value {
        json!([{"name": "Authorization", "value": format!("Bearer {token}")}])
    }

    #[test]
    fn a_machine_whose_user_data_had_no_token_could_not_boot() {
        let token_of = |source: &str| (source == URL).then_some("new");
        let wanted = merging("3.2.0", URL, Some(bearer("new")));
        for (name, found, expected) in [
            ("no token", merging("3.2.0", URL, None), Some(&wanted)),
            (
                "an earlier token",
                merging("3.2.0", URL, Some(bearer("old"))),
                Some(&wanted),
            ),
            ("the present token", wanted.clone(), None),
            (
                "another server",
                merging("3.2.0", "https://elsewhere/config/worker", None),
                None,
            ),
            ("no pointer config", json!({"ignition": 3}), None),
        ] {
            let changed = with_token(&bytes(&found), token_of).unwrap();
            let changed = changed.map(|text| serde_json::from_slice::<Value>(&text).unwrap());
            assert_eq!(changed.as_ref(), expected, "{name}");
        }
        assert_eq!(token(&bytes(&wanted)).as_deref(), Some("new"));
        assert_eq!(token(&bytes(&merging("3.2.0", URL, None))), None);
        let others = json!([{"name": "X-Rack", "value": "7"}]);
        let changed = with_token(&bytes(&merging("3.2.0", URL, Some(others))), token_of).unwrap();
        let changed: Value = serde_json::from_slice(&changed.unwrap()).unwrap();
        assert_eq!(
            changed["ignition"]["config"]["merge"][0]["httpHeaders"],
            json!([{"name": "X-Rack", "value": "7"}, {"name": "Authorization", "value": "Bearer new"}])
        );
    }

    #[test]
    fn a_version_without_request_headers_is_reported_and_not_changed() {
        let old = json!({"ignition": {"version": "2.2.0", "config": {"append": [{"source": URL}]}}});
        for document in [old, merging("3.0.0", URL, None)] {
            assert!(with_token(&bytes(&document), |_| Some("new")).is_err());
            assert_eq!(with_token(&bytes(&document), |_| None), Ok(None));
        }
    }
}
