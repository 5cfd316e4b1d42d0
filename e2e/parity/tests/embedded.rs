//! Every transcript that needs no kubectl, against the embedded control plane: its responses must equal those of a real
//! kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mco_apiserver::store::Retention;
use mco_apiserver::{ApiServer, ApiServerOptions};
use mco_parity::server::Server;
use mco_parity::suite::{Data, Report, needs_kubectl, play_all};
use tokio::net::TcpListener;

/// As short as the history of the real server in the suites, to test expiry.
const HISTORY: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_control_plane_answers_like_a_real_kube_apiserver() {
    let directory = tempfile::tempdir().unwrap();
    let retention = Retention {
        age: HISTORY,
        ..Retention::default()
    };
    let embedded = Arc::new(
        ApiServer::open(
            directory.path(),
            ApiServerOptions {
                retention,
                // The real one was recorded without a controller manager.
                namespace_content: false,
                ..ApiServerOptions::default()
            },
        )
        .await
        .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let kubeconfig = embedded.write_kubeconfig(&url).unwrap();
    let serving = Arc::clone(&embedded);
    tokio::spawn(async move { serving.serve(listener, &url).await });

    let data = Data::new(Path::new(env!("CARGO_MANIFEST_DIR")));
    let mut transcripts = data.transcripts().unwrap();
    transcripts.retain(|transcript| !needs_kubectl(transcript));
    let server = Arc::new(Server::from_kubeconfig(&kubeconfig).await.unwrap());
    let mut report = Report::default();
    for (transcript, played) in play_all(transcripts, &server, None).await.unwrap() {
        data.judge(&transcript, &played, &mut report).unwrap();
    }
    let failures = report.failures;
    assert!(
        failures.is_empty(),
        "{}\n{} passed, {} failed",
        failures.join("\n"),
        report.passed,
        failures.len()
    );
}
