//! Label selectors: requirements on keys and values, from the query string or from a `LabelSelector` object.

use std::fmt;

use serde_json::{Map, Value};

use super::label_parser;
use crate::field_error::{self, FieldError};
use crate::go_text;
use crate::names;

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One requirement; a selector requires all of its requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    pub key: String,
    pub operator: LabelOperator,
    /// Sorted and without duplicates if parsed from a query string.
    pub values: Vec<String>,
}

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelSelector {
    /// An absent selector object: selects no object at all.
    Nothing,
    /// All of these, ordered by key; none means every object.
    All(Vec<LabelRequirement>),
}

/// The reason why a selector was rejected: 400 in a query, 422 inside an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    #[error("{0}")]
    Syntax(String),
    #[error("{}", field_error::aggregate(.0))]
    Requirement(Vec<FieldError>),
    #[error("{} is not a valid label selector operator", go_text::quote(.0))]
    UnknownOperator(String),
}

impl LabelSelector {
    /// Returns the selector that matches every object.
    pub fn everything() -> Self {
        Self::All(Vec::new())
    }

    /// Parses the form used in query strings: `a=b,c in (d,e),!f,g`.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        let mut requirements = label_parser::parse(text)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self::All(requirements))
    }

    /// Parses a `LabelSelector` object (`matchLabels`, `matchExpressions`); `None` and null select nothing.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, LabelSelectorError> {
        let Some(Value::Object(selector)) = selector else {
            return Ok(Self::Nothing);
        };
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(LabelRequirement::new(key.clone(), LabelOperator::Equals, values)?);
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            requirements.push(LabelRequirement::from_expression(expression)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self::All(requirements))
    }

    /// Returns the selector for exactly these labels (`spec.selector` of a service).
    pub fn from_map(labels: &Map<String, Value>) -> Self {
        let mut requirements: Vec<_> = labels
            .iter()
            .map(|(key, value)| LabelRequirement {
                key: key.clone(),
                operator: LabelOperator::Equals,
                values: vec![value.as_str().unwrap_or_default().to_owned()],
            })
            .collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self::All(requirements)
    }

    /// Returns whether this selector matches every object.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// Returns whether an object with these labels (`metadata.labels`, possibly absent) is selected.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|requirement| {
                requirement.matches(
                    labels
                        .and_then(|map| map.get(&requirement.key))
                        .and_then(Value::as_str),
                )
            }),
        }
    }

    /// Returns whether a whole object is selected, by its `metadata.labels`.
    pub fn selects(&self, object: &Value) -> bool {
        self.matches(object.pointer("/metadata/labels").and_then(Value::as_object))
    }

    pub fn requirements(&self) -> &[LabelRequirement] {
        match self {
            Self::Nothing => &[],
            Self::All(requirements) => requirements,
        }
    }
}

impl LabelRequirement {
    /// Validates key, operator and values together.
    pub fn new(
        key: String,
        operator: LabelOperator,
        values: Vec<String>,
    ) -> Result<Self, LabelSelectorError> {
        let mut problems = Vec::new();
        let key_problems = names::label_key(&key);
        if !key_problems.is_empty() {
            problems.push(FieldError::invalid(
                "key",
                &Value::from(key.as_str()),
                &key_problems.join("; "),
            ));
        }
        if let Some(problem) = operator.refuse_count(&values) {
            problems.push(FieldError::invalid(
                "values",
                &Value::from(values.clone()),
                problem,
            ));
        }
        if matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan) {
            for (index, value) in values
                .iter()
                .enumerate()
                .filter(|(_, value)| value.parse::<i64>().is_err())
            {
                problems.push(FieldError::invalid(
                    format!("values[{index}]"),
                    &Value::from(value.as_str()),
                    "for 'Gt', 'Lt' operators, the value must be an integer",
                ));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let value_problems = names::label_value(value);
            if !value_problems.is_empty() {
                problems.push(FieldError::invalid(
                    format!("values[{index}][{key}]"),
                    &Value::from(value.as_str()),
                    &value_problems.join("; "),
                ));
            }
        }
        if problems.is_empty() {
            Ok(Self {
                key,
                operator,
                values,
            })
        } else {
            Err(LabelSelectorError::Requirement(problems))
        }
    }

    fn from_expression(expression: &Value) -> Result<Self, LabelSelectorError> {
        let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
        let operator = match text("operator") {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            other => return Err(LabelSelectorError::UnknownOperator(other.to_owned())),
        };
        let values = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|value| value.as_str().unwrap_or_default().to_owned())
            .collect();
        Self::new(text("key").to_owned(), operator, values)
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let has = |label: &str| self.values.iter().any(|value| value == label);
        match self.operator {
            LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => label.is_some_and(has),
            LabelOperator::NotEquals | LabelOperator::NotIn => !label.is_some_and(has),
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
            LabelOperator::GreaterThan => self.compares(label, |label, bound| label > bound),
            LabelOperator::LessThan => self.compares(label, |label, bound| label < bound),
        }
    }

    fn compares(&self, label: Option<&str>, relation: impl Fn(i64, i64) -> bool) -> bool {
        let label = label.and_then(|text| text.parse().ok());
        let bound = self.values.first().and_then(|text| text.parse().ok());
        matches!((label, bound), (Some(label), Some(bound)) if relation(label, bound))
    }
}

impl LabelOperator {
    fn refuse_count(self, values: &[String]) -> Option<&'static str> {
        match self {
            Self::In | Self::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Self::Equals | Self::DoubleEquals | Self::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements().iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values = self.values.clone();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Exists => write!(f, "{key}"),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests;
