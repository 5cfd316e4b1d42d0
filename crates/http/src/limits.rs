//! Limits of a listener, and the bounded set of its connections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{self, AbortHandle, JoinSet};

use crate::activity::ConnectionActivity;
use crate::{TextResponse, client_network};

/// What clients of one listener may use.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Connections served at once, fewer where descriptors would run out. One client network gets half of them.
    pub connections: usize,
    pub overflow: Overflow,
    /// Deadline of the TLS handshake, and then of the first request.
    pub handshake: Duration,
    /// Deadline for the headers of a request. It also closes connections that are idle for this long.
    pub headers: Duration,
    /// A write without progress for this long closes the connection.
    pub stall: Option<Duration>,
    /// Longest lifetime of a connection.
    pub lifetime: Option<Duration>,
    /// How long open requests may continue after the listener was stopped.
    pub drain: Duration,
}

/// What happens to connections over the limit while no other connection is idle.
#[derive(Clone, Copy, Debug)]
pub enum Overflow {
    /// They wait in the backlog of the kernel until a connection closes.
    Wait,
    /// They get this response and are closed. If too many of them come at once, the rest is closed without a response.
    Refuse(fn() -> TextResponse),
    /// The oldest connection is closed. No client may keep out a health probe, because a process that fails its probe
    /// is killed.
    EvictOldest,
}

/// The protocols of a listener.
#[derive(Clone, Copy, Debug)]
pub enum HttpProtocol {
    Http1(Http1Limits),
    Http1AndHttp2(Http2Limits),
}

/// Size limits of HTTP/1.1; the defaults of hyper where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http1Limits {
    pub headers: Option<usize>,
    pub header_bytes: Option<usize>,
    pub buffer_bytes: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub struct Http2Limits {
    /// Idle connections are probed this often, so that a peer that vanished does not hold a slot.
    pub keep_alive: Duration,
    pub streams: u32,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(30),
            streams: 1000,
        }
    }
}

/// Whether a connection is served or refused. Holds its slot until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionAdmission {
    /// The response to every request of a refused connection.
    pub refusal: Option<fn() -> TextResponse>,
    pub activity: Arc<ConnectionActivity>,
    slot: AdmissionSlot,
}

#[derive(Debug)]
enum AdmissionSlot {
    NotNeeded,
    Held(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit),
    /// That of an idle connection, which is being closed.
    Freed(Arc<Semaphore>),
}

impl ConnectionAdmission {
    fn new(refusal: Option<fn() -> TextResponse>, slot: AdmissionSlot) -> Self {
        Self {
            refusal,
            activity: Arc::default(),
            slot,
        }
    }

    /// Waits for the slot of the connection that was closed for this one.
    pub async fn admitted(&mut self) {
        if let AdmissionSlot::Freed(slots) = &self.slot
            && let Ok(slot) = Arc::clone(slots).acquire_owned().await
        {
            self.slot = AdmissionSlot::Held(slot);
        }
    }
}

/// The open connections of a listener. Dropping it closes them.
///
/// A new connection over the limit replaces one that is idle, so that idle clients cannot keep others out. One client
/// gets at most half of the connections; a load balancer, behind which many machines have one address, needs that many.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    most: usize,
    overflow: Overflow,
    serving: Arc<Semaphore>,
    refusing: Arc<Semaphore>,
    connections: JoinSet<()>,
    open: HashMap<task::Id, OpenConnection>,
    by_client: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct OpenConnection {
    client: IpAddr,
    activity: Arc<ConnectionActivity>,
    task: AbortHandle,
    is_evicted: bool,
}

impl ConnectionLimit {
    pub fn new(most: usize, overflow: Overflow) -> Self {
        Self {
            most,
            overflow,
            serving: Arc::new(Semaphore::new(most)),
            refusing: Arc::new(Semaphore::new((most / 8).max(16))),
            connections: JoinSet::new(),
            open: HashMap::new(),
            by_client: HashMap::new(),
        }
    }

    /// Whether to accept a connection now; if not, one has to close first.
    pub fn may_accept(&self) -> bool {
        !matches!(self.overflow, Overflow::Wait)
            || self.serving.available_permits() > 0
            || self.victim(|_| true).is_some()
    }

