//! The console over its socket, on a real API: login, permissions, actions and live updates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixtures;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use fixtures::{HOSTILE, harmless, object};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_apiserver::{ApiServer, Identity};
use mco_console::{ConsoleAccess, ConsoleOptions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// The only name of the console.
const HOST: &str = "console.localhost";
const DEADLINE: Duration = Duration::from_secs(30);

struct World {
    server: Arc<ApiServer>,
    port: u16,
    codes: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    _data: tempfile::TempDir,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map_or("", |(_, value)| value)
    }

    fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap().to_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = ApiServer::open(data.path(), mco_apiserver::ApiServerOptions::default())
            .await
            .unwrap();
        let server = Arc::new(server);
        let admin = Client::new(server.service(), "default");
        for definition in mco_api::crds() {
            let value = serde_json::to_value(definition).unwrap();
            create::<CustomResourceDefinition>(&admin, value).await;
        }
        create::<MachineConfigPool>(
            &admin,
            json!({
                "metadata": {"name": "worker"},
                "spec": {
                    "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
                    "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
                },
            }),
        )
        .await;
        create::<Node>(
            &admin,
            serde_json::to_value(fixtures::node("worker-1", "", "", "Done")).unwrap(),
        )
        .await;

        let codes: Arc<Mutex<Vec<String>>> = Arc::default();
        let (reported, tokens) = (Arc::clone(&codes), Arc::clone(&server));
        let access = ConsoleAccess::new(move |token| {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            let service = tokens.anonymous_service().map_request(
                move |mut request: http::Request<kube::client::Body>| {
                    request.headers_mut().insert(AUTHORIZATION, bearer.clone());
                    request
                },
            );
            Ok(Client::new(service, "default"))
        })
        .with_owner(admin, move |code| reported.lock().push(code.to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        tokio::spawn(mco_console::run(
            listener,
            access,
            ConsoleOptions {
                host: Some(HOST.to_owned()),
                ..ConsoleOptions::new("0.0.0")
            },
            stop.clone(),
        ));
        let world = Self {
            server,
            port,
            codes,
            stop,
            _data: data,
        };
        eventually("the console prints its first code", async || {
            !world.codes.lock().is_empty()
        })
        .await;
        world
    }

    fn admin(&self) -> Client {
        Client::new(self.server.service(), "default")
    }

    /// Creates a token with read-only permissions.
    async fn viewer(&self) -> String {
        let admin = self.admin();
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
        create::<ClusterRole>(&admin, json!({"metadata": {"name": "look"}, "rules": rules})).await;
        create::<ClusterRoleBinding>(
            &admin,
            json!({
                "metadata": {"name": "look"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "look"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
            }),
        )
        .await;
        self.server.issue_token(&Identity::new("viewer", &[])).unwrap()
    }

    async fn send(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes))
            .await
            .unwrap()
            .unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    async fn get(&self, path: &str, cookie: &str) -> Answer {
        let host = format!("{HOST}:{}", self.port);
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n"
        ))
        .await
    }

    async fn post(&self, path: &str, cookie: &str, form: &[(&str, &str)]) -> Answer {
        self.post_from(path, cookie, form, "same-origin").await
    }

    async fn post_from(&self, path: &str, cookie: &str, form: &[(&str, &str)], site: &str) -> Answer {
        let body: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let (host, length) = (format!("{HOST}:{}", self.port), body.len());
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nsec-fetch-site: {site}\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n\
             {body}"
        ))
        .await
    }

    async fn log_in_as_owner(&self) -> String {
        let code = self.codes.lock().last().unwrap().clone();
        let answer = self.get(&format!("/login?code={code}"), "").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.cookie()
    }

    async fn is_paused(&self) -> bool {
        let pools: Api<MachineConfigPool> = Api::all(self.admin());
        pools.get("worker").await.unwrap().spec.paused
    }
}

async fn create<K>(client: &Client, value: Value)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    api.create(&PostParams::default(), &object(value)).await.unwrap();
}

