//! Schemas of the foreign resources that a ControllerConfig embeds as a whole.
//!
//! The Rust types have only the fields that this program uses. The schemas are complete, so that the embedded copy is
//! validated like the original.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

const DNS: &str = include_str!("embedded/dns.json");
const INFRASTRUCTURE: &str = include_str!("embedded/infrastructure.json");

/// The schema of `config.openshift.io` DNS.
pub(crate) fn dns(_: &mut SchemaGenerator) -> Schema {
    parse(DNS)
}

/// The schema of `config.openshift.io` Infrastructure.
pub(crate) fn infrastructure(_: &mut SchemaGenerator) -> Schema {
    parse(INFRASTRUCTURE)
}

fn parse(text: &str) -> Schema {
    let keywords: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    keywords.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_are_objects_with_properties() {
        for text in [DNS, INFRASTRUCTURE] {
            let schema: Value = serde_json::from_str(text).unwrap();
            assert!(schema["properties"]["spec"].is_object());
        }
    }
}
