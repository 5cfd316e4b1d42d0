//! Label selectors with Kubernetes semantics.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use thiserror::Error;

/// A valid, parsed label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<SelectorRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SelectorRequirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectorError {
    #[error(
        "matchExpressions[{index}]: {operator:?} is not a valid label selector operator; use In, NotIn, Exists or DoesNotExist"
    )]
    UnknownOperator { index: usize, operator: String },
    #[error("matchExpressions[{index}]: operator {operator} on {key:?} needs at least one value")]
    MissingValues {
        index: usize,
        operator: String,
        key: String,
    },
    #[error("matchExpressions[{index}]: operator {operator} on {key:?} takes no values")]
    UnexpectedValues {
        index: usize,
        operator: String,
        key: String,
    },
}

impl Selector {
    pub fn parse(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let exact = selector.match_labels.iter().flatten();
        let mut requirements: Vec<SelectorRequirement> = exact
            .map(|(key, value)| SelectorRequirement {
                key: key.clone(),
                test: Test::In(vec![value.clone()]),
            })
            .collect();
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            requirements.push(requirement(index, expression)?);
        }
        Ok(Self { requirements })
    }

    /// Whether the selector is empty. In Kubernetes an empty selector matches everything; callers here treat it
    /// differently, so they must check.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns a label key that every selected object must have, if the selector requires one.
    pub fn needed_label(&self) -> Option<&str> {
        let needed = self
            .requirements
            .iter()
            .find(|requirement| matches!(requirement.test, Test::In(_) | Test::Exists));
        needed.map(|requirement| requirement.key.as_str())
    }

    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let value_of = |key: &str| labels.and_then(|labels| labels.get(key));
        self.requirements.iter().all(|requirement| {
            let value = value_of(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }
}

fn requirement(
    index: usize,
    expression: &LabelSelectorRequirement,
) -> Result<SelectorRequirement, SelectorError> {
    let key = expression.key.clone();
    let operator = expression.operator.clone();
    let values = expression.values.clone().unwrap_or_default();
    let test = match (operator.as_str(), values.is_empty()) {
        ("In" | "NotIn", true) => return Err(SelectorError::MissingValues { index, operator, key }),
        ("Exists" | "DoesNotExist", false) => {
            return Err(SelectorError::UnexpectedValues { index, operator, key });
        }
        ("In", false) => Test::In(values),
        ("NotIn", false) => Test::NotIn(values),
        ("Exists", true) => Test::Exists,
        ("DoesNotExist", true) => Test::DoesNotExist,
        _ => return Err(SelectorError::UnknownOperator { index, operator }),
    };
    Ok(SelectorRequirement { key, test })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn selects_as_kubernetes_does() {
        let infra = labels(&[("role", "infra"), ("zone", "a")]);
        let cases = [
            ("nothing required", json!({}), true),
            ("an equal label", json!({"matchLabels": {"role": "infra"}}), true),
            ("another value", json!({"matchLabels": {"role": "worker"}}), false),
            (
                "one of several values",
                json!({"matchExpressions": [{"key": "role", "operator": "In", "values": ["worker", "infra"]}]}),
                true,
            ),
            (
                "NotIn with the value",
                json!({"matchExpressions": [{"key": "role", "operator": "NotIn", "values": ["infra"]}]}),
                false,
            ),
            (
                "NotIn of a missing key",
                json!({"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["x"]}]}),
                true,
            ),
            (
                "Exists",
                json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}),
                true,
            ),
            (
                "DoesNotExist",
                json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}),
                false,
            ),
            (
                "labels and expressions together",
                json!({"matchLabels": {"role": "infra"}, "matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}),
                false,
            ),
        ];
        for (name, selector, expected) in cases {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(
                Selector::parse(&selector).unwrap().matches(Some(&infra)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        for expression in [
            json!({"key": "a", "operator": "in", "values": ["x"]}),
            json!({"key": "a", "operator": "In"}),
            json!({"key": "a", "operator": "Exists", "values": ["x"]}),
        ] {
            let selector: LabelSelector =
                serde_json::from_value(json!({"matchExpressions": [expression]})).unwrap();
            assert!(Selector::parse(&selector).is_err());
        }
    }
}
