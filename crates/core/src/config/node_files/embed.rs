//! How a source MachineConfig with Secrets or per-node values becomes one with lists.

use std::collections::BTreeMap;

use mco_api::vocabulary::annotations::{NODE_VALUES, SECRET_FILES};
use mco_ignition::Config;
use mco_ignition::model::File;
use serde::Deserialize;
use serde_json::Value;

use super::{
    DEFAULT_SECRET_MODE, FileMode, ListKind, OwnerName, SECRETS, SecretFile, SecretReference, SecretVersions,
    VALUES, ValueFile, ValueTemplate, is_template, ordinary,
};
use crate::config::diff;
use crate::config::merge::to_value;
use crate::config::problem::Problem;

/// Lists are read by root alone.
const LIST_MODE: FileMode = FileMode(0o600);
const OTHERS: u32 = 0o007;

/// A source with its annotations resolved.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Embedding {
    /// The config to render: with the lists, and without the files that they name.
    pub config: Option<Value>,
    /// The config to validate: with all files, as if they were ordinary.
    pub validated: Option<Value>,
    pub refused: Vec<Problem>,
    /// Values of Secrets that are not available.
    pub missing: Vec<Problem>,
}

/// An entry of the annotation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretEntry {
    path: String,
    secret: SecretReference,
    mode: Option<FileMode>,
    owner: Option<OwnerName>,
}

/// Resolves the annotations of a source; `None` if it has none, so that it renders as it always did.
pub(crate) fn embed(
    name: &str,
    annotations: Option<&BTreeMap<String, String>>,
    raw: Option<&Value>,
    versions: &SecretVersions,
) -> Option<Embedding> {
    let annotation = |key: &str| annotations?.get(key).filter(|value| !value.is_empty());
    let (secrets, values) = (annotation(SECRET_FILES), annotation(NODE_VALUES));
    if secrets.is_none() && values.is_none() {
        return None;
    }
    let mut result = Embedding::default();
    let mut config = match raw.filter(|raw| !raw.is_null()).map(mco_ignition::parse) {
        None => Config::default(),
        Some(Ok(parsed)) => parsed.config,
        // Reported with all other problems of the config.
        Some(Err(_)) => return Some(result),
    };
    let mut validated = config.clone();
    let values = values.map_or_else(Vec::new, |value| values_of(value, &mut config, &mut result));
    let secrets = secrets.map_or_else(Vec::new, |text| secrets_of(text, versions, &mut result));
    validated.storage.files.extend(
        secrets
            .iter()
            .map(|file| ordinary(&file.path, file.mode, &file.owner, "data:,".to_owned())),
    );
    result.validated = Some(to_value(&validated));
    if result.refused.is_empty() && result.missing.is_empty() {
        add_list(&mut config, &ListKind::Values.path(name), &values);
        add_list(&mut config, &ListKind::Secrets.path(name), &secrets);
        result.config = Some(to_value(&config));
    }
    Some(result)
}

fn add_list<T: serde::Serialize>(config: &mut Config, path: &str, list: &[T]) {
    if list.is_empty() {
        return;
    }
    let text = serde_json::to_vec(list).unwrap_or_default();
    let source = mco_ignition::resource::encode(&text);
    config
        .storage
        .files
        .push(ordinary(path, LIST_MODE, &OwnerName::default(), source));
}

