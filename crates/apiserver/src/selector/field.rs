//! Field selectors: equality on the fields that a kind supports.
//!
//! A selector is parsed for one kind and rejects unsupported fields, so that matching cannot fail.

use std::fmt;

use serde_json::Value;

use crate::kinds::{BuiltIn, KindScope, SelectableField, UnsupportedLabel};

/// The fields that a selector may use.
#[derive(Clone, Copy, Debug)]
pub enum SelectableFields<'a> {
    BuiltIn(&'static BuiltIn),
    /// A custom resource: its name, its namespace, and the `selectableFields` of its version.
    Custom {
        scope: KindScope,
        json_paths: &'a [String],
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

/// One comparison; a selector requires all of its comparisons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub label: String,
    pub operator: FieldOperator,
    pub value: String,
    source: SelectedField,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SelectedField {
    Known(SelectableField),
    /// A dotted path without its leading dot.
    Path(String),
}

/// A field selector for one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// The reason why a field selector was rejected: always 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Syntax { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    // Kubernetes prints the code point of the character here.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
    #[error("{0}")]
    Unsupported(String),
}

impl FieldSelector {
    /// Parses a selector (`metadata.name=a,spec.nodeName!=b`) for the fields of a kind.
    pub fn parse(text: &str, fields: SelectableFields<'_>) -> Result<Self, FieldSelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (label, operator, value) = split_term(part).ok_or_else(|| FieldSelectorError::Syntax {
                selector: text.to_owned(),
                term: part.to_owned(),
            })?;
            terms.push((label, operator, unescape(value)?));
        }
        let terms = terms
            .into_iter()
            .map(|(label, operator, value)| {
                Ok(FieldTerm {
                    label: label.to_owned(),
                    operator,
                    value,
                    source: fields.source(label)?,
                })
            })
            .collect::<Result<_, FieldSelectorError>>()?;
        Ok(Self { terms })
    }

    /// Returns whether this selector matches every object.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether an object in its stored form is selected.
    pub fn selects(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| {
            let equal = term.text(object) == term.value;
            equal == (term.operator == FieldOperator::Equals)
        })
    }

    /// Returns the only value of this field that the selector matches, if there is one.
    pub fn exact(&self, label: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.label == label && term.operator == FieldOperator::Equals)
            .map(|term| term.value.as_str())
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }
}

impl FieldTerm {
    fn text(&self, object: &Value) -> String {
        match &self.source {
            SelectedField::Known(field) => field.text(object),
            SelectedField::Path(path) => crate::kinds::text_at(object, path).unwrap_or_default(),
        }
    }
}

