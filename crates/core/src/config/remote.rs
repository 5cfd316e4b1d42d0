//! Remote contents of MachineConfigs: which references a config has, and how fetched contents replace them.
//!
//! Nothing is fetched here. The controllers and the command line fetch what a [`Resolution`] lists, and resolve again.
//! A reference needs a hash, so contents are identified by it: they are fetched once, and a config whose contents are
//! embedded is the config that has them as data URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mco_ignition::model::{Resource, Verification};
use mco_ignition::resource::{self, DecodeError};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::config::applicability::LARGEST_CONTENTS;
use crate::config::hex;
use crate::config::merge::to_value;
use crate::config::node_files::SecretVersions;
use crate::config::problem::Problem;

/// The largest response that is fetched. Embedded as base64 it nearly fills an object of the API server.
pub const LARGEST_REMOTE: usize = 1 << 20;
/// Configs that a config may refer to, directly and through others.
const MOST_CONFIGS: usize = 32;
/// How deep configs may refer to others.
const DEEPEST_CONFIG: usize = 8;

const NO_HASH_HINT: &str = "mco validate --resolve prints the hash of the contents; review them and paste it";

/// The identity of contents: their hash after decompression, and the compression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentKey {
    /// As in `verification.hash`.
    pub hash: String,
    /// `gzip` or empty.
    pub compression: String,
}

impl ContentKey {
    /// Verifies fetched bytes, as Ignition does: the hash is that of the decompressed contents.
    pub fn verify(&self, contents: &[u8]) -> Result<(), DecodeError> {
        let resource = Resource {
            compression: Some(self.compression.clone()),
            source: Some(data_url(contents)),
            verification: Verification {
                hash: Some(self.hash.clone()),
            },
            ..Resource::default()
        };
        resource::verify(&resource, LARGEST_CONTENTS)
    }
}

/// Returns the hash of contents as `verification.hash` has it.
pub fn hash_of(contents: &[u8], compression: &str) -> Result<String, DecodeError> {
    let contents = resource::decode(Some(&data_url(contents)), Some(compression), LARGEST_CONTENTS)?;
    Ok(format!("sha256-{}", hex::encode(&Sha256::digest(contents))))
}

fn data_url(contents: &[u8]) -> String {
    format!("data:;base64,{}", STANDARD.encode(contents))
}

/// Request headers, which may hold credentials: they are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RequestHeaders(pub Vec<(String, String)>);

impl fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} headers", self.0.len())
    }
}

/// A reference to contents that have to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteReference {
    /// The field path of the resource, such as `spec.config.storage.files[0].contents`.
    pub field: String,
    /// The path of the file.
    pub subject: Option<String>,
    pub url: String,
    pub compression: String,
    /// `None` if the config names no hash, so that the contents are refused.
    pub key: Option<ContentKey>,
    pub headers: RequestHeaders,
}

impl RemoteReference {
    /// Returns the URL without what may be a credential: the user and the query.
    pub fn shown_url(&self) -> String {
        shown_url(&self.url)
    }

    fn problem(&self, field: &str, message: impl Into<String>) -> Problem {
        let problem = Problem::new(format!("{}.{field}", self.field), message);
        match &self.subject {
            Some(subject) => problem.about(subject.clone()),
            None => problem,
        }
    }

    /// Returns why the reference can never be embedded.
    fn refusal(&self) -> Option<Problem> {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        if !scheme.eq_ignore_ascii_case("https") {
            return Some(
                self.problem(
                    "source",
                    format!("{scheme} contents are not fetched, only https ones"),
                )
                .with_hint("use an https URL, or embed the contents as a data URL (\"data:;base64,...\")"),
            );
        }
        let authority = self.url.split('/').nth(2).unwrap_or_default();
        if authority.contains('@') {
            return Some(self.problem("source", "the URL contains a user or a password"));
        }
        self.key.is_none().then(|| {
            self.problem(
                "verification.hash",
                format!("{} is not fetched without a hash", self.shown_url()),
            )
            .with_hint(NO_HASH_HINT)
        })
    }
}

/// Returns a URL without user and query.
pub fn shown_url(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => plain.to_owned(),
    }
}

/// What is known about contents that a config refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentState {
    Available(Arc<Vec<u8>>),
    /// Why the last attempt to fetch them failed.
    Failed(String),
}

/// Contents by identity; those that are not listed are not fetched yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteContents {
    contents: BTreeMap<ContentKey, ContentState>,
    /// The versions of the Secrets whose values nodes have in files.
    pub secrets: SecretVersions,
}

impl RemoteContents {
    /// Returns the contents with these versions of Secrets.
    #[must_use]
    pub fn with_secrets(self, secrets: SecretVersions) -> Self {
        Self { secrets, ..self }
    }

    /// Adds contents that have the hash of the key; others are refused.
    pub fn add(&mut self, key: ContentKey, contents: Arc<Vec<u8>>) -> Result<(), DecodeError> {
        key.verify(&contents)?;
        self.contents.insert(key, ContentState::Available(contents));
        Ok(())
    }

