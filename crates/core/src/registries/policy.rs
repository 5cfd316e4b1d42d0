//! `policy.json`: which images are accepted, by registry and by signature.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::ByteString;
use mco_api::foreign::image_policy::{SignaturePolicy, SignedIdentity};
use serde_json::{Map, Value, json};

use super::RegistryProblem;

/// Requirements on images, by scope.
pub(super) type Requirements = BTreeMap<String, Vec<Value>>;

/// The `atomic` transport does not know scopes this deep.
const DEEPEST_ATOMIC_SCOPE: usize = 3;

/// What goes into a policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wishes<'a> {
    pub blocked: &'a [String],
    pub allowed: &'a [String],
    /// From ClusterImagePolicies.
    pub signatures: &'a Requirements,
}

/// The template's policy with the wishes in it.
pub(super) fn with_wishes(template: &str, wishes: Wishes<'_>) -> Result<String, RegistryProblem> {
    let mut policy = read(template)?;
    let mut scopes = Requirements::new();
    if !wishes.allowed.is_empty() {
        policy.insert("default".to_owned(), json!([reject()]));
        let unsigned = wishes
            .allowed
            .iter()
            .filter(|s| !wishes.signatures.contains_key(*s));
        scopes.extend(unsigned.map(|scope| (scope.clone(), vec![accept()])));
    }
    if !wishes.blocked.is_empty() {
        policy.insert("default".to_owned(), json!([accept()]));
        scopes.extend(wishes.blocked.iter().map(|scope| (scope.clone(), vec![reject()])));
    }
    add(&mut scopes, wishes.signatures);
    lay(&mut policy, &scopes);
    Ok(write(policy))
}

/// A cluster's policy with one namespace's requirements added.
pub(super) fn with_namespace(cluster: &str, requirements: &Requirements) -> Result<String, RegistryProblem> {
    let mut policy = read(cluster)?;
    let docker = policy
        .get("transports")
        .and_then(|t| t.get("docker"))
        .and_then(Value::as_object);
    let mut scopes: Requirements = docker
        .into_iter()
        .flatten()
        .map(|(scope, list)| (scope.clone(), list.as_array().cloned().unwrap_or_default()))
        .collect();
    add(&mut scopes, requirements);
    lay(&mut policy, &scopes);
    Ok(write(policy))
}

fn add(scopes: &mut Requirements, more: &Requirements) {
    for (scope, requirements) in more {
        scopes
            .entry(scope.clone())
            .or_default()
            .extend(requirements.iter().cloned());
    }
}

fn lay(policy: &mut Map<String, Value>, scopes: &Requirements) {
    let shallow: Requirements = scopes
        .iter()
        .filter(|(scope, _)| scope.matches('/').count() < DEEPEST_ATOMIC_SCOPE)
        .map(|(scope, requirements)| (scope.clone(), requirements.clone()))
        .collect();
    let transports = policy.entry("transports").or_insert_with(|| json!({}));
    transports["docker"] = json!(scopes);
    transports["atomic"] = json!(shallow);
}

fn read(template: &str) -> Result<Map<String, Value>, RegistryProblem> {
    let value: Value = serde_json::from_str(template).map_err(|error| RegistryProblem::Base {
        file: super::POLICY_JSON,
        message: error.to_string(),
    })?;
    match value {
        Value::Object(map) if map.get("transports").is_none_or(Value::is_object) => Ok(map),
        _ => Err(RegistryProblem::Base {
            file: super::POLICY_JSON,
            message: "not a signature policy".to_owned(),
        }),
    }
}

fn write(policy: Map<String, Value>) -> String {
    serde_json::to_string_pretty(&sorted(Value::Object(policy))).unwrap_or_default()
}

/// The same value with the keys of every object in order, whatever order the JSON library keeps them in.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(map) => {
            let ordered: BTreeMap<String, Value> = map.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(ordered.into_iter().collect())
        }
        other => other,
    }
}

fn accept() -> Value {
    json!({"type": "insecureAcceptAnything"})
}

fn reject() -> Value {
    json!({"type": "reject"})
}

/// The requirement that a signature policy stands for.
pub(super) fn requirement(object: &str, policy: &SignaturePolicy) -> Result<Value, RegistryProblem> {
    let wrong = |message: &str| RegistryProblem::SignaturePolicy {
        object: object.to_owned(),
        message: message.to_owned(),
    };
    let root = &policy.root_of_trust;
    let mut requirement = json!({
        "type": "sigstoreSigned",
        "signedIdentity": identity(policy.signed_identity.as_ref()).map_err(|message| wrong(&message))?,
    });
    match root.policy_type.as_str() {
        "PublicKey" => {
            let key = root
                .public_key
                .as_ref()
                .ok_or_else(|| wrong("publicKey is missing"))?;
            requirement["keyData"] = encoded(&key.key_data);
            if let Some(rekor) = key.rekor_key_data.as_ref().filter(|data| !data.0.is_empty()) {
                requirement["rekorPublicKeyData"] = encoded(rekor);
            }
        }
        "FulcioCAWithRekor" => {
            let fulcio = root
                .fulcio_ca_with_rekor
                .as_ref()
                .ok_or_else(|| wrong("fulcioCAWithRekor is missing"))?;
            requirement["fulcio"] = json!({
                "caData": encoded(&fulcio.fulcio_ca_data),
                "oidcIssuer": fulcio.fulcio_subject.oidc_issuer,
                "subjectEmail": fulcio.fulcio_subject.signed_email,
            });
            requirement["rekorPublicKeyData"] = encoded(&fulcio.rekor_key_data);
        }
        "PKI" => {
            let pki = root.pki.as_ref().ok_or_else(|| wrong("pki is missing"))?;
            let mut data = json!({"caRootsData": encoded(&pki.ca_roots_data)});
            if let Some(intermediates) = pki
                .ca_intermediates_data
                .as_ref()
                .filter(|data| !data.0.is_empty())
            {
                data["caIntermediatesData"] = encoded(intermediates);
            }
            let subject = &pki.pki_certificate_subject;
            for (key, value) in [
                ("subjectEmail", &subject.email),
                ("subjectHostname", &subject.hostname),
            ] {
                if !value.is_empty() {
                    data[key] = json!(value);
                }
            }
            requirement["pki"] = data;
        }
        other => return Err(wrong(&format!("policyType {other:?} is not supported"))),
    }
    Ok(requirement)
}

fn identity(identity: Option<&SignedIdentity>) -> Result<Value, String> {
    let Some(identity) = identity else {
        return Ok(json!({"type": "matchRepoDigestOrExact"}));
    };
    match identity.match_policy.as_str() {
        "" | "MatchRepoDigestOrExact" => Ok(json!({"type": "matchRepoDigestOrExact"})),
        "MatchRepository" => Ok(json!({"type": "matchRepository"})),
        "ExactRepository" => {
            let exact = identity
                .exact_repository
                .as_ref()
                .ok_or("exactRepository is missing")?;
            Ok(json!({"type": "exactRepository", "dockerRepository": exact.repository}))
        }
        "RemapIdentity" => {
            let remap = identity
                .remap_identity
                .as_ref()
                .ok_or("remapIdentity is missing")?;
            Ok(json!({"type": "remapIdentity", "prefix": remap.prefix, "signedPrefix": remap.signed_prefix}))
        }
        other => Err(format!("matchPolicy {other:?} is not supported")),
    }
}

fn encoded(data: &ByteString) -> Value {
    json!(BASE64.encode(&data.0))
}
