//! Per-node values: placeholders in the contents of files, and what they stand for on one node.
//!
//! There is no control flow. A placeholder names a fact of the Node object, so that its value can be explained and
//! compared without asking the node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::annotations::VALUE_PREFIX;
use thiserror::Error;

/// How every placeholder begins.
const OPENING: &str = "${node.";
/// Stands for the literal text of [`OPENING`].
const ESCAPED: &str = "$${node.";
/// A prefix of 253 bytes, a slash and a name of 63.
const LONGEST_KEY: usize = 317;
const INTERNAL_IP: &str = "InternalIP";

/// A fact of a Node that a placeholder may name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueName {
    Name,
    InternalAddress,
    Label(String),
    /// The whole key, which begins with [`VALUE_PREFIX`].
    Annotation(String),
}

impl fmt::Display for ValueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("node.name"),
            Self::InternalAddress => f.write_str("node.address.internal"),
            Self::Label(key) => write!(f, "node.label[{key:?}]"),
            Self::Annotation(key) => write!(f, "node.annotation[{key:?}]"),
        }
    }
}

impl FromStr for ValueName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "node.name" => return Ok(Self::Name),
            "node.address.internal" => return Ok(Self::InternalAddress),
            _ => {}
        }
        if let Some(key) = quoted(text, "node.label[") {
            return check_key(key).map(|()| Self::Label(key.to_owned()));
        }
        if let Some(key) = quoted(text, "node.annotation[") {
            check_key(key)?;
            if !key.starts_with(VALUE_PREFIX) {
                return Err(format!("only annotations {VALUE_PREFIX}... are values of a node"));
            }
            return Ok(Self::Annotation(key.to_owned()));
        }
        Err(format!(
            "unknown; use node.name, node.address.internal, node.label[\"KEY\"] or node.annotation[\"{VALUE_PREFIX}KEY\"]"
        ))
    }
}

fn quoted<'t>(text: &'t str, opening: &str) -> Option<&'t str> {
    text.strip_prefix(opening)?
        .strip_suffix(']')?
        .strip_prefix('"')?
        .strip_suffix('"')
}

fn check_key(key: &str) -> Result<(), String> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
    if key.is_empty() || key.len() > LONGEST_KEY || !key.chars().all(allowed) {
        return Err(format!("{key:?} is not the key of a label or an annotation"));
    }
    Ok(())
}

/// Why the contents of a file are not a template. The contents are not shown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {placeholder}: {why}")]
pub struct TemplateError {
    pub line: usize,
    pub placeholder: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart<'t> {
    Text(&'t str),
    Value(ValueName),
}

/// The contents of a file with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueTemplate<'t> {
    parts: Vec<TemplatePart<'t>>,
}

/// Whether contents have a placeholder, or an escaped one.
pub fn is_template(text: &str) -> bool {
    text.contains(OPENING)
}

impl<'t> ValueTemplate<'t> {
    pub fn parse(text: &'t str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find(OPENING) {
            let (before, placeholder) = rest.split_at(start);
            if let Some(literal) = before.strip_suffix('$') {
                parts.push(TemplatePart::Text(literal));
                let (opening, after) = placeholder.split_at(OPENING.len());
                parts.push(TemplatePart::Text(opening));
                rest = after;
                continue;
            }
            parts.push(TemplatePart::Text(before));
            let line = 1 + text.len().saturating_sub(rest.len()) + start;
            let line = 1 + text.get(..line - 1).unwrap_or_default().matches('\n').count();
            let refuse = |placeholder: &str, why: String| TemplateError {
                line,
                placeholder: placeholder.to_owned(),
                why,
            };
            let of_line = placeholder.lines().next().unwrap_or_default();
            let end = of_line
                .find('}')
                .ok_or_else(|| refuse(OPENING, "it has no closing brace".to_owned()))?;
            let (whole, _) = placeholder.split_at(end + 1);
            let name = placeholder.get(2..end).unwrap_or_default();
            parts.push(TemplatePart::Value(
                name.parse().map_err(|why| refuse(whole, why))?,
            ));
            rest = placeholder.get(end + 1..).unwrap_or_default();
        }
        parts.push(TemplatePart::Text(rest));
        Ok(Self { parts })
    }

    /// Returns the names of all values that it needs.
    pub fn names(&self) -> BTreeSet<&ValueName> {
        let values = self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(_) => None,
            TemplatePart::Value(name) => Some(name),
        });
        values.collect()
    }

    /// Returns the contents on a node, or the values that it does not have.
    pub fn expand(&self, values: &NodeValues) -> Result<String, BTreeSet<&ValueName>> {
        let missing: BTreeSet<&ValueName> = self
            .names()
            .into_iter()
            .filter(|name| values.get(name).is_none())
            .collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        let text = |part: &TemplatePart<'t>| match part {
            TemplatePart::Text(text) => (*text).to_owned(),
            TemplatePart::Value(name) => values.get(name).unwrap_or_default().to_owned(),
        };
        Ok(self.parts.iter().map(text).collect())
    }
}

/// Returns text so that no part of it is taken for a placeholder.
pub fn escape(text: &str) -> String {
    text.replace(OPENING, ESCAPED)
}

/// The values of one node, by the names of [`ValueName`].
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct NodeValues(BTreeMap<String, String>);

impl NodeValues {
    /// Returns those of these values that the node has.
    pub fn of_node<'n>(node: &Node, names: impl IntoIterator<Item = &'n ValueName>) -> Self {
        let found = names
            .into_iter()
            .filter_map(|name| Some((name.to_string(), value_of(node, name)?)));
        Self(found.collect())
    }

    pub fn get(&self, name: &ValueName) -> Option<&str> {
        self.0.get(&name.to_string()).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<const N: usize> From<[(ValueName, &str); N]> for NodeValues {
    fn from(values: [(ValueName, &str); N]) -> Self {
        Self(
            values
                .map(|(name, value)| (name.to_string(), value.to_owned()))
                .into(),
        )
    }
}

/// Returns a value. One with a line break or another control character could add lines to a file, and does not count.
fn value_of(node: &Node, name: &ValueName) -> Option<String> {
    let metadata = &node.metadata;
    let found = match name {
        ValueName::Name => metadata.name.as_ref(),
        ValueName::Label(key) => metadata.labels.as_ref()?.get(key),
        ValueName::Annotation(key) => metadata.annotations.as_ref()?.get(key),
        ValueName::InternalAddress => {
            let addresses = node.status.as_ref()?.addresses.as_ref()?;
            let mut internal = addresses.iter().filter(|address| address.type_ == INTERNAL_IP);
            internal.next().map(|address| &address.address)
        }
    };
    found
        .filter(|value| !value.chars().any(char::is_control))
        .cloned()
}

/// Returns what is to be done about a missing value of a node.
pub fn remedy(name: &ValueName, node: &str) -> String {
    match name {
        ValueName::Name => "the Node has no name".to_owned(),
        ValueName::InternalAddress => {
            format!(
                "node {node} has no address of type {INTERNAL_IP} yet; its kubelet or cloud provider reports it"
            )
        }
        ValueName::Label(key) => {
            format!("node {node} has no label {key}; set it with: kubectl label node {node} {key}=VALUE")
        }
        ValueName::Annotation(key) => format!(
            "node {node} has no annotation {key} of one line; set it with: kubectl annotate node {node} {key}=VALUE"
        ),
    }
}
