//! Which writes a policy, a binding or a webhook applies to.

use std::sync::Arc;

use serde_json::Value;

use super::AdmissionAttributes;
use crate::catalog::{Catalog, ResourceDefinition};
use crate::selector::LabelSelector;

/// The rules and selectors of a policy, a binding or a webhook.
#[derive(Clone, Debug)]
pub(super) struct AdmissionMatch {
    /// Without any, every resource matches.
    include: Vec<ResourceRule>,
    exclude: Vec<ResourceRule>,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
    match_equivalent: bool,
}

/// One of `resourceRules`, `excludeResourceRules` or a webhook's `rules`.
#[derive(Clone, Debug)]
struct ResourceRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

impl AdmissionMatch {
    /// Reads `matchConstraints` of a policy or `matchResources` of a binding.
    pub fn of_policy(constraints: &Value) -> Self {
        Self::read(constraints, "resourceRules")
    }

    pub fn of_webhook(webhook: &Value) -> Self {
        let mut matching = Self::read(webhook, "rules");
        // A webhook without rules matches nothing.
        if matching.include.is_empty() {
            matching.exclude = vec![ResourceRule::everything()];
        }
        matching
    }

    fn read(from: &Value, rules: &str) -> Self {
        let list = |field: &str| {
            let rules = from[field].as_array();
            rules.into_iter().flatten().map(ResourceRule::read).collect()
        };
        let selector = |field: &str| match &from[field] {
            Value::Null => Ok(LabelSelector::everything()),
            selector => LabelSelector::from_object(Some(selector)).map_err(|error| error.to_string()),
        };
        Self {
            include: list(rules),
            exclude: list("excludeResourceRules"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            match_equivalent: from["matchPolicy"] != "Exact",
        }
    }

    /// Returns the definition whose rules match: that of the request, or an equivalent one.
    pub fn definition(
        &self,
        attributes: &AdmissionAttributes,
        catalog: &Catalog,
    ) -> Option<Arc<ResourceDefinition>> {
        if self.find(&self.exclude, attributes, catalog).is_some() {
            return None;
        }
        if self.include.is_empty() {
            return Some(Arc::clone(&attributes.definition));
        }
        self.find(&self.include, attributes, catalog)
    }

    fn find(
        &self,
        rules: &[ResourceRule],
        attributes: &AdmissionAttributes,
        catalog: &Catalog,
    ) -> Option<Arc<ResourceDefinition>> {
        let own = &attributes.definition;
        let matches =
            |definition: &ResourceDefinition| rules.iter().any(|rule| rule.matches(attributes, definition));
        if matches(own) {
            return Some(Arc::clone(own));
        }
        if !self.match_equivalent || rules.is_empty() {
            return None;
        }
        let equivalent = catalog
            .definitions()
            .iter()
            .filter(|other| other.storage == own.storage && !other.is_virtual());
        equivalent.into_iter().find(|other| matches(other)).cloned()
    }

    /// Returns whether the selectors match; `namespace` is the namespace of the object, if it has one.
    pub fn selects(
        &self,
        attributes: &AdmissionAttributes,
        namespace: Option<&Value>,
    ) -> Result<bool, String> {
        let namespaces = self.namespaces.as_ref().map_err(Clone::clone)?;
        let is_namespace = attributes.definition.is("", "namespaces");
        if !namespaces.is_everything() && (is_namespace || !attributes.namespace.is_empty()) {
            let labelled = match (
                &attributes.object,
                is_namespace && attributes.subresource.is_empty(),
            ) {
                (Some(object), true) => Some(object),
                _ => namespace,
            };
            let Some(labelled) = labelled else {
                return Err(format!("namespaces {:?} not found", attributes.namespace));
            };
            if !namespaces.selects(labelled) {
                return Ok(false);
            }
        }
        let objects = self.objects.as_ref().map_err(Clone::clone)?;
        let both = [&attributes.object, &attributes.old];
        Ok(objects.is_everything() || both.into_iter().flatten().any(|object| objects.selects(object)))
    }
}

impl ResourceRule {
    fn read(rule: &Value) -> Self {
        let texts = |field: &str| {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn everything() -> Self {
        let all = || vec!["*".to_owned()];
        Self {
            operations: all(),
            groups: all(),
            versions: all(),
            resources: vec!["*/*".to_owned()],
            names: Vec::new(),
            scope: "*".to_owned(),
        }
    }

    fn matches(&self, attributes: &AdmissionAttributes, definition: &ResourceDefinition) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|entry| entry == "*" || entry == wanted);
        has(&self.operations, attributes.operation.name())
            && has(&self.groups, &definition.group)
            && has(&self.versions, &definition.version)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
            && self.in_scope(attributes, definition)
            && self
                .resources
                .iter()
                .any(|pattern| is_resource(pattern, &definition.plural, &attributes.subresource))
    }

    fn in_scope(&self, attributes: &AdmissionAttributes, definition: &ResourceDefinition) -> bool {
        let in_namespace = !attributes.namespace.is_empty() && !definition.is("", "namespaces");
        match self.scope.as_str() {
            "Namespaced" => in_namespace,
            "Cluster" => !in_namespace,
            _ => true,
        }
    }
}

/// Returns whether a pattern such as `pods`, `pods/status`, `pods/*` or `*/*` names a resource.
fn is_resource(pattern: &str, resource: &str, subresource: &str) -> bool {
    let (wanted, wanted_sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (wanted == "*" || wanted == resource) && (wanted_sub == "*" || wanted_sub == subresource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_without_a_subresource_does_not_match_one() {
        let cases = [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("pods/*", "pods", "", true),
            ("pods/*", "pods", "eviction", true),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/scale", "deployments", "scale", true),
            ("*/*", "pods", "binding", true),
            ("nodes", "pods", "", false),
        ];
        for (pattern, resource, subresource, expected) in cases {
            let found = is_resource(pattern, resource, subresource);
            assert_eq!(found, expected, "{pattern} for {resource}/{subresource}");
        }
    }
}
