//! Routing: the resource or document that a request's path names.

use percent_encoding::percent_decode_str;

/// The parts of a request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPath {
    /// Objects of a resource.
    Resource(ResourcePath),
    /// Other paths: discovery, health, documents.
    Other(Vec<String>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    /// Empty when the path names no namespace.
    pub namespace: String,
    pub resource: String,
    /// Empty for the collection.
    pub name: String,
    pub subresource: String,
    /// The legacy `/watch/` prefix.
    pub watch: bool,
}

/// Segments after a namespace's name that are subresources of the namespace, not resources in it.
const NAMESPACE_SUBRESOURCES: &[&str] = &["status", "finalize"];

impl RequestPath {
    /// Parses a path. Percent-encoding is undone per segment.
    pub fn parse(path: &str) -> Self {
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(decode)
            .collect();
        let (group, version, rest) = match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                (String::new(), (*version).to_owned(), rest.len())
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                ((*group).to_owned(), (*version).to_owned(), rest.len())
            }
            _ => return Self::Other(parts),
        };
        let mut rest = &parts[parts.len() - rest..];
        let mut path = ResourcePath {
            group,
            version,
            ..ResourcePath::default()
        };
        if rest.first().is_some_and(|first| first == "watch") && rest.len() > 1 {
            path.watch = true;
            rest = &rest[1..];
        }
        if let [first, namespace, third, ..] = rest
            && first == "namespaces"
            && !NAMESPACE_SUBRESOURCES.contains(&third.as_str())
        {
            path.namespace.clone_from(namespace);
            rest = &rest[2..];
        }
        let mut parts = rest.iter().cloned();
        path.resource = parts.next().unwrap_or_default();
        path.name = parts.next().unwrap_or_default();
        path.subresource = parts.collect::<Vec<_>>().join("/");
        Self::Resource(path)
    }
}

/// Undoes percent-encoding. Malformed escapes stay as they are.
fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> (String, String, String, String, String) {
        match RequestPath::parse(path) {
            RequestPath::Resource(path) => (
                path.group,
                path.namespace,
                path.resource,
                path.name,
                path.subresource,
            ),
            RequestPath::Other(parts) => panic!("{parts:?}"),
        }
    }

    #[test]
    fn paths_name_what_they_are_about() {
        let cases = [
            ("/api/v1/nodes", ("", "", "nodes", "", "")),
            ("/api/v1/nodes/a/status", ("", "", "nodes", "a", "status")),
            ("/api/v1/namespaces", ("", "", "namespaces", "", "")),
            ("/api/v1/namespaces/x", ("", "", "namespaces", "x", "")),
            (
                "/api/v1/namespaces/x/finalize",
                ("", "", "namespaces", "x", "finalize"),
            ),
            (
                "/api/v1/namespaces/x/pods/p/eviction",
                ("", "x", "pods", "p", "eviction"),
            ),
            (
                "/apis/apps/v1/namespaces/x/deployments",
                ("apps", "x", "deployments", "", ""),
            ),
            ("/api/v1/nodes/a%2Fb", ("", "", "nodes", "a/b", "")),
        ];
        for (path, (group, namespace, plural, name, sub)) in cases {
            let expected = [group, namespace, plural, name, sub].map(str::to_owned).into();
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[test]
    fn documents_are_not_resources() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
            "/openapi/v3/api/v1",
        ] {
            assert!(
                matches!(RequestPath::parse(path), RequestPath::Other(_)),
                "{path}"
            );
        }
    }
}
