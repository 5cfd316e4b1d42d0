//! The kubelet's credential providers, from the cluster's CRIOCredentialProviderConfig: for matching images the
//! kubelet calls CRI-O's own provider, in addition to the platform's.
//!
//! An image that matches the platform's provider stays with it, so overlapping patterns are ignored and reported.

mod pattern;
mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::vocabulary::names;
use serde_json::{Value, json};
use thiserror::Error;

use crate::config::go_duration;
use crate::config::goyaml;
use crate::config::manifest;
use crate::generators::generated::{Generated, GeneratedConfigSpec, GeneratedFile};
use pattern::ImagePattern;

pub use status::{CredentialProviderOutcome, conditions};

/// The feature gate that enables this.
pub const FEATURE_GATE: &str = "CRIOCredentialProviderConfig";

const PROVIDER: &str = "crio-credential-provider";
const DROPIN: &str = "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf";
const FLAGS: &str = "KUBELET_CRIO_IMAGE_CREDENTIAL_PROVIDER_FLAGS";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CredentialProviderError {
    #[error("invalid matchImages value(s) [{}], must be a valid fully qualified domain name in lowercase with optional wildcard, port, and path", quoted(.0))]
    Patterns(Vec<String>),
    #[error("the templates' {path}: {message}")]
    Base { path: String, message: String },
}

/// The credential provider files for the nodes of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialProviderFiles {
    pub files: Vec<GeneratedFile>,
    /// Names of patterns that overlap with the platform's own.
    pub ignored: Vec<String>,
}

/// Returns the name of a platform's own provider; `None` if the platform has none.
pub fn of_platform(platform: &str) -> Option<&'static str> {
    match platform {
        "AWS" => Some("ecr"),
        "Azure" => Some("acr"),
        "GCP" => Some("gcr"),
        _ => None,
    }
}

/// Returns the kubelet's flags for the providers in a platform's file.
pub fn flags(provider: &str) -> String {
    format!(
        "--image-credential-provider-bin-dir=/usr/libexec/kubelet-image-credential-provider-plugins \
         --image-credential-provider-config={}",
        path(provider)
    )
}

fn path(provider: &str) -> String {
    format!("/etc/kubernetes/credential-providers/{provider}-credential-provider.yaml")
}

/// Returns the files for the nodes of one pool. `base` returns the template's file at a path.
pub fn files<'b>(
    config: &CRIOCredentialProviderConfig,
    platform: &str,
    base: impl FnOnce(&str) -> Option<&'b str>,
) -> Result<CredentialProviderFiles, CredentialProviderError> {
    let mut wanted = config.spec.match_images.clone();
    wanted.sort_unstable();
    wanted.dedup();
    let (valid, invalid): (Vec<String>, Vec<String>) =
        wanted.into_iter().partition(|text| ImagePattern::is_valid(text));
    if !invalid.is_empty() {
        return Err(CredentialProviderError::Patterns(invalid));
    }
    let own = of_platform(platform);
    let path = path(own.unwrap_or("generic"));
    let mut document = match base(&path).filter(|_| own.is_some()) {
        Some(text) => read(&path, text)?,
        None => json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}),
    };
    let known = known_patterns(&document);
    let overlaps = |text: &String| {
        let pattern = ImagePattern::parse(text);
        known
            .iter()
            .any(|known| pattern.overlaps(&ImagePattern::parse(known)))
    };
    let (ignored, applied): (Vec<String>, Vec<String>) = valid.into_iter().partition(overlaps);
    if applied.is_empty() {
        return Ok(CredentialProviderFiles {
            files: Vec::new(),
            ignored,
        });
    }
    add(&mut document, &applied);
    let mut files = vec![GeneratedFile::new(path, goyaml::to_string(&document))];
    if own.is_none() {
        let dropin = format!("[Service]\nEnvironment=\"{FLAGS}={}\"\n", flags("generic"));
        files.push(GeneratedFile::new(DROPIN, dropin));
    }
    Ok(CredentialProviderFiles { files, ignored })
}

/// Generates the MachineConfig with those files for one pool.
pub fn generate(
    pool: &str,
    files: Vec<GeneratedFile>,
    version: &str,
    owner: Option<OwnerReference>,
) -> Generated {
    GeneratedConfigSpec {
        name: names::generated_credential_provider(pool),
        role: pool,
        files,
        version: Some(version),
        owner,
        made_from: "the cluster's CRIOCredentialProviderConfig".to_owned(),
        ..GeneratedConfigSpec::default()
    }
    .build()
}

/// Parses the platform's own providers and formats durations as Go does.
fn read(path: &str, text: &str) -> Result<Value, CredentialProviderError> {
    let wrong = |message: String| CredentialProviderError::Base {
        path: path.to_owned(),
        message,
    };
    let mut document = manifest::value(text).map_err(wrong)?;
    let Some(members) = document.as_object_mut() else {
        return Err(wrong("it is no object".to_owned()));
    };
    let providers = members.get_mut("providers").and_then(Value::as_array_mut);
    for provider in providers.into_iter().flatten() {
        if let Some(cache) = provider.get_mut("defaultCacheDuration")
            && let Some(nanos) = cache.as_str().and_then(go_duration::parse)
        {
            *cache = Value::String(go_duration::format(nanos));
        }
    }
    Ok(document)
}

fn known_patterns(document: &Value) -> Vec<String> {
    let providers = document.get("providers").and_then(Value::as_array);
    let patterns = providers
        .into_iter()
        .flatten()
        .filter_map(|provider| provider.get("matchImages")?.as_array())
        .flatten();
    patterns
        .filter_map(|pattern| pattern.as_str().map(str::to_owned))
        .collect()
}