    /// Returns what to do with a new connection; `None` to close it at once.
    pub fn admit(&mut self, client: IpAddr) -> Option<ConnectionAdmission> {
        let client = client_network(client);
        if matches!(self.overflow, Overflow::EvictOldest) {
            let staying = self.by_client.values().sum::<usize>();
            if staying >= self.most && !self.evict_idle_where(|_| true) {
                self.evict_oldest();
            }
            return Some(ConnectionAdmission::new(None, AdmissionSlot::NotNeeded));
        }
        let share = (self.most / 2).max(1);
        let is_over_share = self.by_client.get(&client).is_some_and(|count| *count >= share);
        if is_over_share && !self.evict_idle_where(|open| open.client == client) {
            return self.refused();
        }
        let slot = match Arc::clone(&self.serving).try_acquire_owned() {
            Ok(slot) => AdmissionSlot::Held(slot),
            Err(_) if is_over_share || self.evict_idle_where(|_| true) => {
                AdmissionSlot::Freed(Arc::clone(&self.serving))
            }
            Err(_) => return self.refused(),
        };
        Some(ConnectionAdmission::new(None, slot))
    }

    fn refused(&self) -> Option<ConnectionAdmission> {
        let Overflow::Refuse(response) = self.overflow else {
            return None;
        };
        let slot = Arc::clone(&self.refusing).try_acquire_owned().ok()?;
        Some(ConnectionAdmission::new(
            Some(response),
            AdmissionSlot::Held(slot),
        ))
    }

    /// Closes an idle connection, if there is one.
    pub fn evict_idle(&mut self) {
        self.evict_idle_where(|_| true);
    }

    /// Closes an idle connection and returns whether there was one.
    fn evict_idle_where(&mut self, may_close: impl Fn(&OpenConnection) -> bool) -> bool {
        let victim = self.victim(may_close);
        victim.map(|id| self.evict(id)).is_some()
    }

    fn evict(&mut self, id: task::Id) {
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        open.is_evicted = true;
        open.task.abort();
        let client = open.client;
        self.forget_client(client);
    }

