//! The address of a webhook: a URL, or a Service.

use std::sync::Arc;

use http::Uri;
use serde_json::Value;

use crate::store::{ObjectKey, ObjectStore};

/// Where a webhook is called.
#[derive(Clone, Debug)]
pub(super) struct WebhookEndpoint {
    /// The host in the URL, and the name that the certificate must have.
    pub host: String,
    pub port: u16,
    pub path: String,
    /// Namespace and name, for a Service.
    service: Option<(String, String)>,
    /// The URL in messages.
    url: String,
}

impl WebhookEndpoint {
    pub fn read(client: &Value) -> Result<Self, String> {
        let text = |from: &Value, field: &str| from[field].as_str().unwrap_or_default().to_owned();
        let service = &client["service"];
        if service.is_object() {
            let (namespace, name) = (text(service, "namespace"), text(service, "name"));
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            let port = port.unwrap_or(443);
            let host = format!("{name}.{namespace}.svc");
            let path = clean(&text(service, "path"));
            return Ok(Self {
                url: format!("https://{host}:{port}{path}"),
                host,
                port,
                path,
                service: Some((namespace, name)),
            });
        }
        let url = text(client, "url");
        let parsed: Uri = url.parse().map_err(|error| format!("parse {url:?}: {error}"))?;
        let host = parsed
            .host()
            .ok_or_else(|| format!("parse {url:?}: the URL has no host"))?;
        let path = clean(parsed.path());
        let authority = parsed.authority().map(http::uri::Authority::as_str);
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: parsed.port_u16().unwrap_or(443),
            service: None,
            url: match authority {
                Some(authority) if path != parsed.path() => format!("https://{authority}{path}"),
                _ => url,
            },
            path,
        })
    }

    /// Returns the URL with the timeout, as in Kubernetes' messages and requests.
    pub fn url_with(&self, seconds: u64) -> String {
        format!("{}?timeout={seconds}s", self.url)
    }

    /// Returns the host and port to connect to; those of a Service come from its endpoints or its cluster IP.
    pub fn address(&self, store: &ObjectStore) -> Result<(String, u16), String> {
        match &self.service {
            Some((namespace, name)) => service_address(store, namespace, name, self.port),
            None => Ok((self.host.clone(), self.port)),
        }
    }
}

/// Returns the path without empty and relative segments, as Kubernetes requests it. A server may redirect the others.
fn clean(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

fn service_address(
    store: &ObjectStore,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<(String, u16), String> {
    let read = |resource: &str| {
        let key = ObjectKey::new(&Arc::from(resource), namespace, name);
        let stored = store.get(&key)?;
        Some(Value::Object(stored.value().ok()?))
    };
    let service = read("services").ok_or_else(|| format!("service {name:?} not found"))?;
    let ports = service["spec"]["ports"].as_array();
    let served = ports.into_iter().flatten().find(|served| served["port"] == port);
    let served = served.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    if let Some(endpoints) = read("endpoints")
        && let Some(address) = ready_endpoint(&endpoints, served)
    {
        return Ok(address);
    }
    match service["spec"]["clusterIP"].as_str() {
        Some(address) if !address.is_empty() && address != "None" => Ok((address.to_owned(), port)),
        _ => Err(format!("no endpoints available for service {name:?}")),
    }
}

/// Returns the first ready address of the service's port.
fn ready_endpoint(endpoints: &Value, served: &Value) -> Option<(String, u16)> {
    let subsets = endpoints["subsets"].as_array()?;
    subsets.iter().find_map(|subset| {
        let address = subset["addresses"].as_array()?.first()?["ip"].as_str()?;
        let ports = subset["ports"].as_array()?;
        let named = ports.iter().find(|port| port["name"] == served["name"]);
        let port = named.or_else(|| ports.first())?["port"].as_u64()?;
        Some((address.to_owned(), u16::try_from(port).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_url_has_a_default_port_and_keeps_its_path() {
        let endpoint = WebhookEndpoint::read(&json!({"url": "https://hook.example:8443/a/b"})).unwrap();
        assert_eq!(
            (endpoint.host.as_str(), endpoint.port, endpoint.path.as_str()),
            ("hook.example", 8443, "/a/b")
        );
        assert_eq!(endpoint.url_with(3), "https://hook.example:8443/a/b?timeout=3s");
        let short = WebhookEndpoint::read(&json!({"url": "https://[::1]"})).unwrap();
        assert_eq!(
            (short.host.as_str(), short.port, short.path.as_str()),
            ("::1", 443, "/")
        );
    }

    #[test]
    fn a_path_with_an_empty_segment_was_redirected() {
        for (path, cleaned) in [
            ("//failing", "/failing"),
            ("/a/./b/", "/a/b"),
            ("/a/../../b", "/b"),
        ] {
            let url = format!("https://hook.example:8443{path}");
            let endpoint = WebhookEndpoint::read(&json!({"url": url})).unwrap();
            assert_eq!(endpoint.path, cleaned);
            let expected = format!("https://hook.example:8443{cleaned}?timeout=3s");
            assert_eq!(endpoint.url_with(3), expected);
            let service = json!({"service": {"name": "hook", "namespace": "shop", "path": path}});
            assert_eq!(WebhookEndpoint::read(&service).unwrap().path, cleaned);
        }
    }

    #[test]
    fn a_service_is_called_by_its_name_in_the_cluster() {
        let service = json!({"service": {"name": "hook", "namespace": "shop", "path": "/p", "port": 444}});
        let endpoint = WebhookEndpoint::read(&service).unwrap();
        assert_eq!(endpoint.url_with(10), "https://hook.shop.svc:444/p?timeout=10s");
        assert_eq!(endpoint.host, "hook.shop.svc");
    }

    #[test]
    fn an_endpoint_is_selected_by_the_name_of_the_port() {
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "127.0.0.1"}],
            "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": 2}]}]});
        let found = ready_endpoint(&endpoints, &json!({"name": "https", "port": 443}));
        assert_eq!(found, Some(("127.0.0.1".to_owned(), 2)));
        let not_ready =
            json!({"subsets": [{"notReadyAddresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 1}]}]});
        assert_eq!(ready_endpoint(&not_ready, &json!({"port": 443})), None);
    }
}
