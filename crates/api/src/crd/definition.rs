//! Builds the CustomResourceDefinition of a kind.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde_json::json;

use crate::schema::build::{SchemaBuilder, object, string};
use crate::schema::structural;

/// A kind whose CustomResourceDefinition we can install.
pub trait Installable: kube::Resource<DynamicType = ()> {
    /// Returns the CustomResourceDefinition, ready to be applied.
    fn crd() -> CustomResourceDefinition;
}

/// A CustomResourceDefinition with one version under construction. All of them are cluster-scoped.
#[derive(Debug)]
pub(crate) struct CrdDefinition {
    group: String,
    version: String,
    kind: String,
    plural: String,
    short_names: Vec<String>,
    columns: Vec<CustomResourceColumnDefinition>,
    status_subresource: bool,
    labels: BTreeMap<String, String>,
    root: SchemaBuilder,
}

impl CrdDefinition {
    /// Starts the definition of `K` with this description for `kubectl explain`.
    pub(crate) fn of<K: kube::Resource<DynamicType = ()>>(description: &str) -> Self {
        let root = object()
            .about(description)
            .field("apiVersion", string().about("Group and version of this object."))
            .field("kind", string().about("Kind of this object."))
            .field("metadata", object());
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            short_names: Vec::new(),
            columns: Vec::new(),
            status_subresource: false,
            labels: BTreeMap::new(),
            root,
        }
    }

    /// Marks the definition as managed by an operator.
    pub(crate) fn operator_managed(mut self) -> Self {
        self.labels.insert(
            crate::vocabulary::labels::OPERATOR_MANAGED.to_owned(),
            String::new(),
        );
        self
    }

    pub(crate) fn short_name(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }

    /// Adds a column of `kubectl get`.
    pub(crate) fn column(mut self, column: CustomResourceColumnDefinition) -> Self {
        self.columns.push(column);
        self
    }

    /// Sets the type of `spec`, which is required.
    pub(crate) fn spec<S: JsonSchema>(mut self, description: &str) -> Self {
        self.root = self
            .root
            .required("spec", SchemaBuilder::from(structural::<S>()).about(description));
        self
    }

    /// Sets the type of `spec`, which is optional.
    pub(crate) fn optional_spec<S: JsonSchema>(mut self, description: &str) -> Self {
        self.root = self
            .root
            .field("spec", SchemaBuilder::from(structural::<S>()).about(description));
        self
    }

    /// Sets the type of `status`, and adds the status subresource.
    pub(crate) fn status<S: JsonSchema>(mut self, description: &str) -> Self {
        self.root = self.root.field(
            "status",
            SchemaBuilder::from(structural::<S>()).about(description),
        );
        self.status_subresource()
    }

    /// Adds the status subresource without a schema.
    pub(crate) fn status_subresource(mut self) -> Self {
        self.status_subresource = true;
        self
    }

    /// Adds a CEL rule for the whole object.
    pub(crate) fn rule(mut self, rule: serde_json::Value) -> Self {
        self.root = self.root.push_rule(rule);
        self
    }

    pub(crate) fn build(self) -> CustomResourceDefinition {
        let version = CustomResourceDefinitionVersion {
            name: self.version,
            served: true,
            storage: true,
            schema: Some(CustomResourceValidation {
                open_api_v3_schema: Some(schema_props(self.root)),
            }),
            additional_printer_columns: (!self.columns.is_empty()).then_some(self.columns),
            subresources: self.status_subresource.then(|| CustomResourceSubresources {
                status: Some(CustomResourceSubresourceStatus(json!({}))),
                scale: None,
            }),
            ..CustomResourceDefinitionVersion::default()
        };
        CustomResourceDefinition {
            metadata: ObjectMeta {
                name: Some(format!("{}.{}", self.plural, self.group)),
                labels: (!self.labels.is_empty()).then_some(self.labels),
                ..ObjectMeta::default()
            },
            spec: CustomResourceDefinitionSpec {
                group: self.group,
                scope: "Cluster".to_owned(),
                names: CustomResourceDefinitionNames {
                    list_kind: Some(format!("{}List", self.kind)),
                    singular: Some(self.kind.to_lowercase()),
                    plural: self.plural,
                    short_names: (!self.short_names.is_empty()).then_some(self.short_names),
                    kind: self.kind,
                    categories: None,
                },
                versions: vec![version],
                ..CustomResourceDefinitionSpec::default()
            },
            status: None,
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "a schema depends on nothing but this program's source, and a test builds every one of them"
)]
fn schema_props(root: SchemaBuilder) -> JSONSchemaProps {
    serde_json::from_value(root.into()).expect("our schemas use only keywords that Kubernetes knows")
}

/// Constructors of columns.
pub(crate) mod column {
    use super::CustomResourceColumnDefinition;

    /// A column of text.
    pub(crate) fn text(name: &str, path: &str, description: &str) -> CustomResourceColumnDefinition {
        of("string", name, path, description)
    }

    /// A column of numbers.
    pub(crate) fn number(name: &str, path: &str, description: &str) -> CustomResourceColumnDefinition {
        of("number", name, path, description)
    }

    /// A column of points in time, shown as their age.
    pub(crate) fn date(name: &str, path: &str, description: &str) -> CustomResourceColumnDefinition {
        of("date", name, path, description)
    }

    /// The age of the object.
    pub(crate) fn age() -> CustomResourceColumnDefinition {
        date(
            "Age",
            ".metadata.creationTimestamp",
            "How long ago the object was created.",
        )
    }

    /// The status of one condition.
    pub(crate) fn condition(name: &str, type_: &str, description: &str) -> CustomResourceColumnDefinition {
        text(
            name,
            &format!(r#".status.conditions[?(@.type=="{type_}")].status"#),
            description,
        )
    }

    /// Shown only by `kubectl get -o wide`.
    pub(crate) fn wide(column: CustomResourceColumnDefinition) -> CustomResourceColumnDefinition {
        CustomResourceColumnDefinition {
            priority: Some(1),
            ..column
        }
    }

    fn of(type_: &str, name: &str, path: &str, description: &str) -> CustomResourceColumnDefinition {
        CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: path.to_owned(),
            description: Some(description.to_owned()),
            ..CustomResourceColumnDefinition::default()
        }
    }
}
