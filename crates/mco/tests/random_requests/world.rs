//! The system under test, its callers, and one request to it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::oracle::Caller;
use crate::support::{Up, eventually};

/// A request that takes longer counts as a hang.
const DEADLINE: Duration = Duration::from_secs(30);
pub const NODES: [&str; 2] = ["node-a", "node-b"];
const REVOKED: &str = "node-c";
pub const USER: &str = "alice";

pub struct World {
    pub up: Up,
    runtime: tokio::runtime::Runtime,
    admin: kube::Client,
    anonymous: kube::Client,
    tokens: Vec<(Caller, String)>,
}

pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl World {
    /// Starts the system with two nodes, and a third whose Node is deleted again.
    pub fn start(scratch: &std::path::Path) -> Self {
        let up = Up::start_with(&scratch.join("data"), &["--nodes", "none"]);
        let (runtime, admin) = up.client();
        let anonymous = runtime.block_on(async {
            let path = up.data.join("kubeconfig");
            let mut config = kube::config::Kubeconfig::read_from(path).unwrap();
            for user in &mut config.auth_infos {
                user.auth_info = None;
            }
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(config, &options)
                .await
                .unwrap();
            kube::Client::try_from(config).unwrap()
        });
        let mut world = Self {
            up,
            runtime,
            admin,
            anonymous,
            tokens: Vec::new(),
        };
        for name in NODES {
            let token = world.join(name);
            world.tokens.push((Caller::Node(name), token));
        }
        let token = world.join(REVOKED);
        world.tokens.push((Caller::Revoked, token));
        let deleted = world.send(
            Caller::Admin,
            &Method::DELETE,
            &format!("/api/v1/nodes/{REVOKED}"),
            "",
            &[],
        );
        assert_eq!(deleted.unwrap().status, StatusCode::OK);
        world
    }

    fn join(&self, name: &str) -> String {
        let pattern = regex::Regex::new(r"([\w-]+\.[\w-]+)\.[\w-]{43}\b").unwrap();
        let data = self.up.data.to_str().unwrap().to_owned();
        let token = eventually("a join token is made", || {
            let output = self.up.mco(&["up", "--join-token", "--data-dir", &data]);
            let printed = crate::support::text(&output);
            pattern.captures(&printed).map(|found| found[1].to_owned())
        });
        // Any 256 bits; the server does not check how random they are.
        let credential = URL_SAFE_NO_PAD.encode(format!("{name:*<32}"));
        let body = json!({"node": name, "credential": credential}).to_string();
        let headers = [("authorization", format!("Bearer {token}"))];
        let joined = self.send_with(
            &self.anonymous,
            &Method::POST,
            "/join",
            "application/json",
            body.as_bytes(),
            &headers,
        );
        assert_eq!(joined.unwrap().status, StatusCode::OK, "{name} joins");
        credential
    }

    /// Sends one request; none if it is not even HTTP.
    pub fn send(
        &self,
        caller: Caller,
        method: &Method,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> Option<Answer> {
        let token = self.tokens.iter().find(|(owner, _)| *owner == caller);
        let (client, headers) = match (caller, token) {
            (Caller::Admin, _) => (&self.admin, vec![]),
            (Caller::User, _) => (&self.admin, vec![("impersonate-user", USER.to_owned())]),
            (_, Some((_, token))) => (
                &self.anonymous,
                vec![("authorization", format!("Bearer {token}"))],
            ),
            (_, None) => (&self.anonymous, vec![]),
        };
        self.send_with(client, method, path, kind, body, &headers)
    }

    fn send_with(
        &self,
        client: &kube::Client,
        method: &Method,
        path: &str,
        kind: &str,
        body: &[u8],
        headers: &[(&str, String)],
    ) -> Option<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(body.to_vec())).ok()?;
        let answer = async {
            let response = client.send(request).await.unwrap();
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            Answer {
                status,
                body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            }
        };
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(DEADLINE, answer).await });
        Some(answer.unwrap_or_else(|_| panic!("no response in time: {method} {path}")))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send(Caller::Admin, &Method::GET, path, "", &[]).unwrap()
    }

    /// Returns the resident memory of the process in MiB; none if it has ended.
    pub fn resident_mib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.up.pid())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib / 1024)
    }
}
