//! The operations of resources, by path.
//!
//! Clients read the kind of a resource and the parameters of an operation. Everything else about operations is omitted.

use serde_json::{Map, Value, json};

use super::{DocumentedResource, DocumentedSubresource, OpenApiFlavour, built_in};

/// `(name, type)` of query parameters.
type Parameters = &'static [(&'static str, &'static str)];

const WRITE: Parameters = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH: Parameters = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const LIST: Parameters = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const DELETE: Parameters = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const NO_PARAMETERS: Parameters = &[];

/// `(verb, HTTP method, action, query parameters)` on a collection and on one object.
const ON_COLLECTION: &[(&str, &str, &str, Parameters)] = &[
    ("list", "get", "list", LIST),
    ("create", "post", "post", WRITE),
    ("deletecollection", "delete", "deletecollection", DELETE),
];
const ON_OBJECT: &[(&str, &str, &str, Parameters)] = &[
    ("get", "get", "get", NO_PARAMETERS),
    ("create", "post", "post", WRITE),
    ("update", "put", "put", WRITE),
    ("patch", "patch", "patch", PATCH),
    ("delete", "delete", "delete", DELETE),
];

/// Returns the paths of all resources.
pub(super) fn of(resources: &[DocumentedResource], flavour: OpenApiFlavour) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in resources {
        let base = crate::kinds::api_version(&resource.group, &resource.version);
        let root = if resource.group.is_empty() {
            format!("/api/{base}")
        } else {
            format!("/apis/{base}")
        };
        let scope = if resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let collection = format!("{root}{scope}/{}", resource.plural);
        let operations = Operations { resource, flavour };
        paths.insert(collection.clone(), operations.collection());
        if resource.namespaced && resource.verbs.iter().any(|verb| verb == "list") {
            paths.insert(
                format!("{root}/{}", resource.plural),
                operations.across_namespaces(),
            );
        }
        let object = format!("{collection}/{{name}}");
        if resource.verbs.iter().any(|verb| verb == "get") {
            paths.insert(object.clone(), operations.object());
        }
        for subresource in &resource.subresources {
            paths.insert(
                format!("{object}/{}", subresource.name),
                operations.subresource(subresource),
            );
        }
    }
    paths
}

struct Operations<'r> {
    resource: &'r DocumentedResource,
    flavour: OpenApiFlavour,
}

