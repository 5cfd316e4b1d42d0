//! Generates the registry configuration of nodes: `registries.conf`, `policy.json`, signature lookup and the search
//! list, from the cluster's Image, mirror and signature objects.
//!
//! The same for every pool except for the base files. No registry is contacted.

mod admit;
mod conf;
mod edit;
mod lookup;
mod mirror_files;
mod mirrors;
mod payload;
mod policy;
mod reference;
mod scope;
mod sigstore;
mod sources;
mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::foreign::image::Image;
use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use mco_api::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use mco_api::vocabulary::names;
use thiserror::Error;

use crate::config::feature_gates::FeatureGates;
use crate::generators::base_refusal::BaseRefusal;
use crate::generators::generated::{Generated, GeneratedConfigSpec, GeneratedFile};
use conf::RegistriesConf;
use mirrors::MirrorRules;
use policy::Wishes;
use reference::RegistryReference;
use sigstore::Signatures;

pub use admit::{admit_content_policy, admit_digest_mirrors, admit_policy, admit_tag_mirrors};
pub use mirror_files::mirror_files;
pub use sigstore::PolicyConflict;
pub use sources::pull_sources;
pub use status::policy_conditions;

pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";
pub const POLICY_JSON: &str = "/etc/containers/policy.json";
const SIGSTORE_REGISTRIES: &str = "/etc/containers/registries.d/sigstore-registries.yaml";
const NAMESPACE_POLICIES: &str = "/etc/crio/policies";
const SEARCH_REGISTRIES: &str = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf";
/// The feature gate without which image policies have no effect.
const SIGSTORE_GATE: &str = "SigstoreImageVerification";

/// The objects that determine the registry configuration.
#[derive(Debug, Clone, Copy)]
pub struct RegistryInputs<'a> {
    pub image: Option<&'a Image>,
    pub digest_mirrors: &'a [ImageDigestMirrorSet],
    pub tag_mirrors: &'a [ImageTagMirrorSet],
    pub content_policies: &'a [ImageContentSourcePolicy],
    pub cluster_policies: &'a [ClusterImagePolicy],
    pub policies: &'a [ImagePolicy],
    pub feature_gates: &'a FeatureGates,
    /// The image of the cluster's release; empty if there is none to protect.
    pub release_image: &'a str,
}

/// The template's files that the settings are applied to.
#[derive(Debug, Clone, Copy)]
pub struct BaseFiles<'a> {
    pub registries_conf: &'a str,
    pub policy_json: &'a str,
}

