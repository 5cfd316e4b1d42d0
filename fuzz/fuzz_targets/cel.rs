//! Fuzzes rules, patterns and formats of a CRD: a definition that validates has rules that end within their budget on
//! any object, with the same result each time.

#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use mco_apiserver::schema::{CustomSchema, validate_definition};
use mco_fuzz::{expression, values};
use serde_json::{Value, json};

const FORMATS: &[&str] = &[
    "date-time",
    "date",
    "duration",
    "ipv4",
    "ipv6",
    "cidr",
    "uri",
    "email",
    "uuid",
    "byte",
    "hostname",
    "mac",
    "k8s-short-name",
    "creditcard",
    "rgbcolor",
];

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let _ = check(&mut input);
});

fn check(input: &mut Unstructured<'_>) -> Result<()> {
    let rule = if input.ratio(7, 8)? {
        expression::expression(input, 5)?
    } else {
        input.arbitrary::<&str>()?.to_owned()
    };
    let mut schema = json!({
        "type": "object",
        "x-kubernetes-validations": [{"rule": rule, "messageExpression": "string(self.n)"}],
        "properties": {
            "s": {"type": "string", "maxLength": 100, "format": input.choose(FORMATS)?},
            "n": {"type": "integer"},
            "l": {"type": "array", "maxItems": 10, "items": {"type": "integer"}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    });
    if input.ratio(1, 4)? {
        schema["properties"]["s"]["pattern"] = Value::from(input.arbitrary::<&str>()?);
    }
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tests.example.io"},
        "spec": {"group": "example.io", "scope": "Cluster",
            "names": {"plural": "tests", "singular": "test", "kind": "Test", "listKind": "TestList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}}]},
    });
    if !validate_definition(&definition, None).is_empty() {
        return Ok(());
    }
    let schema = CustomSchema::new(
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        false,
    );
    let mut object = json!({"spec": {"s": values::text(input)?, "n": input.arbitrary::<i64>()?,
        "l": input.arbitrary::<[i8; 3]>()?, "m": {"a": values::text(input)?}}});
    let old = json!({"spec": {"s": "a", "n": 1, "l": [], "m": {}}});
    if schema.normalise(&mut object).is_ok() {
        for old in [None, Some(&old)] {
            let first = texts(&schema.validate(&object, old));
            assert_eq!(texts(&schema.validate(&object, old)), first, "not deterministic");
        }
    }
    Ok(())
}

fn texts(errors: &[mco_apiserver::field_error::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
