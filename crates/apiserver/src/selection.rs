//! The objects that a list or watch selects: by namespace, labels and fields.

use std::sync::Arc;

use serde_json::Value;

use crate::catalog::{DefinitionSource, ResourceDefinition};
use crate::error::ApiError;
use crate::kinds::{BuiltIn, KindStorage};
use crate::selector::{FieldOperator, FieldSelector, LabelSelector};
use crate::store::StoredObject;

/// A parsed selection for one resource.
#[derive(Clone, Debug)]
pub struct ObjectSelection {
    pub namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
    built_in: Option<&'static BuiltIn>,
}

impl ObjectSelection {
    pub fn parse(
        definition: &Arc<ResourceDefinition>,
        namespace: &str,
        label_selector: &str,
        field_selector: &str,
    ) -> Result<Self, ApiError> {
        let labels =
            LabelSelector::parse(label_selector).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(field_selector, definition.selectable_fields())
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(Self {
            namespace: namespace.to_owned(),
            labels,
            fields,
            built_in: match definition.source {
                // Kinds that share a store read other fields of the same object, so only the owner may cache them.
                DefinitionSource::BuiltIn(kind) if kind.storage == KindStorage::Own => Some(kind),
                DefinitionSource::BuiltIn(_) | DefinitionSource::Custom(_) => None,
            },
        })
    }

    /// Selects everything in a namespace, or in all namespaces if it is empty.
    pub fn all_in(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            labels: LabelSelector::everything(),
            fields: FieldSelector::default(),
            built_in: None,
        }
    }

    /// Returns whether only the namespace limits the selection: then all watchers receive the same events.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Returns the only name that this selection can match, if its fields require one.
    pub fn only_name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    pub fn selects(&self, stored: &StoredObject) -> bool {
        (self.namespace.is_empty() || stored.key.namespace() == self.namespace)
            && self.labels.matches(Some(&stored.metadata.labels))
            && (self.fields.is_everything() || self.selects_fields(stored))
    }

    fn selects_fields(&self, stored: &StoredObject) -> bool {
        let needs_object = |label: &str| !matches!(label, "metadata.name" | "metadata.namespace");
        let (inside, outside): (Vec<_>, Vec<_>) = self
            .fields
            .terms()
            .iter()
            .partition(|term| needs_object(&term.label));
        let cheap = outside.iter().all(|term| {
            let text = if term.label == "metadata.name" {
                stored.key.name()
            } else {
                stored.key.namespace()
            };
            (text == term.value) == (term.operator == FieldOperator::Equals)
        });
        if !cheap || inside.is_empty() {
            return cheap;
        }
        let Some(kind) = self.built_in else {
            return stored
                .value()
                .is_ok_and(|object| self.fields.selects(&Value::Object(object)));
        };
        // The selectable fields of a built-in kind are read once per version of the object.
        let texts =
            stored.field_texts(|object| kind.selectable.iter().map(|field| field.text(object)).collect());
        inside.iter().all(|term| {
            let text = kind
                .selectable
                .iter()
                .zip(texts)
                .find(|(field, _)| field.label == term.label);
            let equal = text.is_some_and(|(_, text)| *text == term.value);
            equal == (term.operator == FieldOperator::Equals)
        })
    }
}
