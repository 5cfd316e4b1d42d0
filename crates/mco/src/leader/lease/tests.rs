use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use kube::client::Body;
use mco_apiserver::{Options, Server};
use tower::{ServiceExt as _, service_fn};

use super::*;

const LEASE: Duration = Duration::from_secs(6);
const DEADLINE: Duration = Duration::from_mins(2);

/// A cluster, and candidates in it that can be cut off.
struct Cluster {
    server: Server,
    _directory: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::open(directory.path(), Options::default()).await.unwrap();
        Self {
            server,
            _directory: directory,
        }
    }

    /// As long as it is cut off, nobody answers it, as behind a firewall that drops packets.
    fn candidate(&self, identity: &str) -> (Candidate, Arc<AtomicBool>) {
        let cut = Arc::new(AtomicBool::new(false));
        let service = self.server.service();
        let is_cut = Arc::clone(&cut);
        let service = service_fn(move |request: Request<Body>| {
            let (service, is_cut) = (service.clone(), Arc::clone(&is_cut));
            async move {
                if is_cut.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                service.oneshot(request).await
            }
        });
        let client = Client::new(service, "default");
        (
            Candidate::new(client, "default", "leader", identity.to_owned(), LEASE),
            cut,
        )
    }

    async fn lease(&self) -> LeaseSpec {
        let client = Client::new(self.server.service(), "default");
        let leases: Api<Lease> = Api::default_namespaced(client);
        leases.get("leader").await.unwrap().spec.unwrap()
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(DEADLINE, what).await.expect("in time")
}

#[test]
fn a_lease_is_free_when_it_has_not_changed_for_its_whole_duration() {
    let start = Instant::now();
    let mut seen = Seen::default();
    let mut at =
        |version: &str, seconds: u64| seen.has_expired(version, LEASE, start + Duration::from_secs(seconds));
    assert!(!at("1", 0), "however old it is: its times are another clock's");
    assert!(!at("1", 5));
    assert!(!at("2", 6), "it was renewed");
    assert!(!at("2", 11));
    assert!(at("2", 12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_given_back_is_had_at_once_and_a_held_one_is_not() {
    let cluster = Cluster::start().await;
    let (mut first, _) = cluster.candidate("first");
    let (mut second, _) = cluster.candidate("second");
    in_time(first.acquire()).await;
    assert_eq!(
        second.attempt().await.unwrap(),
        Attempt::HeldBy("first".to_owned())
    );
    second.release().await;
    let held = cluster.lease().await;
    assert_eq!(
        held.holder_identity.as_deref(),
        Some("first"),
        "it was not the second's to give"
    );
    assert_eq!(
        (held.lease_duration_seconds, held.lease_transitions),
        (Some(6), Some(1))
    );
    assert_eq!(first.attempt().await.unwrap(), Attempt::Held);
    let renewed = cluster.lease().await;
    assert_eq!(renewed.acquire_time, held.acquire_time);
    assert_eq!(renewed.lease_transitions, Some(1));
    first.release().await;
    assert_eq!(second.attempt().await.unwrap(), Attempt::Held);
    assert_eq!(cluster.lease().await.lease_transitions, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_nobody_answers_stops_before_the_next_one_leads() {
    let cluster = Cluster::start().await;
    let (mut first, cut) = cluster.candidate("first");
    let (mut second, _) = cluster.candidate("second");
    let held = in_time(first.acquire()).await;
    cut.store(true, Ordering::SeqCst);
    let stopped = tokio::spawn(async move { (first.keep(held).await, Instant::now()) });
    in_time(second.acquire()).await;
    let leads = Instant::now();
    let (why, stopped) = in_time(stopped).await.unwrap();
    assert!(why.contains("nobody answers"), "{why}");
    assert!(stopped < leads, "two led for {:?}", stopped - leads);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_finds_another_one_stops() {
    let cluster = Cluster::start().await;
    let (mut first, _) = cluster.candidate("first");
    let held = in_time(first.acquire()).await;
    let client = Client::new(cluster.server.service(), "default");
    let leases: Api<Lease> = Api::default_namespaced(client);
    let patch = serde_json::json!({"spec": {"holderIdentity": "second"}});
    leases
        .patch(
            "leader",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(patch),
        )
        .await
        .unwrap();
    assert_eq!(in_time(first.keep(held)).await, "second holds it");
}
