//! ClusterImagePolicy and ImagePolicy: which signatures images must carry.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// Signatures that images must carry everywhere in the cluster.
    ClusterImagePolicy, ClusterResourceScope, "config.openshift.io" / "v1", "clusterimagepolicies",
    spec: ImagePolicySpec,
    status: ImagePolicyStatus,
    unknown fields kept in extra
}

resource! {
    /// Signatures that images must carry in one namespace.
    ImagePolicy, NamespaceResourceScope, "config.openshift.io" / "v1", "imagepolicies",
    spec: ImagePolicySpec,
    status: ImagePolicyStatus,
    unknown fields kept in extra
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImagePolicySpec {
    /// Registries and repositories, or all registries of a domain, that the policy is for.
    #[serde(deserialize_with = "null_is_default")]
    pub scopes: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub policy: SignaturePolicy,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Who must have signed an image, and as what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SignaturePolicy {
    #[serde(deserialize_with = "null_is_default")]
    pub root_of_trust: RootOfTrust,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_identity: Option<SignedIdentity>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Who must have signed an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RootOfTrust {
    /// `PublicKey`, `FulcioCAWithRekor` or `PKI`.
    #[serde(deserialize_with = "null_is_default")]
    pub policy_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<PublicKey>,
    #[serde(rename = "fulcioCAWithRekor", skip_serializing_if = "Option::is_none")]
    pub fulcio_ca_with_rekor: Option<FulcioCaWithRekor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pki: Option<PolicyPki>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A key that must have signed an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublicKey {
    pub key_data: ByteString,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekor_key_data: Option<ByteString>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A certificate authority for short-lived keys, and the log that signatures are in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FulcioCaWithRekor {
    #[serde(rename = "fulcioCAData")]
    pub fulcio_ca_data: ByteString,
    pub rekor_key_data: ByteString,
    #[serde(deserialize_with = "null_is_default")]
    pub fulcio_subject: FulcioSubject,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The identity that a short-lived key was issued to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FulcioSubject {
    #[serde(rename = "oidcIssuer", deserialize_with = "null_is_default")]
    pub oidc_issuer: String,
    #[serde(deserialize_with = "null_is_default")]
    pub signed_email: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Certificate authorities of the user's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPki {
    #[serde(rename = "caRootsData")]
    pub ca_roots_data: ByteString,
    #[serde(rename = "caIntermediatesData", skip_serializing_if = "Option::is_none")]
    pub ca_intermediates_data: Option<ByteString>,
    #[serde(deserialize_with = "null_is_default")]
    pub pki_certificate_subject: PkiCertificateSubject,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The identity that a signing certificate must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PkiCertificateSubject {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub email: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub hostname: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The identity that an image must be signed with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SignedIdentity {
    /// `MatchRepoDigestOrExact`, `MatchRepository`, `ExactRepository` or `RemapIdentity`.
    #[serde(rename = "matchPolicy", deserialize_with = "null_is_default")]
    pub match_policy: String,
    #[serde(rename = "exactRepository", skip_serializing_if = "Option::is_none")]
    pub exact_repository: Option<ExactRepository>,
    #[serde(rename = "remapIdentity", skip_serializing_if = "Option::is_none")]
    pub remap_identity: Option<RemapIdentity>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The repository that an image must have been signed as.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExactRepository {
    #[serde(deserialize_with = "null_is_default")]
    pub repository: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Repositories below `prefix` must have been signed as if they were below `signed_prefix`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemapIdentity {
    #[serde(deserialize_with = "null_is_default")]
    pub prefix: String,
    #[serde(deserialize_with = "null_is_default")]
    pub signed_prefix: String,
    #[serde(flatten)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImagePolicyStatus {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    #[serde(flatten)]
    pub extra: Extra,
}