impl SelectableFields<'_> {
    fn source(self, label: &str) -> Result<SelectedField, FieldSelectorError> {
        let found = match self {
            Self::BuiltIn(kind) => kind
                .selectable
                .iter()
                .find(|field| field.label == label)
                .copied()
                .map(SelectedField::Known),
            Self::Custom { scope, json_paths } => {
                let own = label == "metadata.name"
                    || (scope == KindScope::Namespaced && label == "metadata.namespace")
                    || json_paths
                        .iter()
                        .any(|path| path.strip_prefix('.').unwrap_or(path) == label);
                own.then(|| SelectedField::Path(label.to_owned()))
            }
        };
        found.ok_or_else(|| {
            let refusal = match self {
                Self::BuiltIn(kind) => kind.unsupported_label,
                Self::Custom { .. } => UnsupportedLabel::Plain,
            };
            FieldSelectorError::Unsupported(refusal.message(label))
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let operator = if term.operator == FieldOperator::Equals {
                "="
            } else {
                "!="
            };
            write!(f, "{}{operator}{}", term.label, escape(&term.value))?;
        }
        Ok(())
    }
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator.
fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let at = term
        .char_indices()
        .find(|(at, c)| *c == '=' || term[*at..].starts_with("!="))?
        .0;
    let (label, rest) = term.split_at(at);
    let (operator, value) = if let Some(value) = rest.strip_prefix("!=") {
        (FieldOperator::NotEquals, value)
    } else {
        (
            FieldOperator::Equals,
            rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?,
        )
    };
    Some((label, operator, value))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(FieldSelectorError::Escape(format!("\\{other}"))),
                None => return Err(FieldSelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use proptest::prelude::*;
    use serde_json::json;

    fn pods() -> SelectableFields<'static> {
        SelectableFields::BuiltIn(kinds::by_kind("", "v1", "Pod").expect("pods are built in"))
    }

    #[test]
    fn selectors_on_pods_match_like_kubernetes() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"nodeName": "worker-1"},
            "status": {"phase": "Running"},
        });
        for (text, expected) in [
            ("", true),
            ("metadata.name=p", true),
            ("metadata.name==p", true),
            ("metadata.name!=p", false),
            ("spec.nodeName=worker-1,status.phase!=Failed", true),
            ("spec.nodeName=worker-1,status.phase!=Running", false),
            ("spec.schedulerName=", true),
            ("spec.hostNetwork=false", true),
            ("metadata.name=p,,", true),
        ] {
            let selector = FieldSelector::parse(text, pods()).expect(text);
            assert_eq!(selector.selects(&pod), expected, "{text}");
        }
    }

    #[test]
    fn custom_resources_offer_their_name_and_declared_fields() {
        let paths = vec![".spec.color".to_owned(), ".spec.size".to_owned()];
        let namespaced = SelectableFields::Custom {
            scope: KindScope::Namespaced,
            json_paths: &paths,
        };
        let cluster = SelectableFields::Custom {
            scope: KindScope::Cluster,
            json_paths: &paths,
        };
        let object = json!({"metadata": {"name": "a"}, "spec": {"color": "red", "size": 3}});
        for (text, expected) in [
            ("spec.color=red", true),
            ("spec.size=3", true),
            ("spec.size!=3", false),
        ] {
            assert_eq!(
                FieldSelector::parse(text, cluster).expect(text).selects(&object),
                expected,
                "{text}"
            );
        }
        assert!(FieldSelector::parse("metadata.namespace=x", namespaced).is_ok());
        for text in ["metadata.namespace=x", "spec.shape=x"] {
            let label = text.trim_end_matches("=x");
            let error = FieldSelector::parse(text, cluster).expect_err(text);
            assert_eq!(error.to_string(), format!("field label not supported: {label}"));
        }
    }

    #[test]
    fn bad_selectors_are_rejected_with_kubernetes_messages() {
        for (text, expected) in [
            (
                "metadata.name",
                "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
            ),
            (
                "metadata.name=a\\b",
                "invalid field selector: invalid escape sequence: \\b",
            ),
            (
                "metadata.name=a\\",
                "invalid field selector: invalid escape sequence: \\",
            ),
            (
                "metadata.name=a=b",
                "invalid field selector: unescaped character in value: 61",
            ),
            ("spec.color=x", "field label not supported: spec.color"),
        ] {
            assert_eq!(
                FieldSelector::parse(text, pods()).expect_err(text).to_string(),
                expected
            );
        }
    }

    #[test]
    fn a_pinned_name_can_be_read_from_the_selector() {
        let selector = FieldSelector::parse("metadata.name=n,status.phase!=Failed", pods()).expect("parses");
        assert_eq!(selector.exact("metadata.name"), Some("n"));
        assert_eq!(selector.exact("status.phase"), None);
    }

    proptest! {
        #[test]
        fn any_value_survives_printing_and_parsing(value in "\\PC{0,20}") {
            let text = format!("metadata.name={}", escape(&value));
            let selector = FieldSelector::parse(&text, pods());
            prop_assert_eq!(selector.as_ref().ok().and_then(|s| s.exact("metadata.name")), Some(value.as_str()));
        }
    }
}
