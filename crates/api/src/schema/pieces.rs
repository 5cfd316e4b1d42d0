//! Schema pieces that several kinds share, for `#[schemars(schema_with = ...)]` and `#[schemars(extend(...))]`.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::build::{self, SchemaBuilder, atomic_list_of, int64, list_by, map_of, object, string};

/// Returns a CEL rule with the message of a violation.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// A point in time as Kubernetes writes it.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    string().format("date-time").into()
}

/// A point in time that may be an explicit `null`.
pub(crate) fn nullable_time(_: &mut SchemaGenerator) -> Schema {
    string().format("date-time").nullable().into()
}

/// Bytes, base64-encoded in JSON.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    string().format("byte").into()
}

/// Bytes, base64-encoded in JSON, or an explicit `null`.
pub(crate) fn nullable_bytes(_: &mut SchemaGenerator) -> Schema {
    string().format("byte").nullable().into()
}

/// Any object; its fields are neither checked nor pruned.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    object().with("x-kubernetes-preserve-unknown-fields", true).into()
}

/// Any object, or an explicit `null`.
pub(crate) fn nullable_any_object(generator: &mut SchemaGenerator) -> Schema {
    SchemaBuilder::from(any_object(generator)).nullable().into()
}

/// An object without fields, or an explicit `null`.
pub(crate) fn nullable_empty_object(_: &mut SchemaGenerator) -> Schema {
    object().nullable().into()
}

/// A number or a string such as a percentage.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    build::int_or_string().into()
}

/// An amount such as 10Gi.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    build::int_or_string()
        .pattern(
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        )
        .into()
}

/// A label query.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    label_selector_node().into()
}

/// A label query, for hand-written schemas.
pub(crate) fn label_selector_node() -> SchemaBuilder {
    let requirement = object()
        .about("One requirement.")
        .required("key", string().about("The label to look at."))
        .required("operator", string().about("In, NotIn, Exists or DoesNotExist."))
        .field(
            "values",
            atomic_list_of(string()).about("What In and NotIn compare with; empty for the other operators."),
        );
    object()
        .atomic()
        .field(
            "matchLabels",
            map_of(string()).about("Labels an object must carry, each with exactly this value."),
        )
        .field(
            "matchExpressions",
            atomic_list_of(requirement).about("Further requirements; all of them must hold."),
        )
}

/// A reference to another object.
pub(crate) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    object_reference_node().into()
}

/// A list of references to other objects, replaced as a whole.
pub(crate) fn object_references(_: &mut SchemaGenerator) -> Schema {
    atomic_list_of(object_reference_node().about("One object.")).into()
}

fn object_reference_node() -> SchemaBuilder {
    object()
        .atomic()
        .field("apiVersion", string().about("Group and version of the object."))
        .field(
            "fieldPath",
            string().about("A part of the object, as a field access expression."),
        )
        .field("kind", string().about("Kind of the object."))
        .field("name", string().about("Name of the object."))
        .field("namespace", string().about("Namespace of the object."))
        .field(
            "resourceVersion",
            string().about("The exact version of the object."),
        )
        .field("uid", string().about("UID of the object."))
}

/// Adds the fields of an object reference to a type that flattens one.
pub(crate) fn with_object_reference_fields(schema: &mut Schema) {
    let Value::Object(mut reference) = Value::from(object_reference_node()) else {
        return;
    };
    let Some(Value::Object(fields)) = reference.remove("properties") else {
        return;
    };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.extend(fields);
    }
}

/// A list of conditions of the kind that Kubernetes itself defines, one per type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    let condition = object()
        .about("One condition.")
        .required(
            "lastTransitionTime",
            string().format("date-time").about("When `status` changed last."),
        )
        .required("message", string().max_length(32768).about("What happened, for people."))
        .field(
            "observedGeneration",
            int64().minimum(0).about("The generation of the object that the condition is about."),
        )
        .required(
            "reason",
            string()
                .length(1, 1024)
                .pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
                .about("What happened, in one word for programs."),
        )
        .required(
            "status",
            string().one_of(&["True", "False", "Unknown"]).about("True, False or Unknown."),
        )
        .required(
            "type",
            string()
                .max_length(316)
                .pattern(
                    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                )
                .about("Which condition this is."),
        );
    list_by(&["type"], condition).into()
}

/// A reference to an object by group, resource and name.
pub(crate) fn group_resource_reference(_: &mut SchemaGenerator) -> Schema {
    group_resource_reference_node().into()
}

/// A list of such references, identified by name and resource.
pub(crate) fn group_resource_references(_: &mut SchemaGenerator) -> Schema {
    list_by(
        &["name", "resource"],
        group_resource_reference_node().about("One object."),
    )
    .into()
}

fn group_resource_reference_node() -> SchemaBuilder {
    object()
        .required(
            "group",
            string().max_length(253).push_rule(subdomain_rule()).about("API group of the object."),
        )
        .required(
            "name",
            string().length(1, 253).push_rule(subdomain_rule()).about("Name of the object."),
        )
        .field(
            "namespace",
            string()
                .length(1, 63)
                .rule(
                    "!format.dns1123Label().validate(self).hasValue()",
                    "the value must consist of only lowercase alphanumeric characters and hyphens",
                )
                .about("Namespace of the object."),
        )
        .required(
            "resource",
            string()
                .length(1, 63)
                .rule(
                    "!format.dns1035Label().validate(self).hasValue()",
                    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                     alphabetic character, and end with an alphanumeric character",
                )
                .about("The object's resource, in the plural."),
        )
}

/// OS image streams are named like DNS subdomains.
pub(crate) fn stream_name_rule() -> Value {
    rule(
        "!format.dns1123Subdomain().validate(self).hasValue()",
        "a RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
         end with an alphanumeric character.",
    )
}

/// Most objects are named like DNS subdomains.
pub(crate) fn subdomain_rule() -> Value {
    rule(
        "!format.dns1123Subdomain().validate(self).hasValue()",
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
         start and end with an alphanumeric character.",
    )
}

/// An image that is named by its digest.
pub(crate) fn digested_image_rules() -> Value {
    json!([
        digest_rule(),
        rule(
            r"(self.split('@')[0].matches('^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*?$'))",
            "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without \
             the scheme",
        ),
    ])
}

/// Ends in a SHA-256 digest.
pub(crate) fn digest_rule() -> Value {
    rule(
        "(self.split('@').size() == 2 && self.split('@')[1].matches('^sha256:[a-f0-9]{64}$'))",
        "the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' is 64 characters \
         long",
    )
}

/// An image that is named by its tag.
pub(crate) fn tagged_image_rules() -> Value {
    json!([rule(
        r"self.matches('^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9-_]{1,61})*/[a-zA-Z0-9-_.]+:[a-zA-Z0-9._-]+$') || self.matches('^[^.]+\\.[^.]+\\.svc:\\d+\\/[^\\/]+\\/[^\\/]+:[^\\/]+$')",
        "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the \
         scheme. Or it must be a valid .svc followed by a port, repository, image name, and tag.",
    )])
}
