//! Rules of RBAC roles: which rule covers which, and how they are shown.

use std::fmt;

use serde_json::Value;

use super::escalation::quoted;

const ALL: &str = "*";

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    non_resource_urls: Vec<String>,
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

impl PolicyRule {
    pub fn of(rule: &Value) -> Self {
        let list = |field: &str| -> Vec<String> {
            let values = rule[field].as_array().into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            api_groups: list("apiGroups"),
            resources: list("resources"),
            non_resource_urls: list("nonResourceURLs"),
            resource_names: list("resourceNames"),
            verbs: list("verbs"),
        }
    }

    /// Returns the rules of a cluster administrator.
    pub fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        let resources = Self {
            api_groups: all(),
            resources: all(),
            verbs: all(),
            ..Self::default()
        };
        let paths = Self {
            non_resource_urls: all(),
            verbs: all(),
            ..Self::default()
        };
        [resources, paths]
    }

    /// Returns the rule as rules for one verb and one resource or path each.
    pub fn breakdown(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let names: Vec<Vec<String>> = match self.resource_names.as_slice() {
            [] => vec![Vec::new()],
            names => names.iter().map(one).collect(),
        };
        let mut single = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    single.extend(names.iter().map(|names| Self {
                        api_groups: one(group),
                        resources: one(resource),
                        resource_names: names.clone(),
                        verbs: one(verb),
                        ..Self::default()
                    }));
                }
            }
        }
        for path in &self.non_resource_urls {
            single.extend(self.verbs.iter().map(|verb| Self {
                non_resource_urls: one(path),
                verbs: one(verb),
                ..Self::default()
            }));
        }
        single
    }

    /// Returns whether this rule alone allows everything that another one does.
    pub fn covers(&self, other: &Self) -> bool {
        let names_match = self.resource_names.is_empty()
            || (!other.resource_names.is_empty() && has_all(&self.resource_names, &other.resource_names));
        has_all_or_star(&self.verbs, &other.verbs)
            && has_all_or_star(&self.api_groups, &other.api_groups)
            && other.resources.iter().all(|wanted| self.has_resource(wanted))
            && other.non_resource_urls.iter().all(|wanted| self.has_path(wanted))
            && names_match
    }

    fn has_resource(&self, wanted: &str) -> bool {
        let any_parent = wanted
            .split_once('/')
            .map(|(_, subresource)| format!("{ALL}/{subresource}"));
        self.resources
            .iter()
            .any(|own| own == ALL || own == wanted || Some(own) == any_parent.as_ref())
    }

    fn has_path(&self, wanted: &str) -> bool {
        self.non_resource_urls.iter().any(|own| {
            own == wanted
                || own
                    .strip_suffix(ALL)
                    .is_some_and(|prefix| wanted.starts_with(prefix))
        })
    }

    /// Merges rules that differ only in their verbs.
    pub fn compact(rules: Vec<Self>) -> Vec<Self> {
        let mut compacted: Vec<Self> = Vec::new();
        for rule in rules {
            let same = compacted.iter_mut().find(|earlier| {
                earlier.non_resource_urls.is_empty()
                    && rule.non_resource_urls.is_empty()
                    && earlier.api_groups == rule.api_groups
                    && earlier.resources == rule.resources
                    && earlier.resource_names == rule.resource_names
            });
            match same {
                Some(earlier) => earlier.verbs.extend(rule.verbs),
                None => compacted.push(rule),
            }
        }
        compacted
    }
}

/// The form of Kubernetes' `CompactString`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = fields
            .iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}:[{}]", quoted(values)))
            .collect();
        write!(formatter, "{{{}}}", shown.join(", "))
    }
}

fn has_all(own: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|one| own.contains(one))
}

fn has_all_or_star(own: &[String], wanted: &[String]) -> bool {
    own.iter().any(|one| one == ALL) || has_all(own, wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_covers_what_it_allows_and_nothing_else() {
        let rule = |groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]| {
            PolicyRule::of(
                &json!({"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs}),
            )
        };
        let paths = |paths: &[&str]| PolicyRule::of(&json!({"nonResourceURLs": paths, "verbs": ["get"]}));
        let get_pods = rule(&[""], &["pods"], &[], &["get"]);
        for (expected, own, wanted) in [
            (true, rule(&["*"], &["*"], &[], &["*"]), get_pods.clone()),
            (
                true,
                rule(&[""], &["pods", "nodes"], &[], &["get", "list"]),
                get_pods.clone(),
            ),
            (false, rule(&["apps"], &["pods"], &[], &["get"]), get_pods.clone()),
            (false, rule(&[""], &["pods"], &["a"], &["get"]), get_pods.clone()),
            (true, get_pods.clone(), rule(&[""], &["pods"], &["a"], &["get"])),
            (false, get_pods.clone(), rule(&[""], &["pods"], &[], &["*"])),
            (false, get_pods.clone(), rule(&[""], &["pods/log"], &[], &["get"])),
            (
                true,
                rule(&[""], &["*/log"], &[], &["get"]),
                rule(&[""], &["pods/log"], &[], &["get"]),
            ),
            (true, paths(&["/metrics*"]), paths(&["/metrics/x"])),
            (false, paths(&["/metrics"]), paths(&["/metrics/x"])),
            (false, paths(&["/metrics/*"]), paths(&["*"])),
            (false, rule(&["*"], &["*"], &[], &["*"]), paths(&["/metrics"])),
        ] {
            assert_eq!(own.covers(&wanted), expected, "{own} {wanted}");
        }
    }

    #[test]
    fn rules_are_shown_as_kubernetes_does() {
        let rule = json!({"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]});
        let single = PolicyRule::of(&rule).breakdown();
        assert_eq!(single.len(), 4);
        let shown: Vec<String> = PolicyRule::compact(single)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            shown,
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
                r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}"#
            ]
        );
    }
}