    /// Adds the state of contents that were verified before.
    pub fn set(&mut self, key: ContentKey, state: ContentState) {
        self.contents.insert(key, state);
    }
}

/// What the references of one config resolve to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// All references that were found. More may be found in a config that is not fetched yet.
    pub references: Vec<RemoteReference>,
    /// The config with all contents embedded; `None` if it has no reference, or if there are problems.
    pub embedded: Option<Value>,
    /// The config with all files that nodes have, if some of them are not among the files of the rendered config.
    pub validated: Option<Value>,
    /// References that are refused, and fetched configs that are invalid.
    pub refused: Vec<Problem>,
    /// Contents that are not available.
    pub missing: Vec<Problem>,
    /// Whether an attempt to fetch any of the missing contents has failed.
    pub failed: bool,
}

impl Resolution {
    /// Whether all that is wrong is that contents are not fetched yet.
    pub fn is_pending(&self) -> bool {
        self.refused.is_empty() && !self.missing.is_empty() && !self.failed
    }
}

/// Resolves the references of an Ignition config.
pub fn resolve(config: &Value, contents: &RemoteContents) -> Resolution {
    if !has_references(config) {
        return Resolution::default();
    }
    let mut resolver = Resolver {
        contents,
        result: Resolution::default(),
        configs: 0,
    };
    let embedded = resolver.document(config, "spec.config", 0);
    let mut result = resolver.result;
    let complete = result.refused.is_empty() && result.missing.is_empty();
    result.embedded = embedded.filter(|_| complete);
    result
}

/// Returns the problems of `ignition.config` sections that a render passes on to the first boot, as the reference
/// implementation does, and that therefore have no effect on a running node.
pub fn unverified_configs(config: &Value) -> Vec<Problem> {
    let references = unverified_references(config);
    references.iter().filter_map(RemoteReference::refusal).collect()
}

/// Returns the references of `ignition.config` sections that have no hash.
pub fn unverified_references(config: &Value) -> Vec<RemoteReference> {
    let mut references = config_references(config, "spec.config");
    references.retain(|reference| is_remote(&reference.url) && reference.key.is_none());
    references
}

fn is_remote(source: &str) -> bool {
    !source.is_empty() && !source.starts_with("data:")
}

/// Whether a config refers to anything that is fetched.
fn has_references(config: &Value) -> bool {
    let files = config.pointer("/storage/files").and_then(Value::as_array);
    let mut files = files.into_iter().flatten();
    files.any(|file| {
        file.pointer("/contents/source")
            .and_then(Value::as_str)
            .is_some_and(is_remote)
    }) || has_verified_config(config)
}

/// Whether a config merges or is replaced by another one whose hash it has. One without any hash is passed on.
fn has_verified_config(config: &Value) -> bool {
    config_references(config, "")
        .iter()
        .any(|reference| is_remote(&reference.url) && reference.key.is_some())
}

fn config_references(config: &Value, path: &str) -> Vec<RemoteReference> {
    let section = config.pointer("/ignition/config");
    let replace = section.and_then(|section| section.get("replace"));
    let replace = replace.map(|entry| (format!("{path}.ignition.config.replace"), entry));
    let merge = section
        .and_then(|section| section.get("merge"))
        .and_then(Value::as_array);
    let merge = merge
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, entry)| (format!("{path}.ignition.config.merge[{index}]"), entry));
    let all = replace.into_iter().chain(merge);
    all.filter_map(|(field, entry)| reference(entry, field, None))
        .collect()
}

/// Reads a resource; `None` if it has no source.
fn reference(entry: &Value, field: String, subject: Option<String>) -> Option<RemoteReference> {
    let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str);
    let url = text("/source").filter(|source| !source.is_empty())?;
    let compression = text("/compression").unwrap_or_default().to_owned();
    let hash = text("/verification/hash").filter(|hash| !hash.is_empty());
    let headers = entry.get("httpHeaders").and_then(Value::as_array);
    let headers = headers.into_iter().flatten().filter_map(|header| {
        let part = |key: &str| header.get(key).and_then(Value::as_str).map(str::to_owned);
        Some((part("name")?, part("value")?))
    });
    Some(RemoteReference {
        field,
        subject,
        url: url.to_owned(),
        key: hash.map(|hash| ContentKey {
            hash: hash.to_owned(),
            compression: compression.clone(),
        }),
        compression,
        headers: RequestHeaders(headers.collect()),
    })
}

struct Resolver<'a> {
    contents: &'a RemoteContents,
    result: Resolution,
    /// Configs that were read so far.
    configs: usize,
}