fn add(document: &mut Value, images: &[String]) {
    let provider = json!({
        "name": PROVIDER,
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "matchImages": images,
        "defaultCacheDuration": "1s",
        "tokenAttributes": {
            "cacheType": "Token",
            "requireServiceAccount": false,
            "serviceAccountTokenAudience": "https://kubernetes.default.svc",
        },
    });
    match document.get_mut("providers").and_then(Value::as_array_mut) {
        Some(providers) => providers.push(provider),
        None => document["providers"] = json!([provider]),
    }
}

fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(images: &[&str]) -> CRIOCredentialProviderConfig {
        serde_json::from_value(json!({"metadata": {"name": "cluster"}, "spec": {"matchImages": images}}))
            .unwrap()
    }

    const GCR: &str = "\
kind: CredentialProviderConfig
apiVersion: kubelet.config.k8s.io/v1
providers:
  - name: gcr-credential-provider
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    matchImages:
      - \"gcr.io\"
      - \"*.gcr.io\"
    defaultCacheDuration: \"1m\"
    args:
      - get-credentials
      - --v=3
";

    #[test]
    fn the_platforms_provider_comes_first_and_cri_os_own_beside_it() {
        let images = [
            "quay.io",
            "registry.example.com:5000",
            "*.example.io",
            "docker.io",
        ];
        let asked = |path: &str| {
            assert_eq!(
                path,
                "/etc/kubernetes/credential-providers/gcr-credential-provider.yaml"
            );
            Some(GCR)
        };
        let made = files(&config(&images), "GCP", asked).unwrap();
        assert_eq!(made.ignored, [""; 0]);
        let [file] = made.files.as_slice() else {
            panic!("{:?}", made.files)
        };
        assert_eq!(
            file.path,
            "/etc/kubernetes/credential-providers/gcr-credential-provider.yaml"
        );
        assert_eq!(
            file.contents,
            "\
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- apiVersion: credentialprovider.kubelet.k8s.io/v1
  args:
  - get-credentials
  - --v=3
  defaultCacheDuration: 1m0s
  matchImages:
  - gcr.io
  - '*.gcr.io'
  name: gcr-credential-provider
- apiVersion: credentialprovider.kubelet.k8s.io/v1
  defaultCacheDuration: 1s
  matchImages:
  - '*.example.io'
  - docker.io
  - quay.io
  - registry.example.com:5000
  name: crio-credential-provider
  tokenAttributes:
    cacheType: Token
    requireServiceAccount: false
    serviceAccountTokenAudience: https://kubernetes.default.svc
"
        );
    }

    #[test]
    fn a_platform_without_a_provider_gets_a_file_and_the_flags_for_it() {
        let made = files(&config(&["quay.io"]), "BareMetal", |_| None).unwrap();
        let paths: Vec<&str> = made.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/etc/kubernetes/credential-providers/generic-credential-provider.yaml",
                "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf"
            ]
        );
        assert!(made.files[0].contents.starts_with(
            "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- apiVersion"
        ));
        assert_eq!(
            made.files[1].contents,
            "[Service]\nEnvironment=\"KUBELET_CRIO_IMAGE_CREDENTIAL_PROVIDER_FLAGS=--image-credential-provider-bin-dir=/usr/libexec/kubelet-image-credential-provider-plugins --image-credential-provider-config=/etc/kubernetes/credential-providers/generic-credential-provider.yaml\"\n"
        );
    }

    #[test]
    fn what_the_platform_knows_stays_with_it() {
        let made = |images: &[&str]| files(&config(images), "GCP", |_| Some(GCR)).unwrap();
        let some = made(&["us.gcr.io", "gcr.io/team", "quay.io"]);
        assert_eq!(some.ignored, ["gcr.io/team", "us.gcr.io"]);
        assert!(
            some.files[0].contents.contains("  - quay.io\n") && !some.files[0].contents.contains("us.gcr.io")
        );
        for (name, images) in [
            ("all overlap", &["gcr.io", "*.gcr.io"][..]),
            ("nothing is asked for", &[]),
        ] {
            let none = made(images);
            assert_eq!(none.files, [], "{name}");
            assert_eq!(none.ignored.len(), images.len(), "{name}");
        }
    }

    #[test]
    fn invalid_patterns_and_templates_are_reported() {
        let wrong = files(&config(&["quay.io", "*", "Quay.io", "f*o.io"]), "GCP", |_| None).unwrap_err();
        assert_eq!(
            wrong,
            CredentialProviderError::Patterns(vec![
                "*".to_owned(),
                "Quay.io".to_owned(),
                "f*o.io".to_owned()
            ])
        );
        for text in ["{", "- a"] {
            let found = files(&config(&["quay.io"]), "AWS", |_| Some(text));
            assert!(
                matches!(found, Err(CredentialProviderError::Base { .. })),
                "{text}: {found:?}"
            );
        }
        let fresh = files(&config(&["quay.io"]), "AWS", |_| None).unwrap();
        assert_eq!(
            fresh.files.len(),
            1,
            "a tree without the platform's file is no obstacle"
        );
    }

    #[test]
    fn the_machine_config_has_its_fixed_name_and_may_be_empty() {
        let made = generate("worker", Vec::new(), "v1", None);
        assert_eq!(made.name(), "97-worker-generated-credentialproviderconfig");
        assert_eq!(
            made.config.spec.config,
            Some(json!({"ignition": {"version": "3.5.0"}}))
        );
    }
}
