//! Secrets that RolloutPolicies name.
//!
//! A policy names a Secret and the address that it is sent to, so without the consent of the Secret's owner a writer of
//! policies could read every Secret that the controller can.

use k8s_openapi::api::core::v1::Secret;
use mco_api::vocabulary::labels::ROLLOUT_POLICY;

/// Returns the value of a key, if the Secret is labelled for policies and the value is one line.
pub(crate) fn value(secret: Secret, key: &str) -> Result<String, String> {
    let labels = secret.metadata.labels.unwrap_or_default();
    if labels.get(ROLLOUT_POLICY).map(String::as_str) != Some("true") {
        return Err(format!(
            "RolloutPolicies may use it only with label {ROLLOUT_POLICY}=true"
        ));
    }
    let value = secret.data.and_then(|mut data| data.remove(key));
    let value = value.ok_or_else(|| format!("it has no key {key}"))?;
    let text = String::from_utf8(value.0).map_err(|_| format!("key {key} is not text"))?;
    let text = text.trim();
    if text.contains(['\n', '\r']) {
        return Err(format!("key {key} has more than one line"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_writer_of_policies_could_send_every_secret_anywhere() {
        let read = |labels: serde_json::Value, text: &[u8]| {
            let mut secret: Secret = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            let data = k8s_openapi::ByteString(text.to_vec());
            secret.data = Some([("token".to_owned(), data)].into());
            value(secret, "token")
        };
        let refused = "RolloutPolicies may use it only with label mco.dev/rollout-policy=true";
        let labelled = || json!({"mco.dev/rollout-policy": "true"});
        for (name, labels, text, expected) in [
            ("labelled", labelled(), b" abc\n".as_slice(), Ok("abc")),
            ("no label", json!({}), b"abc", Err(refused)),
            (
                "another value",
                json!({"mco.dev/rollout-policy": "false"}),
                b"abc",
                Err(refused),
            ),
            (
                "a private key",
                labelled(),
                b"-----BEGIN\nabc\n",
                Err("key token has more than one line"),
            ),
            (
                "a carriage return",
                labelled(),
                b"a\rb",
                Err("key token has more than one line"),
            ),
            ("no text", labelled(), b"\xff", Err("key token is not text")),
        ] {
            assert_eq!(
                read(labels, text),
                expected.map(str::to_owned).map_err(str::to_owned),
                "{name}"
            );
        }
    }
}
