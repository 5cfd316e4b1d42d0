//! A small client for container registries: whether an image exists, and its deletion.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mco_core::generators::os_builds::ImageReference;
use mco_http::fetch::ProxySettings;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use thiserror::Error;
use tokio_rustls::TlsConnector;

const TIMEOUT: Duration = Duration::from_secs(20);
/// For a registry that cannot be reached.
const ATTEMPTS: usize = 3;
const MAX_BODY: usize = 4 << 20;
/// The registry whose API has another host than its images, and the key of its credentials that `docker login` writes.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_API: &str = "registry-1.docker.io";
const DOCKER_HUB_LOGIN: &str = "index.docker.io/v1";
/// Every kind of manifest, so that the registry converts none of them.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";

#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("cannot reach registry {host}: {why}")]
    Unreachable { host: String, why: String },
    #[error("registry {host} refuses access ({status}); check the credentials in the push Secret")]
    Denied { host: String, status: StatusCode },
    #[error("registry {host} answered {status}")]
    Status { host: String, status: StatusCode },
    #[error("{0}")]
    Credentials(String),
}

/// How a registry is reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct RegistryAccess {
    /// User and password, by the hosts of the push Secret.
    pub credentials: Vec<(String, String)>,
    /// Certificates to trust in addition to the system's, as PEM.
    pub certificates: Vec<Vec<u8>>,
    pub proxy: ProxySettings,
}

#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Debug)]
pub(crate) struct Registry<'a> {
    access: &'a RegistryAccess,
    image: &'a ImageReference,
}

impl<'a> Registry<'a> {
    pub fn new(access: &'a RegistryAccess, image: &'a ImageReference) -> Self {
        Self { access, image }
    }

    /// Returns the digest of the image; `None` if the registry does not have it.
    pub async fn digest(&self) -> Result<Option<String>, RegistryError> {
        let version = self
            .image
            .digest
            .as_deref()
            .or(self.image.tag.as_deref())
            .unwrap_or("latest");
        let path = format!("/v2/{}/manifests/{version}", self.image.repository());
        let answer = self.request(&Method::HEAD, &path).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.check(answer.status)?;
        let digest = answer
            .headers
            .get("docker-content-digest")
            .and_then(|value| value.to_str().ok());
        Ok(Some(digest.unwrap_or(version).to_owned()))
    }

    /// Deletes the manifest of a digest. An image that does not exist is not an error.
    pub async fn delete(&self, digest: &str) -> Result<(), RegistryError> {
        let path = format!("/v2/{}/manifests/{digest}", self.image.repository());
        let answer = self.request(&Method::DELETE, &path).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        self.check(answer.status)
    }