/// The generated files, and warnings for the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryFiles {
    pub files: Vec<GeneratedFile>,
    pub warnings: Vec<String>,
    pub conflicts: Vec<PolicyConflict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegistryProblem {
    #[error("Image \"cluster\": invalid entry for {list} registries {entry:?}")]
    Entry { list: &'static str, entry: String },
    #[error("{object}: invalid format for source {mirrored:?}")]
    SourceFormat { object: String, mirrored: String },
    #[error("{object}: invalid format for mirror {mirror:?}")]
    MirrorFormat { object: String, mirror: String },
    #[error(
        "{} and {}: conflicting mirrorSourcePolicy is set for the same source {mirrored:?} in imagedigestmirrorsets, \
         imagetagmirrorsets, or imagecontentsourcepolicies", .objects[0], .objects[1]
    )]
    ConflictingPolicy { objects: [String; 2], mirrored: String },
    #[error(
        "{object}: cannot set mirrorSourcePolicy: NeverContactSource if the source {mirrored:?} is one of the mirrors"
    )]
    SourceIsMirror { object: String, mirrored: String },
    #[error(
        "{object}: the mirrors of {mirrored:?} cannot be used for {inner:?}, which has settings of its own (blocked or insecure): \
         mirrors of a wildcard cannot be repeated for a part of it"
    )]
    WildcardMirrors {
        object: String,
        mirrored: String,
        inner: String,
    },
    #[error("image policy scope {scope:?}: its images cannot be looked up in registries.conf: {message}")]
    ScopeMirrors { scope: String, message: String },
    #[error(
        "Image \"cluster\": invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified"
    )]
    AllowedAndBlocked,
    #[error("error parsing reference of release image {0:?}")]
    ReleaseImage(String),
    #[error("{kind} configured for the scope {scope} is not nested inside allowedRegistries")]
    ScopeNotAllowed { kind: &'static str, scope: String },
    #[error("{kind} configured for the scope {scope} is nested inside blockedRegistries")]
    ScopeBlocked { kind: &'static str, scope: String },
    #[error("{object}: {message}")]
    SignaturePolicy { object: String, message: String },
    #[error("could not generate origin ContainerRuntime Configs: {file}: {message}")]
    Base { file: &'static str, message: String },
    #[error(transparent)]
    Refused(#[from] BaseRefusal),
}

/// All problems of the cluster's registry settings.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct RegistryError(pub Vec<RegistryProblem>);

/// Returns the files that the objects require; a file without any setting is omitted.
pub fn files(sources: &RegistryInputs<'_>, base: BaseFiles<'_>) -> Result<RegistryFiles, RegistryError> {
    let rules = MirrorRules::gather(sources);
    let mut problems = rules.check();
    let registry_sources = sources.image.map(|image| &image.spec.registry_sources);
    let list = |pick: fn(&mco_api::foreign::image::RegistrySources) -> &Vec<String>| {
        registry_sources
            .map(|sources| pick(sources).as_slice())
            .unwrap_or_default()
    };
    let insecure = list(|s| &s.insecure_registries);
    let blocked = list(|s| &s.blocked_registries);
    let allowed = list(|s| &s.allowed_registries);
    let search = list(|s| &s.container_runtime_search_registries);
    for (name, entries) in [("insecure", insecure), ("blocked", blocked), ("allowed", allowed)] {
        let wrong = entries.iter().filter(|entry| !scope::is_valid_entry(entry));
        problems.extend(wrong.map(|entry| RegistryProblem::Entry {
            list: name,
            entry: entry.clone(),
        }));
    }
    let payload = release_repository(sources).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let lists = payload::protect(payload, insecure, blocked, allowed, &rules.digest);
    let only_the_release =
        matches!(lists.allowed.as_slice(), [one] if payload.is_some_and(|payload| payload.name == one));
    if !lists.allowed.is_empty() && !lists.policy_blocked.is_empty() && !only_the_release {
        problems.push(RegistryProblem::AllowedAndBlocked);
    }
    let signatures = if sources.feature_gates.is_enabled(SIGSTORE_GATE) {
        Signatures::gather(sources.cluster_policies, sources.policies)
    } else {
        Signatures::default()
    };
    problems.extend(signatures.problems.iter().cloned());
    problems.extend(signatures.check(&lists.allowed, &lists.policy_blocked));
    let mirrored = !sources.digest_mirrors.is_empty()
        || !sources.tag_mirrors.is_empty()
        || !sources.content_policies.is_empty();
    let assembly = Assembly {
        base,
        insecure,
        search,
        mirrored,
        rules: &rules,
        lists: &lists,
        signatures: &signatures,
    };
    match (assembly.files(), problems.is_empty()) {
        (Ok(files), true) => Ok(RegistryFiles {
            files,
            warnings: warnings(&lists),
            conflicts: signatures.conflicts,
        }),
        (Ok(_), false) => Err(RegistryError(problems)),
        (Err(problem), _) => {
            problems.push(problem);
            Err(RegistryError(problems))
        }
    }
}

/// Generates the MachineConfig with those files for one pool.
pub fn generate(
    pool: &str,
    files: Vec<GeneratedFile>,
    version: Option<&str>,
    owner: Option<OwnerReference>,
) -> Generated {
    GeneratedConfigSpec {
        name: names::generated_registries(pool),
        role: pool,
        files,
        version,
        owner,
        made_from: "the cluster's Image, mirror and signature settings".to_owned(),
        ..GeneratedConfigSpec::default()
    }
    .build()
}

fn release_repository<'a>(
    sources: &RegistryInputs<'a>,
) -> Result<Option<RegistryReference<'a>>, RegistryProblem> {
    let image = sources.release_image;
    if image.is_empty() || sources.image.is_none() {
        return Ok(None);
    }
    RegistryReference::qualified(image)
        .map(Some)
        .ok_or_else(|| RegistryProblem::ReleaseImage(image.to_owned()))
}

fn warnings(lists: &payload::Lists) -> Vec<String> {
    if let Some(problem) = &lists.unknown {
        return vec![format!(
            "Image \"cluster\": blockedRegistries are ignored, because one of them contains the release and it cannot be \
             determined where the release is pulled from: {problem}"
        )];
    }
    if lists.refused.is_empty() {
        return Vec::new();
    }
    let refused: Vec<String> = lists.refused.iter().map(|entry| format!("{entry:?}")).collect();
    vec![format!(
        "Image \"cluster\": error adding [{}] to blocked registries, cannot block the repository being used by the payload",
        refused.join(" ")
    )]
}

/// All inputs of the files.
struct Assembly<'a> {
    base: BaseFiles<'a>,
    insecure: &'a [String],
    search: &'a [String],
    mirrored: bool,
    rules: &'a MirrorRules,
    lists: &'a payload::Lists,
    signatures: &'a Signatures,
}

