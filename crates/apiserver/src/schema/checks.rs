//! Value validations of a schema, compiled.

use serde_json::Value;

use super::model::NodeId;
use super::pattern::GoPattern;

/// The value validations of one node.
#[derive(Clone, Debug, Default)]
pub struct ValueChecks {
    pub required: Vec<Box<str>>,
    pub format: Option<Box<str>>,
    pub maximum: Option<NumericBound>,
    pub minimum: Option<NumericBound>,
    pub multiple_of: Option<f64>,
    pub max_length: Option<usize>,
    pub min_length: Option<usize>,
    pub pattern: Option<GoPattern>,
    pub max_items: Option<usize>,
    pub min_items: Option<usize>,
    pub max_properties: Option<usize>,
    pub min_properties: Option<usize>,
    pub enumeration: Vec<Value>,
    pub all_of: Vec<NodeId>,
    pub any_of: Vec<NodeId>,
    pub one_of: Vec<NodeId>,
    pub not: Option<NodeId>,
}

/// One end of a numeric range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumericBound {
    pub value: f64,
    pub exclusive: bool,
}

impl ValueChecks {
    /// Returns whether there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty()
            && self.format.is_none()
            && self.maximum.is_none()
            && self.minimum.is_none()
            && self.multiple_of.is_none()
            && self.max_length.is_none()
            && self.min_length.is_none()
            && self.pattern.is_none()
            && self.max_items.is_none()
            && self.min_items.is_none()
            && self.max_properties.is_none()
            && self.min_properties.is_none()
            && self.enumeration.is_empty()
            && self.all_of.is_empty()
            && self.any_of.is_empty()
            && self.one_of.is_empty()
            && self.not.is_none()
    }
}
