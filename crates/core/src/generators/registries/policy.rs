//! `policy.json`: which images are accepted, by registry and by signature.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::ByteString;
use mco_api::foreign::image_policy::{SignaturePolicy, SignedIdentity};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{RegistryProblem, reference, scope};
use crate::generators::generated::json_text;

/// Requirements on images, by scope.
pub(super) type Requirements = BTreeMap<String, Vec<Value>>;

/// Maximum depth of a scope that the `atomic` transport supports.
const DEEPEST_ATOMIC_SCOPE: usize = 3;

/// The settings that are applied to a policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wishes<'a> {
    pub blocked: &'a [String],
    pub allowed: &'a [String],
    /// From ClusterImagePolicies.
    pub signatures: &'a Requirements,
}

/// Returns the template's policy with the settings applied.
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

/// Returns the cluster's policy with one namespace's requirements added.
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
    json_text::indented(&InGoOrder {
        value: &Value::Object(policy),
        shape: PolicyShape::Map,
    })
}

/// The fields of a requirement and of everything inside one, in the order that Go declares and therefore writes them.
const FIELDS: [&str; 27] = [
    "type",
    "keyType",
    "keyPath",
    "keyPaths",
    "keyData",
    "keyDatas",
    "fulcio",
    "rekorPublicKeyPath",
    "rekorPublicKeyPaths",
    "rekorPublicKeyData",
    "rekorPublicKeyDatas",
    "pki",
    "signedIdentity",
    "baseLayerIdentity",
    "caPath",
    "caData",
    "oidcIssuer",
    "caRootsPath",
    "caRootsData",
    "caIntermediatesPath",
    "caIntermediatesData",
    "subjectEmail",
    "subjectHostname",
    "dockerReference",
    "dockerRepository",
    "prefix",
    "signedPrefix",
];

/// The Go type of a JSON object in a policy: a map, whose keys are sorted, or a struct, whose fields have an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyShape {
    Map,
    Structure,
}

/// A policy, or a part of one, that serializes its keys in Go's order.
struct InGoOrder<'v> {
    value: &'v Value,
    shape: PolicyShape,
}

impl Serialize for InGoOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = |value, shape| InGoOrder { value, shape };
        match self.value {
            // Only requirements occur in lists, and they are structs down to their leaves.
            Value::Array(items) => {
                serializer.collect_seq(items.iter().map(|item| part(item, PolicyShape::Structure)))
            }
            Value::Object(map) => {
                let rank = |key: &str| match self.shape {
                    PolicyShape::Map => FIELDS.len(),
                    PolicyShape::Structure => FIELDS
                        .iter()
                        .position(|field| *field == key)
                        .unwrap_or(FIELDS.len()),
                };
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                entries.sort_by_key(|(key, _)| (rank(key), *key));
                serializer.collect_map(
                    entries
                        .into_iter()
                        .map(|(key, value)| (key, part(value, self.shape))),
                )
            }
            leaf => leaf.serialize(serializer),
        }
    }
}

fn accept() -> Value {
    json!({"type": "insecureAcceptAnything"})
}

fn reject() -> Value {
    json!({"type": "reject"})
}

/// Returns the requirement for a signature policy.
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
            requirement["keyData"] = given("keyData", &key.key_data).map_err(|message| wrong(&message))?;
            if let Some(rekor) = key.rekor_key_data.as_ref().filter(|data| !data.0.is_empty()) {
                requirement["rekorPublicKeyData"] = encoded(rekor);
            }
        }
        "FulcioCAWithRekor" => {
            let fulcio = root
                .fulcio_ca_with_rekor
                .as_ref()
                .ok_or_else(|| wrong("fulcioCAWithRekor is missing"))?;
            let subject = &fulcio.fulcio_subject;
            for (name, value) in [
                ("oidcIssuer", &subject.oidc_issuer),
                ("signedEmail", &subject.signed_email),
            ] {
                if value.is_empty() {
                    return Err(wrong(&format!("{name} is missing")));
                }
            }
            requirement["fulcio"] = json!({
                "caData": given("fulcioCAData", &fulcio.fulcio_ca_data).map_err(|message| wrong(&message))?,
                "oidcIssuer": subject.oidc_issuer,
                "subjectEmail": subject.signed_email,
            });
            requirement["rekorPublicKeyData"] =
                given("rekorKeyData", &fulcio.rekor_key_data).map_err(|message| wrong(&message))?;
        }
        "PKI" => {
            let pki = root.pki.as_ref().ok_or_else(|| wrong("pki is missing"))?;
            let roots = given("caRootsData", &pki.ca_roots_data).map_err(|message| wrong(&message))?;
            let mut data = json!({ "caRootsData": roots });
            if let Some(intermediates) = pki
                .ca_intermediates_data
                .as_ref()
                .filter(|data| !data.0.is_empty())
            {
                data["caIntermediatesData"] = encoded(intermediates);
            }
            let subject = &pki.pki_certificate_subject;
            if subject.email.is_empty() && subject.hostname.is_empty() {
                return Err(wrong("pkiCertificateSubject needs an email or a hostname"));
            }
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
        "MatchRepoDigestOrExact" => Ok(json!({"type": "matchRepoDigestOrExact"})),
        "MatchRepository" => Ok(json!({"type": "matchRepository"})),
        "ExactRepository" => {
            let exact = identity
                .exact_repository
                .as_ref()
                .ok_or("exactRepository is missing")?;
            if !reference::is_completable(&exact.repository) {
                return Err(format!(
                    "signedIdentity: exactRepository {:?} is not a repository",
                    exact.repository
                ));
            }
            Ok(json!({"type": "exactRepository", "dockerRepository": exact.repository}))
        }
        "RemapIdentity" => {
            let remap = identity
                .remap_identity
                .as_ref()
                .ok_or("remapIdentity is missing")?;
            for (name, prefix) in [("prefix", &remap.prefix), ("signedPrefix", &remap.signed_prefix)] {
                if !scope::is_valid_mirror(prefix) {
                    return Err(format!(
                        "signedIdentity: remapIdentity.{name} {prefix:?} is not a registry or repository without tag and digest"
                    ));
                }
            }
            Ok(json!({"type": "remapIdentity", "prefix": remap.prefix, "signedPrefix": remap.signed_prefix}))
        }
        other => Err(format!("matchPolicy {other:?} is not supported")),
    }
}

/// Returns mandatory data of a policy, base64-encoded; an error if it is empty.
fn given(name: &str, data: &ByteString) -> Result<Value, String> {
    if data.0.is_empty() {
        return Err(format!("{name} is missing"));
    }
    Ok(encoded(data))
}

fn encoded(data: &ByteString) -> Value {
    json!(BASE64.encode(&data.0))
}