impl Assembly<'_> {
    fn files(&self) -> Result<Vec<GeneratedFile>, RegistryProblem> {
        let mut files = Vec::new();
        let edited = self.mirrored || !self.insecure.is_empty() || !self.lists.blocked.is_empty();
        let conf = if edited {
            Some(self.registries_conf()?)
        } else {
            None
        };
        if let Some(conf) = &conf {
            files.push(GeneratedFile::new(REGISTRIES_CONF, conf.write()));
        }
        if !self.lists.policy_blocked.is_empty()
            || !self.lists.allowed.is_empty()
            || !self.signatures.is_empty()
        {
            self.policies(conf.as_ref(), &mut files)?;
        }
        if !self.search.is_empty() {
            let search = RegistriesConf {
                unqualified_search: Some(self.search.to_vec()),
                ..RegistriesConf::default()
            };
            files.push(GeneratedFile::new(SEARCH_REGISTRIES, search.write()));
        }
        Ok(files)
    }

    fn registries_conf(&self) -> Result<RegistriesConf, RegistryProblem> {
        let mut conf =
            RegistriesConf::read(self.base.registries_conf).map_err(|message| RegistryProblem::Base {
                file: REGISTRIES_CONF,
                message,
            })?;
        edit::edit(
            &mut conf,
            self.insecure,
            &self.lists.blocked,
            &self.rules.digest,
            &self.rules.tag,
        )
        .map_err(|problem| self.rules.explain(problem))?;
        Ok(conf)
    }

    fn policies(
        &self,
        conf: Option<&RegistriesConf>,
        files: &mut Vec<GeneratedFile>,
    ) -> Result<(), RegistryProblem> {
        let wishes = Wishes {
            blocked: &self.lists.policy_blocked,
            allowed: &self.lists.allowed,
            signatures: &self.signatures.cluster,
        };
        let only_namespaces =
            wishes.blocked.is_empty() && wishes.allowed.is_empty() && wishes.signatures.is_empty();
        let cluster = if only_namespaces {
            self.base.policy_json.to_owned()
        } else {
            policy::with_wishes(self.base.policy_json, wishes)?
        };
        files.push(GeneratedFile::new(POLICY_JSON, cluster.clone()));
        if self.signatures.is_empty() {
            return Ok(());
        }
        files.push(GeneratedFile::new(
            SIGSTORE_REGISTRIES,
            self.signatures.registries_d(conf)?,
        ));
        for (namespace, requirements) in &self.signatures.namespaces {
            let contents = policy::with_namespace(&cluster, requirements)?;
            files.push(GeneratedFile::new(
                format!("{NAMESPACE_POLICIES}/{namespace}.json"),
                contents,
            ));
        }
        Ok(())
    }
}