async fn eventually(what: &str, check: impl AsyncFn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !check().await {
        assert!(Instant::now() < end, "timeout while waiting until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn csrf(page: &str) -> &str {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
    rest.split('"').next().unwrap()
}

#[tokio::test]
async fn nobody_sees_anything_before_the_login_and_a_code_opens_once() {
    let world = World::new().await;
    for path in [
        "/",
        "/pools/worker",
        "/nodes/worker-1",
        "/configs",
        "/plan",
        "/search?q=x",
        "/nonsense",
    ] {
        let answer = world.get(path, "").await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (303, "/login"),
            "{path}"
        );
        assert!(!answer.body.contains("worker"), "{path}");
    }
    assert_eq!(world.get("/live", "").await.status, 401);
    assert_eq!(world.get("/", "mco-console=guess").await.status, 303);
    assert_eq!(world.get("/login?code=guess", "").await.status, 403);

    let code = world.codes.lock()[0].clone();
    let first = world.get(&format!("/login?code={code}"), "").await;
    assert_eq!(first.status, 200);
    let cookie = first.header("set-cookie");
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    assert!(!cookie.contains(&code));
    assert_eq!(world.get("/", &first.cookie()).await.status, 200);

    let again = world.get(&format!("/login?code={code}"), "").await;
    assert_eq!((again.status, again.header("set-cookie")), (403, ""));
    assert_eq!(world.codes.lock().len(), 2, "the next code was printed");
    let second = world.log_in_as_owner().await;
    assert_eq!(world.get("/", &second).await.status, 200);

    let page = world.get("/", &second).await;
    let out = world
        .post("/logout", &second, &[("csrf", csrf(&page.body))])
        .await;
    assert_eq!(out.header("location"), "/login");
    assert_eq!(world.get("/", &second).await.status, 303);
    assert_eq!(
        world.get("/", &first.cookie()).await.status,
        200,
        "the other browser stays"
    );
}

#[tokio::test]
async fn every_answer_keeps_to_itself() {
    let world = World::new().await;
    let cookie = world.log_in_as_owner().await;
    for path in [
        "/",
        "/login",
        "/pools/worker",
        "/nonsense",
        "/static/console.js",
        "/static/console.css",
        "/%ff",
    ] {
        let answer = world.get(path, &cookie).await;
        let policy = answer.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{path}: {policy}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        let inline = ["<style", " style=", " onclick=", "javascript:"];
        if answer.header("content-type").starts_with("text/html") {
            assert_eq!(
                inline.iter().find(|text| answer.body.contains(**text)),
                None,
                "{path}"
            );
            assert_eq!(
                answer.body.matches("<script").count(),
                answer.body.matches("<script src=\"/static/").count()
            );
            assert_eq!(answer.header("cache-control"), "no-store");
        }
    }
}

#[tokio::test]
async fn a_token_gives_its_own_rights_and_no_others() {
    let world = World::new().await;
    let token = world.viewer().await;
    assert_eq!(world.post("/login", "", &[("token", "wrong")]).await.status, 403);
    assert_eq!(world.post("/login", "", &[("token", "")]).await.status, 403);
    let answer = world.post("/login", "", &[("token", &token)]).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let cookie = answer.cookie();

    let page = world.get("/pools/worker", &cookie).await.body;
    assert!(page.contains(">viewer<"), "{page}");
    assert!(!page.contains("Pause updates"), "no button that would not work");
    let mark = csrf(&page);
    let refused = world
        .post("/pools/worker/pause", &cookie, &[("csrf", mark)])
        .await;
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("cannot patch resource"), "{}", refused.body);
    assert!(!world.is_paused().await);

    let stranger = world.server.issue_token(&Identity::new("stranger", &[])).unwrap();
    let cookie = world.post("/login", "", &[("token", &stranger)]).await.cookie();
    let page = world.get("/", &cookie).await.body;
    assert!(page.contains("cannot list the pools"), "{page}");
    assert!(!page.contains("worker"), "{page}");
    assert_eq!(world.get("/configs", &cookie).await.status, 403);
}