    fn check(&self, status: StatusCode) -> Result<(), RegistryError> {
        let host = self.image.host().to_owned();
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(RegistryError::Denied { host, status }),
            status => Err(RegistryError::Status { host, status }),
        }
    }

    /// Sends a request, and again with credentials if the registry asks for them.
    async fn request(&self, method: &Method, path: &str) -> Result<Answer, RegistryError> {
        let host = match self.image.host() {
            DOCKER_HUB => DOCKER_HUB_API,
            host => host,
        };
        let answer = self.send(host, method, path, None).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let challenge = answer
            .headers
            .get(WWW_AUTHENTICATE)
            .and_then(|value| value.to_str().ok());
        let authorization = match challenge.and_then(|challenge| challenge.split_once(' ')) {
            Some((scheme, parameters)) if scheme.eq_ignore_ascii_case("bearer") => self
                .token(parameters, method)
                .await?
                .map(|token| format!("Bearer {token}")),
            _ => self.basic(),
        };
        match authorization {
            None => Ok(answer),
            authorization => self.send(host, method, path, authorization).await,
        }
    }

    fn basic(&self) -> Option<String> {
        let name = &self.image.name;
        let matches = |key: &str| {
            let key = key
                .trim_start_matches("https://")
                .trim_start_matches("http://")
                .trim_end_matches('/');
            let key = if key == DOCKER_HUB_LOGIN { DOCKER_HUB } else { key };
            name == key || name.starts_with(&format!("{key}/"))
        };
        // The most specific entry wins.
        let found = self
            .access
            .credentials
            .iter()
            .filter(|(key, _)| matches(key))
            .max_by_key(|(key, _)| key.len());
        found.map(|(_, credentials)| format!("Basic {}", STANDARD.encode(credentials)))
    }

    async fn token(&self, parameters: &str, method: &Method) -> Result<Option<String>, RegistryError> {
        let value = |key: &str| {
            let (_, rest) = parameters.split_once(&format!("{key}=\""))?;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let Some(realm) = value("realm") else {
            return Ok(None);
        };
        let actions = if *method == Method::DELETE {
            "delete,pull"
        } else {
            "pull"
        };
        let scope = format!("repository:{}:{actions}", self.image.repository());
        let service = value("service").unwrap_or_default().replace(' ', "%20");
        let Some((host, path)) = realm
            .strip_prefix("https://")
            .and_then(|rest| rest.split_once('/'))
        else {
            return Ok(None);
        };
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("/{path}{separator}service={service}&scope={scope}");
        let answer = self.send(host, &Method::GET, &path, self.basic()).await?;
        self.check(answer.status)?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let token = body["token"].as_str().or(body["access_token"].as_str());
        Ok(token.map(str::to_owned))
    }

    async fn send(
        &self,
        host: &str,
        method: &Method,
        path: &str,
        authorization: Option<String>,
    ) -> Result<Answer, RegistryError> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let exchange = self.exchange(host, method, path, authorization.clone());
            match tokio::time::timeout(TIMEOUT, exchange).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(why)) => last = why,
                Err(_) => "it does not answer in time".clone_into(&mut last),
            }
        }
        Err(RegistryError::Unreachable {
            host: host.to_owned(),
            why: last,
        })
    }

    async fn exchange(
        &self,
        host: &str,
        method: &Method,
        path: &str,
        authorization: Option<String>,
    ) -> Result<Answer, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let (name, port) = split_port(host);
        let stream = self.access.proxy.connect(name, port).await?;
        let server =
            ServerName::try_from(name.trim_matches(['[', ']']).to_owned()).map_err(|error| text(&error))?;
        let config = self.tls()?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(server, stream)
            .await
            .map_err(|error| text(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| text(&error))?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, host)
            .header(ACCEPT, MANIFESTS);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| text(&error))?;
        let response = sender.send_request(request).await.map_err(|error| text(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY)
            .collect()
            .await
            .map_err(|error| text(&error))?;
        connection.abort();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }

    fn tls(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        for bundle in &self.access.certificates {
            let certificates = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
            roots.add_parsable_certificates(certificates);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

fn split_port(host: &str) -> (&str, u16) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().unwrap_or(443)),
        _ => (host, 443),
    }
}

/// Returns user and password by host from credentials in the current format.
pub(crate) fn credentials(canonical: &str) -> Vec<(String, String)> {
    let config: Value = serde_json::from_str(canonical).unwrap_or_default();
    let Some(auths) = config["auths"].as_object() else {
        return Vec::new();
    };
    let pairs = auths.iter().filter_map(|(host, entry)| {
        let pair = match (entry["username"].as_str(), entry["password"].as_str()) {
            (Some(user), Some(password)) => format!("{user}:{password}"),
            _ => String::from_utf8(STANDARD.decode(entry["auth"].as_str()?).ok()?).ok()?,
        };
        Some((host.clone(), pair))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_credentials_are_used() {
        let json = r#"{"auths":{"a.example":{"username":"u","password":"p"},
            "a.example/org":{"auth":"b3JnOnB3"},"b.example":{"auth":"!"},
            "https://index.docker.io/v1/":{"username":"hub","password":"pw"}}}"#;
        let access = RegistryAccess {
            credentials: credentials(json),
            ..RegistryAccess::default()
        };
        let basic = |image: &str| Registry::new(&access, &ImageReference::parse(image).unwrap()).basic();
        assert_eq!(
            basic("a.example/x:1"),
            Some(format!("Basic {}", STANDARD.encode("u:p")))
        );
        assert_eq!(
            basic("a.example/org/x:1"),
            Some(format!("Basic {}", STANDARD.encode("org:pw")))
        );
        assert_eq!(basic("b.example/x:1"), None);
        assert_eq!(
            basic("docker.io/org/x:1"),
            Some(format!("Basic {}", STANDARD.encode("hub:pw")))
        );
        assert_eq!(basic("a.example.evil/x:1"), None);
    }
}