impl Resolver<'_> {
    /// Returns the document with everything embedded; `None` if anything is missing or refused.
    fn document(&mut self, raw: &Value, path: &str, depth: usize) -> Option<Value> {
        // A config that is fetched is resolved in full. In the MachineConfig itself, a section that has no hash at all
        // is passed on.
        let resolves = depth > 0 || has_verified_config(raw);
        let references = if resolves {
            config_references(raw, path)
        } else {
            Vec::new()
        };
        if raw.pointer("/ignition/config/replace/source").is_some() && !references.is_empty() {
            // Nothing else of the document counts.
            return self.config(references.first()?, depth);
        }
        let mut document = raw.clone();
        let complete = self.files(&mut document, path);
        let document = if references.is_empty() {
            document
        } else {
            self.merged(document, references, path, depth)?
        };
        complete.then_some(document)
    }

    /// Embeds the contents of files. Returns false if any of them is missing or refused.
    fn files(&mut self, document: &mut Value, path: &str) -> bool {
        let files = document
            .pointer_mut("/storage/files")
            .and_then(Value::as_array_mut);
        let mut complete = true;
        for (index, file) in files.into_iter().flatten().enumerate() {
            let subject = file.get("path").and_then(Value::as_str).map(str::to_owned);
            let Some(resource) = file.get_mut("contents") else {
                continue;
            };
            let field = format!("{path}.storage.files[{index}].contents");
            let Some(reference) =
                reference(resource, field, subject).filter(|reference| is_remote(&reference.url))
            else {
                continue;
            };
            match (self.fetched(reference), resource) {
                (Some(contents), Value::Object(resource)) => embed(resource, &contents),
                _ => complete = false,
            }
        }
        complete
    }

    /// Merges the configs that a document refers to: as Ignition does, each overrides what is before.
    fn merged(
        &mut self,
        mut document: Value,
        references: Vec<RemoteReference>,
        path: &str,
        depth: usize,
    ) -> Option<Value> {
        if let Some(ignition) = document.get_mut("ignition").and_then(Value::as_object_mut) {
            ignition.remove("config");
        }
        let children: Vec<(RemoteReference, Option<Value>)> = references
            .into_iter()
            .map(|reference| {
                let config = self.config(&reference, depth);
                (reference, config)
            })
            .collect();
        let mut merged = match mco_ignition::parse(&document) {
            Ok(parsed) => parsed.config,
            Err(error) => {
                self.result
                    .refused
                    .push(Problem::new(path.to_owned(), error.to_string()));
                return None;
            }
        };
        for (reference, child) in children {
            match mco_ignition::parse(&child?) {
                Ok(parsed) => merged = mco_ignition::merge(merged, parsed.config, &mut ()),
                Err(error) => {
                    let message = format!("the config of {} is not valid: {error}", reference.shown_url());
                    self.result.refused.push(reference.problem("source", message));
                    return None;
                }
            }
        }
        Some(to_value(&merged))
    }

    /// Returns a config that another one refers to, with everything embedded.
    fn config(&mut self, reference: &RemoteReference, depth: usize) -> Option<Value> {
        self.configs += 1;
        if self.configs > MOST_CONFIGS || depth >= DEEPEST_CONFIG {
            let message = format!(
                "configs refer to more than {MOST_CONFIGS} others, or more than {DEEPEST_CONFIG} levels deep"
            );
            self.result.refused.push(reference.problem("source", message));
            return None;
        }
        let url = if is_remote(&reference.url) {
            data_url(&self.fetched(reference.clone())?)
        } else {
            reference.url.clone()
        };
        let read = resource::decode(Some(&url), Some(&reference.compression), LARGEST_REMOTE * 4)
            .map_err(|error| error.to_string())
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).map_err(|error| error.to_string()));
        match read {
            Ok(document) => self.document(&document, &reference.field, depth + 1),
            Err(why) => {
                let message = format!("the config of {} cannot be read: {why}", reference.shown_url());
                self.result.refused.push(reference.problem("source", message));
                None
            }
        }
    }

    /// Returns fetched contents, or records why there are none.
    fn fetched(&mut self, reference: RemoteReference) -> Option<Arc<Vec<u8>>> {
        let found = match (reference.refusal(), &reference.key) {
            (None, Some(key)) => match self.contents.contents.get(key) {
                Some(ContentState::Available(contents)) => Some(Arc::clone(contents)),
                Some(ContentState::Failed(why)) => {
                    self.result.failed = true;
                    let message = format!("{} cannot be fetched: {why}", reference.shown_url());
                    self.result.missing.push(reference.problem("source", message));
                    None
                }
                None => {
                    let message = format!("{} is not fetched yet", reference.shown_url());
                    self.result.missing.push(reference.problem("source", message));
                    None
                }
            },
            (refusal, _) => {
                self.result.refused.extend(refusal);
                None
            }
        };
        self.result.references.push(reference);
        found
    }
}

/// Replaces the source by the contents. Compression and hash stay: they are those of the contents.
fn embed(resource: &mut Map<String, Value>, contents: &[u8]) {
    resource.insert("source".to_owned(), Value::String(data_url(contents)));
    resource.remove("httpHeaders");
}