/// Takes the files with placeholders out of a config.
fn values_of(enabled: &str, config: &mut Config, result: &mut Embedding) -> Vec<ValueFile> {
    if enabled != "true" {
        if enabled != "false" {
            let message = format!("{enabled:?} is neither \"true\" nor \"false\"");
            result.refused.push(Problem::new(field(NODE_VALUES), message));
        }
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut index = 0;
    config.storage.files.retain(|file| {
        let text = diff::file_bytes(file).and_then(|bytes| String::from_utf8(bytes).ok());
        let template = text.filter(|text| is_template(text));
        if let Some(contents) = &template {
            if let Err(error) = ValueTemplate::parse(contents) {
                let field = format!("spec.config.storage.files[{index}].contents");
                let problem = Problem::new(field, error.to_string()).about(file.path.clone());
                result
                    .refused
                    .push(problem.with_hint("write $${node.… where the text itself is wanted"));
            }
            found.push(value_file(file, contents.clone()));
        }
        index += 1;
        template.is_none()
    });
    refuse_units(config, result);
    found
}

fn value_file(file: &File, contents: String) -> ValueFile {
    let mode = u32::try_from(diff::mode_bits(file)).unwrap_or_default();
    ValueFile {
        path: file.path.clone(),
        mode: FileMode(mode),
        owner: OwnerName::of(file),
        contents,
    }
}

/// Units are read by other implementations too, and have specifiers of their own.
fn refuse_units(config: &Config, result: &mut Embedding) {
    for (index, unit) in config.systemd.units.iter().enumerate() {
        let dropins = unit.dropins.iter().map(|dropin| dropin.contents.as_deref());
        let mut texts = std::iter::once(unit.contents.as_deref()).chain(dropins).flatten();
        if texts.any(is_template) {
            let problem = Problem::new(
                format!("spec.config.systemd.units[{index}]"),
                "placeholders for values of the node are not expanded in units",
            );
            result.refused.push(
                problem
                    .about(unit.name.clone())
                    .with_hint("write them to a file, and name that in EnvironmentFile= of the unit"),
            );
        }
    }
}

fn secrets_of(text: &str, versions: &SecretVersions, result: &mut Embedding) -> Vec<SecretFile> {
    let entries: Vec<SecretEntry> = match parse(text) {
        Ok(entries) => entries,
        Err(problem) => {
            result.refused.push(problem);
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let at = |part: &str| format!("{}[{index}].{part}", field(SECRET_FILES));
        let mode = entry.mode.unwrap_or(FileMode(DEFAULT_SECRET_MODE));
        if mode.0 & OTHERS != 0 {
            let message = format!("{mode} lets every process on the node read the secret");
            let problem = Problem::new(at("mode"), message).about(entry.path.clone());
            result.refused.push(
                problem
                    .with_hint("use \"0640\" and the group that needs it as owner, such as \"root:chrony\""),
            );
        }
        let version = versions.get(&entry.secret).map(str::to_owned);
        if let Err(why) = &version {
            let problem = Problem::new(at("secret"), why.clone()).about(entry.path.clone());
            result.missing.push(problem);
        }
        files.push(SecretFile {
            path: entry.path,
            mode,
            owner: entry.owner.unwrap_or_default(),
            secret: entry.secret,
            version: version.unwrap_or_default(),
        });
    }
    files
}

fn parse(text: &str) -> Result<Vec<SecretEntry>, Problem> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed: Result<Vec<SecretEntry>, _> = serde_path_to_error::deserialize(&mut deserializer);
    let example = "a JSON list such as [{\"path\": \"/etc/example/token\", \"secret\": \"NAME/KEY\", \"mode\": \"0600\", \
                   \"owner\": \"root:root\"}]; mode and owner are optional";
    let entries = parsed.map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { path };
        Problem::new(format!("{}{at}", field(SECRET_FILES)), error.inner().to_string()).with_hint(example)
    })?;
    deserializer
        .end()
        .map_err(|error| Problem::new(field(SECRET_FILES), error.to_string()).with_hint(example))?;
    Ok(entries)
}

fn field(annotation: &str) -> String {
    format!("metadata.annotations[{annotation}]")
}

/// Returns a problem for each file that takes the place of a list.
pub(crate) fn reserved_paths(config: &Config) -> Vec<Problem> {
    let files = config.storage.files.iter().enumerate();
    let reserved = files.filter(|(_, file)| [SECRETS, VALUES].iter().any(|own| file.path.starts_with(own)));
    reserved
        .map(|(index, file)| {
            let field = format!("spec.config.storage.files[{index}].path");
            Problem::new(field, "the files of this directory are generated")
                .about(file.path.clone())
                .with_hint(format!("use the annotations {SECRET_FILES} and {NODE_VALUES}"))
        })
        .collect()
}