impl Operations<'_> {
    fn collection(&self) -> Value {
        let mut path = self.offered(ON_COLLECTION, &self.resource.verbs, None);
        self.add_path_parameters(&mut path, &["namespace"]);
        Value::Object(path)
    }

    fn across_namespaces(&self) -> Value {
        Value::Object(self.offered(&ON_COLLECTION[..1], &self.resource.verbs, None))
    }

    fn object(&self) -> Value {
        // Objects are created in their collection.
        let verbs: Vec<String> = self
            .resource
            .verbs
            .iter()
            .filter(|verb| *verb != "create")
            .cloned()
            .collect();
        let mut path = self.offered(ON_OBJECT, &verbs, None);
        self.add_path_parameters(&mut path, &["namespace", "name"]);
        Value::Object(path)
    }

    fn subresource(&self, subresource: &DocumentedSubresource) -> Value {
        let mut path = self.offered(ON_OBJECT, &subresource.verbs, Some(subresource));
        self.add_path_parameters(&mut path, &["namespace", "name"]);
        Value::Object(path)
    }

    fn offered(
        &self,
        operations: &[(&str, &str, &str, Parameters)],
        verbs: &[String],
        subresource: Option<&DocumentedSubresource>,
    ) -> Map<String, Value> {
        operations
            .iter()
            .filter(|(verb, ..)| verbs.iter().any(|offered| offered == verb))
            .map(|(_, method, action, parameters)| {
                (
                    (*method).to_owned(),
                    self.operation(action, parameters, subresource),
                )
            })
            .collect()
    }

    fn operation(
        &self,
        action: &str,
        parameters: Parameters,
        subresource: Option<&DocumentedSubresource>,
    ) -> Value {
        let resource = self.resource;
        let (kind, body) = match subresource {
            Some(sub) => {
                let kind = if sub.version.is_empty() {
                    resource.group_version_kind(&sub.kind)
                } else {
                    json!({"group": sub.group, "version": sub.version, "kind": sub.kind})
                };
                (
                    kind,
                    built_in::body_definition(sub).map_or_else(|| resource.definition(), str::to_owned),
                )
            }
            None => (resource.group_version_kind(&resource.kind), resource.definition()),
        };
        let answer = match action {
            "list" => resource.list_definition(),
            "delete" | "deletecollection" => built_in::meta("Status"),
            _ => body.clone(),
        };
        let mut operation = json!({
            "operationId": self.operation_id(action, subresource),
            "parameters": parameters.iter().map(|(name, kind)| self.query_parameter(name, kind)).collect::<Vec<_>>(),
            "responses": {"200": self.answer(&answer)},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        });
        if matches!(action, "post" | "put" | "patch") {
            self.add_body(&mut operation, &body, action);
        }
        operation
    }

    /// Returns the operation's id, unique in the document: action, scope and kind.
    fn operation_id(&self, action: &str, subresource: Option<&DocumentedSubresource>) -> String {
        let resource = self.resource;
        let place: String = resource.group.split(['.', '-']).map(capitalised).collect();
        let version = capitalised(&resource.version);
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        let sub = subresource.map(|sub| capitalised(&sub.name)).unwrap_or_default();
        format!("{action}{place}{version}{scope}{}{sub}", resource.kind)
    }

    fn query_parameter(&self, name: &str, kind: &str) -> Value {
        match self.flavour {
            OpenApiFlavour::V2 => json!({"name": name, "in": "query", "type": kind, "uniqueItems": true}),
            OpenApiFlavour::V3 => {
                json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
            }
        }
    }

    fn add_path_parameters(&self, path: &mut Map<String, Value>, names: &[&str]) {
        let names = names
            .iter()
            .filter(|name| **name != "namespace" || self.resource.namespaced);
        let parameters: Vec<Value> = names
            .map(|name| match self.flavour {
                OpenApiFlavour::V2 => json!({"name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true}),
                OpenApiFlavour::V3 => json!({"name": name, "in": "path", "required": true,
                    "schema": {"type": "string", "uniqueItems": true}}),
            })
            .collect();
        if !parameters.is_empty() {
            path.insert("parameters".to_owned(), Value::Array(parameters));
        }
    }

    fn answer(&self, definition: &str) -> Value {
        let schema = self.reference(definition);
        match self.flavour {
            OpenApiFlavour::V2 => json!({"description": "OK", "schema": schema}),
            OpenApiFlavour::V3 => {
                json!({"description": "OK", "content": {"application/json": {"schema": schema}}})
            }
        }
    }

    fn add_body(&self, operation: &mut Value, definition: &str, action: &str) {
        let schema = if action == "patch" {
            json!({"type": "object"})
        } else {
            self.reference(definition)
        };
        match self.flavour {
            OpenApiFlavour::V2 => {
                if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
                    parameters
                        .push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
                }
            }
            OpenApiFlavour::V3 => {
                let types: &[&str] = if action == "patch" {
                    self.patch_types()
                } else {
                    &["*/*"]
                };
                let content: Map<String, Value> = types
                    .iter()
                    .map(|kind| ((*kind).to_owned(), json!({"schema": schema})))
                    .collect();
                operation["requestBody"] = json!({"required": true, "content": content});
            }
        }
    }

    fn patch_types(&self) -> &'static [&'static str] {
        const ALL: &[&str] = &[
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        match self.resource.schema {
            super::ResourceSchema::BuiltIn(_) => ALL,
            super::ResourceSchema::Custom(_) => &ALL[..3],
        }
    }

    fn reference(&self, definition: &str) -> Value {
        let prefix = match self.flavour {
            OpenApiFlavour::V2 => "#/definitions/",
            OpenApiFlavour::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{prefix}{definition}")})
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + chars.as_str())
        .unwrap_or_default()
}
