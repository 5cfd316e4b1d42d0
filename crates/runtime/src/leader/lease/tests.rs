use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use super::*;
use crate::leader::{LeaderElection, lead};

const LEASE: Duration = Duration::from_secs(6);
const DEADLINE: Duration = Duration::from_mins(2);

/// An API server with one lease and nothing else, so that the paused clock advances only where a test waits.
#[derive(Default)]
struct FakeApiServer {
    lease: Mutex<Option<Lease>>,
    version: AtomicUsize,
    /// How many of the next writes fail with a conflict.
    conflicts: AtomicUsize,
}

/// Requests and responses that are lost, as behind a firewall that drops packets.
#[derive(Default)]
struct Faults {
    lost_requests: AtomicUsize,
    /// Only responses of writes.
    lost_answers: AtomicUsize,
}

fn takes_one(count: &AtomicUsize) -> bool {
    let less = |count: usize| count.checked_sub(1);
    count
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        .is_ok()
}

impl FakeApiServer {
    fn client(self: &Arc<Self>) -> (Client, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        let (server, injected) = (Arc::clone(self), Arc::clone(&faults));
        let service = service_fn(move |request: Request<Body>| {
            let (server, faults) = (Arc::clone(&server), Arc::clone(&injected));
            async move {
                if takes_one(&faults.lost_requests) {
                    std::future::pending::<()>().await;
                }
                let writes = request.method() != Method::GET;
                let (code, answer) = server.answer(request).await;
                if writes && takes_one(&faults.lost_answers) {
                    std::future::pending::<()>().await;
                }
                let mut response = Response::new(Body::from(answer));
                *response.status_mut() = code;
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        (Client::new(service, "default"), faults)
    }

    async fn answer(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let method = request.method().clone();
        let written = request.into_body().collect_bytes().await.unwrap();
        let written: Option<Lease> = serde_json::from_slice(&written).ok();
        let mut lease = self.lease.lock().await;
        let is_current = |written: &Lease, lease: &Lease| {
            written.metadata.resource_version == lease.metadata.resource_version
        };
        let refused = match (method, lease.as_ref(), written) {
            (Method::POST, None, Some(written)) => {
                *lease = Some(self.next(written));
                None
            }
            (Method::POST, Some(_), _) => Some((StatusCode::CONFLICT, "AlreadyExists")),
            (Method::PUT, Some(found), Some(written)) => {
                if takes_one(&self.conflicts) || !is_current(&written, found) {
                    Some((StatusCode::CONFLICT, "Conflict"))
                } else {
                    *lease = Some(self.next(written));
                    None
                }
            }
            (Method::GET, Some(_), _) => None,
            _ => Some((StatusCode::NOT_FOUND, "NotFound")),
        };
        match refused {
            None => (StatusCode::OK, serde_json::to_vec(&*lease).unwrap()),
            Some((code, reason)) => {
                let status =
                    json!({"status": "Failure", "reason": reason, "message": reason, "code": code.as_u16()});
                (code, status.to_string().into_bytes())
            }
        }
    }

    fn next(&self, mut written: Lease) -> Lease {
        let version = self.version.fetch_add(1, Ordering::SeqCst);
        written.metadata.resource_version = Some(version.to_string());
        written
    }

    fn candidate(self: &Arc<Self>, identity: &str) -> (Candidate, Arc<Faults>) {
        let (client, faults) = self.client();
        let candidate = Candidate::new(client, "default", "leader", identity.to_owned(), LEASE);
        (candidate, faults)
    }

    async fn lease(&self) -> LeaseSpec {
        self.lease.lock().await.clone().unwrap().spec.unwrap()
    }

    async fn holder(&self) -> String {
        self.lease().await.holder_identity.unwrap_or_default()
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(DEADLINE, what).await.expect("in time")
}

#[test]
fn a_lease_expires_when_it_has_not_changed_for_its_whole_duration() {
    let start = Instant::now();
    let mut observed = ObservedLease::default();
    let mut at = |version: &str, seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        observed.update("other", version, now + LEASE);
        observed.is_valid(now)
    };
    assert!(
        at("1", 0),
        "its timestamps come from another clock and are ignored"
    );
    assert!(at("1", 5));
    assert!(at("2", 6), "it was renewed");
    assert!(at("2", 11));
    assert!(!at("2", 12));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_acquired_at_once_and_a_held_one_is_not() {
    let server = Arc::new(FakeApiServer::default());
    let (mut first, _) = server.candidate("first");
    let (mut second, _) = server.candidate("second");
    in_time(first.acquire()).await;
    assert_eq!(
        second.attempt().await.unwrap(),
        LeaseAttempt::HeldBy("first".to_owned())
    );
    second.release().await;
    let held = server.lease().await;
    assert_eq!(
        held.holder_identity.as_deref(),
        Some("first"),
        "only the holder releases it"
    );
    assert_eq!(
        (held.lease_duration_seconds, held.lease_transitions),
        (Some(6), Some(1))
    );
    assert_eq!(first.attempt().await.unwrap(), LeaseAttempt::Held);
    let renewed = server.lease().await;
    assert_eq!(renewed.acquire_time, held.acquire_time);
    assert_eq!(renewed.lease_transitions, Some(1));
    first.release().await;
    assert_eq!(second.attempt().await.unwrap(), LeaseAttempt::Held);
    assert_eq!(server.lease().await.lease_transitions, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_connection_stops_before_the_next_one_leads() {
    let server = Arc::new(FakeApiServer::default());
    let (mut first, faults) = server.candidate("first");
    let (mut second, _) = server.candidate("second");
    let held = in_time(first.acquire()).await;
    faults.lost_requests.store(usize::MAX, Ordering::SeqCst);
    let stopped = tokio::spawn(async move { (first.keep(held).await, Instant::now()) });
    in_time(second.acquire()).await;
    let leads = Instant::now();
    let (why, stopped) = in_time(stopped).await.unwrap();
    assert!(why.contains("request timed out"), "{why}");
    assert!(stopped < leads, "two led for {:?}", stopped - leads);
}

#[tokio::test(start_paused = true)]
async fn one_lost_request_does_not_cost_the_lease() {
    let server = Arc::new(FakeApiServer::default());
    let (mut first, faults) = server.candidate("first");
    let held = in_time(first.acquire()).await;
    faults.lost_requests.store(1, Ordering::SeqCst);
    let lost = timeout(LEASE * 2, first.keep(held)).await;
    assert!(lost.is_err(), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finds_another_one_stops() {
    let server = Arc::new(FakeApiServer::default());
    let (mut first, _) = server.candidate("first");
    let held = in_time(first.acquire()).await;
    let mut lease = server.lease.lock().await.clone().unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("second".to_owned());
    *server.lease.lock().await = Some(server.next(lease));
    assert_eq!(in_time(first.keep(held)).await, "second holds it");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_not_acquired_before_it_would_have_expired() {
    let server = Arc::new(FakeApiServer::default());
    let (mut first, _) = server.candidate("first");
    let (mut second, _) = server.candidate("second");
    in_time(first.acquire()).await;
    let held = LeaseAttempt::HeldBy("first".to_owned());
    assert_eq!(second.attempt().await.unwrap(), held);
    *server.lease.lock().await = None;
    assert_eq!(second.attempt().await.unwrap(), held);
    tokio::time::advance(LEASE / 2).await;
    assert_eq!(second.attempt().await.unwrap(), held);
    tokio::time::advance(LEASE / 2).await;
    assert_eq!(second.attempt().await.unwrap(), LeaseAttempt::Held);
    *server.lease.lock().await = None;
    assert_eq!(
        second.attempt().await.unwrap(),
        LeaseAttempt::Held,
        "the holder recreates its own"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_in_spite_of_conflicts() {
    let server = Arc::new(FakeApiServer::default());
    let (mut first, _) = server.candidate("first");
    in_time(first.acquire()).await;
    server.conflicts.store(2, Ordering::SeqCst);
    in_time(first.release()).await;
    assert_eq!(server.holder().await, "");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_stopped_before_its_acquisition_is_confirmed_releases_the_lease() {
    let server = Arc::new(FakeApiServer::default());
    let (client, faults) = server.client();
    faults.lost_answers.store(1, Ordering::SeqCst);
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let leading = tokio::spawn(async move {
        let election = LeaderElection {
            namespace: "default",
            lease: "leader",
            duration: LEASE,
        };
        let work = async |_| -> Result<(), String> { panic!("it does not lead") };
        lead(client, election, stopping, work).await
    });
    in_time(async {
        while server.lease.lock().await.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_ne!(server.holder().await, "");
    stop.cancel();
    in_time(leading).await.unwrap().unwrap();
    assert_eq!(server.holder().await, "");
}
