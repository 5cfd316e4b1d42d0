//! Requests with recorded responses of the Go implementation, compared by value.
//!
//! Two of its responses are bugs that are not reproduced: 500 for spec 3.0.0, which is served here, and 500 for a path
//! without a pool, for which no retry helps.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use mco_server::offline::DirectoryBackend;
use serde_json::Value;
use support::{Reply, Server};

fn text<'a>(request: &'a Value, key: &str) -> Option<&'a str> {
    request[key].as_str()
}

/// Returns the expected status where the original has a bug.
fn instead(request: &Value) -> Option<u16> {
    let asks_for_3_0 = text(request, "accept").is_some_and(|accept| accept.contains("version=3.0.0"));
    let names_no_pool = matches!(text(request, "path"), Some("/config" | "/config/"));
    match (request["status"].as_u64(), asks_for_3_0, names_no_pool) {
        (Some(500), true, _) => Some(200),
        (Some(500), _, true) => Some(404),
        _ => None,
    }
}

fn compare(name: &str, request: &Value, reply: &Reply) {
    if let Some(status) = instead(request) {
        assert_eq!(reply.status, status, "{name}");
        if status == 200 {
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(body["ignition"]["version"], "3.0.0", "{name}");
        }
        return;
    }
    assert_eq!(
        Some(u64::from(reply.status)),
        request["status"].as_u64(),
        "{name}"
    );
    let recorded = |header: &str| request["headers"][header].as_str();
    assert_eq!(reply.header("content-type"), recorded("content-type"), "{name}");
    if let Some(expected) = request.get("json") {
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert!(body == *expected, "{name}: expected\n{expected:#}\ngot\n{body:#}");
    } else {
        assert!(reply.body.is_empty(), "{name}: {:?}", reply.body);
        if reply.status != 200 {
            assert_eq!(
                reply.header("content-length"),
                recorded("content-length"),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn every_recorded_request_gets_the_recorded_answer() {
    let Some(serve) = mco_testkit::reference_data("vectors/serve") else {
        return;
    };
    let mut compared = 0;
    for case in std::fs::read_dir(serve).unwrap() {
        let case = case.unwrap().path();
        let server = Server::plain(&DirectoryBackend {
            base: case.join("basedir"),
            kubeconfig: case.join("kubeconfig"),
            certificates: Vec::new(),
            pools: vec!["master".to_owned(), "arbiter".to_owned()],
        })
        .await;
        let requests = std::fs::read_to_string(case.join("requests.jsonl")).unwrap();
        for (number, line) in requests.lines().enumerate() {
            let request: Value = serde_json::from_str(line).unwrap();
            let (method, path) = (text(&request, "method").unwrap(), text(&request, "path").unwrap());
            let accept = text(&request, "accept");
            let headers: Vec<_> = accept.map(|accept| ("Accept", accept)).into_iter().collect();
            let reply = server.request(method, path, &headers).await;
            let name = format!(
                "{} line {}: {method} {path} {accept:?}",
                case.display(),
                number + 1
            );
            compare(&name, &request, &reply);
            if method == "HEAD" && reply.status == 200 {
                let whole = server.get(path, &headers).await;
                assert_eq!(
                    reply.header("content-length"),
                    whole.header("content-length"),
                    "{name}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared > 50, "only {compared} requests were compared");
}