#[tokio::test]
async fn a_pool_is_paused_by_our_own_form_alone() {
    let world = World::new().await;
    let cookie = world.log_in_as_owner().await;
    let page = world.get("/pools/worker", &cookie).await.body;
    assert!(page.contains("Pause updates"), "{page}");
    let mark = csrf(&page).to_owned();
    let path = "/pools/worker/pause";
    assert_eq!(world.post(path, &cookie, &[]).await.status, 403, "no mark");
    assert_eq!(
        world.post(path, &cookie, &[("csrf", "guess")]).await.status,
        403,
        "wrong mark"
    );
    for site in ["cross-site", "same-site"] {
        let answer = world.post_from(path, &cookie, &[("csrf", &mark)], site).await;
        assert_eq!(answer.status, 403, "{site}");
    }
    assert_eq!(
        world.post(path, "", &[("csrf", &mark)]).await.status,
        303,
        "no session"
    );
    assert!(!world.is_paused().await);

    let answer = world.post(path, &cookie, &[("csrf", &mark)]).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/pools/worker"));
    assert!(world.is_paused().await);
    eventually("the page offers to resume", async || {
        world
            .get("/pools/worker", &cookie)
            .await
            .body
            .contains("Resume updates")
    })
    .await;
    let resume = world
        .post("/pools/worker/resume", &cookie, &[("csrf", &mark)])
        .await;
    assert_eq!(resume.status, 303);
    assert!(!world.is_paused().await);
}

#[tokio::test]
async fn tabs_hear_of_changes_and_end_with_the_console() {
    let world = World::new().await;
    let cookie = world.log_in_as_owner().await;
    assert_eq!(world.get("/", &cookie).await.status, 200);
    let mut stream = TcpStream::connect(("127.0.0.1", world.port)).await.unwrap();
    let request = format!("GET /live HTTP/1.1\r\nhost: {HOST}\r\ncookie: {cookie}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = String::new();
    // A new connection gets an event immediately, because the state may have changed since the page was rendered.
    read_until(&mut stream, &mut heard, "event: change").await;
    assert!(heard.contains("text/event-stream"), "{heard}");

    heard.clear();
    let nodes: Api<Node> = Api::all(world.admin());
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes
        .patch("worker-1", &PatchParams::default(), &cordon)
        .await
        .unwrap();
    read_until(&mut stream, &mut heard, "event: change").await;
    let page = world.get("/nodes/worker-1", &cookie).await.body;
    assert!(page.contains("<dt>Cordoned</dt><dd>yes</dd>"), "{page}");
    world.stop.cancel();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the stream ends when the console does");
}

async fn read_until(stream: &mut TcpStream, heard: &mut String, wanted: &str) {
    let reading = async {
        while !heard.contains(wanted) {
            let mut buffer = [0; 1024];
            let number = stream.read(&mut buffer).await.unwrap();
            assert!(number > 0, "ended before {wanted}: {heard}");
            heard.push_str(&String::from_utf8_lossy(&buffer[..number]));
        }
    };
    tokio::time::timeout(DEADLINE, reading)
        .await
        .unwrap_or_else(|_| panic!("never heard {wanted}"));
}

/// Ten megabytes that compress to ten kilobytes.
fn bomb() -> String {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all("<script>alert(1)</script>\u{1b}[31m\n".repeat(300_000).as_bytes())
        .unwrap();
    base64::engine::general_purpose::STANDARD.encode(gzip.finish().unwrap())
}

#[tokio::test]
async fn a_hostile_machine_config_is_shown_harmlessly_everywhere() {
    let world = World::new().await;
    let script = "data:,%3Cscript%3Ealert(1)%3C%2Fscript%3E%1B%5B31m%0A";
    let value = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": "50-hostile",
            "labels": {"machineconfiguration.openshift.io/role": "worker"},
            "annotations": {"note": HOSTILE},
        },
        "spec": {
            "kernelArguments": ["a=<script>alert(1)</script>"],
            "config": {
                "ignition": {"version": "3.5.0"},
                "storage": {"files": [
                    {"path": "/etc/<script>alert(1)</script>", "mode": 420, "contents": {"source": script}},
                    {"path": "/etc/bomb", "mode": 420, "contents": {
                        "compression": "gzip", "source": format!("data:;base64,{}", bomb()),
                    }},
                ]},
            },
        },
    });
    create::<MachineConfig>(&world.admin(), value.clone()).await;
    let cookie = world.log_in_as_owner().await;
    let paths = [
        "/",
        "/pools/worker",
        "/nodes/worker-1?contents=1",
        "/configs",
        "/configs/50-hostile?contents=1",
        "/search?q=script",
        "/search?q=%3Cscript%3E&node=%3Cscript%3E",
        "/pools/%3Cscript%3Ealert(1)%3C%2Fscript%3E%1B",
        "/nodes/%3Cscript%3E",
        "/configs/%3Cscript%3E",
    ];
    for path in paths {
        let answer = world.get(path, &cookie).await;
        harmless(path, &answer.body);
        assert!(answer.body.len() < 200 << 10, "{path}: {}", answer.body.len());
    }
    let config = world.get("/configs/50-hostile?contents=1", &cookie).await.body;
    assert!(
        config.contains("&#60;script&#62;alert(1)") || config.contains("&lt;script&gt;alert(1)"),
        "{config}"
    );
    assert!(
        config.contains("10200000 bytes") || config.contains(" bytes sha256:"),
        "{config}"
    );
    assert!(config.contains("too large to be shown"), "{config}");

    let plan = world.get("/plan", &cookie).await.body;
    let yaml = value.to_string().replace("50-hostile", "51-hostile");
    let form = [("csrf", csrf(&plan)), ("yaml", &yaml), ("contents", "1")];
    let answer = world.post("/plan", &cookie, &form).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.contains("This is what would happen"),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("<script>"));

    let huge = "x".repeat(5 << 20);
    let answer = world
        .post("/plan", &cookie, &[("csrf", csrf(&plan)), ("yaml", &huge)])
        .await;
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("mco plan -f"), "{}", answer.body);
}