    /// Counts a connection of a client as closed. One that is evicted counts no longer, although its task has not ended
    /// yet.
    fn forget_client(&mut self, client: IpAddr) {
        if let Entry::Occupied(mut count) = self.by_client.entry(client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn victim(&self, may_close: impl Fn(&OpenConnection) -> bool) -> Option<task::Id> {
        let candidates = self
            .open
            .iter()
            .filter(|(_, open)| !open.is_evicted && may_close(open));
        candidates
            .filter_map(|(id, open)| Some((open.activity.eviction_rank()?, *id)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, id)| id)
    }

    fn evict_oldest(&mut self) {
        let staying = self.open.iter().filter(|(_, open)| !open.is_evicted);
        if let Some(oldest) = staying.map(|(id, _)| *id).min() {
            self.evict(oldest);
        }
    }

    pub fn spawn(
        &mut self,
        client: IpAddr,
        activity: Arc<ConnectionActivity>,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        let client = client_network(client);
        let task = self.connections.spawn(connection);
        *self.by_client.entry(client).or_default() += 1;
        let open = OpenConnection {
            client,
            activity,
            task,
            is_evicted: false,
        };
        self.open.insert(open.task.id(), open);
    }

    /// Waits until a connection closes; never returns while there is none.
    pub async fn closed(&mut self) {
        let Some(ended) = self.connections.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        if let Some(open) = self.open.remove(&id)
            && !open.is_evicted
        {
            self.forget_client(open.client);
        }
    }

    /// Waits until all connections are closed.
    pub async fn drained(&mut self) {
        while self.connections.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::StatusCode;

    use super::*;
    use crate::activity::RequestInProgress;

    const MOST: usize = 8;
    const BUSY: Overflow = Overflow::Refuse(|| crate::text(StatusCode::SERVICE_UNAVAILABLE, "busy\n"));

    struct Open(Arc<AtomicUsize>);

    impl Drop for Open {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// Opens a connection that stays open; `None` if it is not admitted.
    fn open(limit: &mut ConnectionLimit, from: IpAddr) -> Option<Arc<ConnectionActivity>> {
        let mut admission = limit.admit(from)?;
        if admission.refusal.is_some() {
            return None;
        }
        let activity = Arc::clone(&admission.activity);
        limit.spawn(from, Arc::clone(&activity), async move {
            admission.admitted().await;
            std::future::pending().await
        });
        Some(activity)
    }

    /// Completes a request.
    fn respond(activity: &Arc<ConnectionActivity>) {
        drop(activity.begin());
        assert_eq!(activity.eviction_rank(), None, "its response is being sent");
        activity.flushed();
    }

    fn flush_all(limit: &ConnectionLimit) {
        limit.open.values().for_each(|open| open.activity.flushed());
    }

    /// Opens a connection with a request in progress.
    fn busy(limit: &mut ConnectionLimit, from: IpAddr) -> Option<RequestInProgress> {
        open(limit, from).map(|activity| activity.begin())
    }

    #[tokio::test]
    async fn an_idle_connection_is_evicted_for_a_new_one() {
        for overflow in [Overflow::EvictOldest, Overflow::Wait, BUSY] {
            let mut limit = ConnectionLimit::new(MOST, overflow);
            let open = Arc::new(AtomicUsize::new(0));
            for number in 0..3 * u8::try_from(MOST).unwrap() {
                assert!(limit.may_accept());
                let mut admission = limit.admit(client(number)).unwrap();
                assert!(admission.refusal.is_none());
                open.fetch_add(1, Ordering::Relaxed);
                let connection = Open(Arc::clone(&open));
                limit.spawn(client(number), Arc::clone(&admission.activity), async move {
                    let _connection = connection;
                    admission.admitted().await;
                    std::future::pending().await
                });
            }
            for _ in 0..2 * MOST {
                limit.closed().await;
            }
            assert_eq!(open.load(Ordering::Relaxed), MOST);
            assert_eq!((limit.open.len(), limit.by_client.len()), (MOST, MOST));
        }
    }

    #[tokio::test]
    async fn connections_without_a_request_go_first_and_busy_ones_stay() {
        let mut limit = ConnectionLimit::new(4, Overflow::Wait);
        let mut requests = vec![busy(&mut limit, client(1)).unwrap()];
        let used = open(&mut limit, client(2)).unwrap();
        respond(&used);
        let silent = open(&mut limit, client(3)).unwrap();
        let used_later = open(&mut limit, client(4)).unwrap();
        respond(&used_later);
        for victim in [&silent, &used] {
            requests.push(busy(&mut limit, client(5)).unwrap());
            limit.closed().await;
            assert!(
                !limit
                    .open
                    .values()
                    .any(|open| Arc::ptr_eq(&open.activity, victim))
            );
        }
        requests.push(busy(&mut limit, client(6)).unwrap());
        limit.closed().await;
        assert!(!limit.may_accept(), "all connections have a request in progress");
        assert!(limit.admit(client(7)).is_none());
    }

    #[tokio::test]
    async fn one_client_got_all_connections() {
        let mut limit = ConnectionLimit::new(MOST, BUSY);
        let greedy: Vec<_> = (0..MOST).map_while(|_| busy(&mut limit, client(1))).collect();
        assert_eq!(greedy.len(), MOST / 2);
        let others: Vec<_> = (2..100)
            .map_while(|number| busy(&mut limit, client(number)))
            .collect();
        assert_eq!(others.len(), MOST / 2);
        drop(greedy);
        flush_all(&limit);
        assert!(
            open(&mut limit, client(1)).is_some(),
            "its idle connections make room"
        );
    }

    #[tokio::test]
    async fn a_burst_of_one_client_closed_its_newest_connection() {
        for overflow in [Overflow::EvictOldest, Overflow::Wait, BUSY] {
            let mut limit = ConnectionLimit::new(MOST, overflow);
            // No task ends in between.
            for _ in 0..10 * MOST {
                assert!(open(&mut limit, client(1)).is_some());
            }
            let staying = limit.open.values().filter(|open| !open.is_evicted).count();
            let expected = if matches!(overflow, Overflow::EvictOldest) {
                MOST
            } else {
                MOST / 2
            };
            assert_eq!(staying, expected, "{overflow:?}");
        }
    }

    #[tokio::test]
    async fn connections_over_the_limit_are_refused_and_a_flood_of_them_is_closed() {
        let mut limit = ConnectionLimit::new(MOST, BUSY);
        let requests: Vec<_> = (0..100)
            .map_while(|number| busy(&mut limit, client(number)))
            .collect();
        assert_eq!(requests.len(), MOST);
        let refused: Vec<_> = (100..200)
            .map_while(|number| limit.admit(client(number)))
            .collect();
        assert!(refused.iter().all(|admission| admission.refusal.is_some()));
        assert_eq!(refused.len(), 16);
        assert!(limit.may_accept(), "to close the rest");
        drop((refused, requests));
        flush_all(&limit);
        assert!(open(&mut limit, client(200)).is_some());
    }
}
