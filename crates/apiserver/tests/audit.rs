//! The audit log of the API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::Cluster;
use http::{Request, StatusCode};
use http_body_util::Empty;
use mco_apiserver::{ApiService, Identity};
use tower::ServiceExt as _;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Returns the lines of the audit log since the last call.
    fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        text.lines()
            .filter(|line| line.contains(" audit: "))
            .map(str::to_owned)
            .collect()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

async fn get(service: ApiService, path: &str, headers: &[(&str, &str)]) -> StatusCode {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    service.oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn reads_of_secrets_and_rejected_requests_were_not_logged() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let cluster = Cluster::start().await;
    lines.take();
    let as_user = |user: &str| cluster.server.service_as(Identity::new(user, &[]));
    let secret = "/api/v1/namespaces/default/secrets/keys";
    let maps = "/api/v1/namespaces/default/configmaps";
    let no_headers: &[(&str, &str)] = &[];
    let impersonation: &[(&str, &str)] = &[("impersonate-user", "bob")];
    let token: &[(&str, &str)] = &[("authorization", "Bearer stolen")];
    for (what, service, path, headers, expected) in [
        (
            "a read of a Secret",
            cluster.server.service(),
            secret,
            no_headers,
            vec![r#"user="kubernetes-admin""#, r#"resource="secrets""#, "code=404"],
        ),
        (
            "a denied read",
            as_user("eve"),
            secret,
            no_headers,
            vec![r#"user="eve""#, r#"verb="get""#, "code=403"],
        ),
        (
            "the user behind an impersonation",
            cluster.server.service(),
            secret,
            impersonation,
            vec![
                r#"user="bob""#,
                r#"impersonated_by="kubernetes-admin""#,
                "code=403",
            ],
        ),
        (
            "a denied impersonation",
            as_user("eve"),
            secret,
            impersonation,
            vec![r#"user="eve""#, r#"verb="impersonate""#, "code=403"],
        ),
        (
            "an invalid token",
            cluster.server.anonymous_service(),
            maps,
            token,
            vec!["code=401", maps],
        ),
    ] {
        get(service, path, headers).await;
        let logged = lines.take();
        assert_eq!(logged.len(), 1, "{what}: {logged:?}");
        for part in expected {
            assert!(logged[0].contains(part), "{what}: {part} in {logged:?}");
        }
        assert!(!logged[0].contains("stolen"), "{logged:?}");
    }
    get(cluster.server.service(), maps, no_headers).await;
    let component = cluster.server.service_as(Identity::component("operator"));
    get(component, secret, no_headers).await;
    assert_eq!(lines.take(), Vec::<String>::new(), "ordinary reads");
}