#[tokio::test]
async fn forms_of_clients_without_a_session_were_read_and_stored() {
    let world = World::new().await;
    let host = format!("{HOST}:{}", world.port);
    for (path, status) in [
        ("/plan", "303"),
        ("/pools/worker/pause", "303"),
        ("/login", "413"),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", world.port)).await.unwrap();
        // The body never comes: the response does not wait for it.
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 4000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = [0; 12];
        tokio::time::timeout(DEADLINE, stream.read_exact(&mut response))
            .await
            .expect("a response without the body")
            .unwrap();
        assert_eq!(
            std::str::from_utf8(&response).unwrap(),
            format!("HTTP/1.1 {status}"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_preview_of_a_link_used_up_the_login_code() {
    let world = World::new().await;
    let code = world.codes.lock().last().unwrap().clone();
    let host = format!("{HOST}:{}", world.port);
    let preview = world
        .send(&format!(
            "HEAD /login?code={code} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
        ))
        .await;
    assert_eq!((preview.status, preview.header("set-cookie")), (200, ""));
    world.log_in_as_owner().await;
}

#[tokio::test]
async fn a_session_is_never_started_under_a_name_that_other_programs_share() {
    let world = World::new().await;
    let code = world.codes.lock().last().unwrap().clone();
    let request =
        |host: &str| format!("GET /login?code={code} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let port = world.port;
    let shared = world.send(&request(&format!("127.0.0.1:{port}"))).await;
    assert_eq!((shared.status, shared.header("set-cookie")), (303, ""));
    let own = format!("http://{HOST}:{port}/login?code={code}");
    assert_eq!(shared.header("location"), own);
    let rebound = world.send(&request(&format!("evil.example.com:{port}"))).await;
    assert_eq!((rebound.status, rebound.header("set-cookie")), (421, ""));
    world.log_in_as_owner().await;
}
