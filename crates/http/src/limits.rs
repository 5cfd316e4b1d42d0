//! Limits of a listener, and the bounded set of its connections.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};

use crate::TextResponse;

/// What clients of one listener may use.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Connections served at once.
    pub connections: usize,
    pub overflow: Overflow,
    /// Deadline of the TLS handshake.
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

/// What happens to connections over the limit.
#[derive(Clone, Copy, Debug)]
pub enum Overflow {
    /// They wait in the backlog of the kernel until a connection closes.
    Wait,
    /// They get this response and are closed. If too many of them come at once, the rest is closed without a response.
    Refuse(fn() -> TextResponse),
    /// The oldest connection is closed. Idle clients must not keep out a health probe, because a process that fails its
    /// probe is killed.
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
    _slot: Option<OwnedSemaphorePermit>,
}

impl ConnectionAdmission {
    fn serve(slot: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            refusal: None,
            _slot: slot,
        }
    }
}

/// The open connections of a listener. Dropping it closes them.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    most: usize,
    overflow: Overflow,
    serving: Arc<Semaphore>,
    refusing: Arc<Semaphore>,
    connections: JoinSet<()>,
    /// Oldest first; only for [`Overflow::EvictOldest`].
    by_age: VecDeque<AbortHandle>,
}

impl ConnectionLimit {
    pub fn new(most: usize, overflow: Overflow) -> Self {
        Self {
            most,
            overflow,
            serving: Arc::new(Semaphore::new(most)),
            refusing: Arc::new(Semaphore::new((most / 8).max(16))),
            connections: JoinSet::new(),
            by_age: VecDeque::new(),
        }
    }

    /// Whether to accept a connection now; if not, one has to close first.
    pub fn may_accept(&self) -> bool {
        !matches!(self.overflow, Overflow::Wait) || self.serving.available_permits() > 0
    }

    /// Returns what to do with a new connection; `None` to close it at once.
    pub fn admit(&mut self) -> Option<ConnectionAdmission> {
        match self.overflow {
            Overflow::EvictOldest => {
                self.by_age.retain(|connection| !connection.is_finished());
                if self.by_age.len() >= self.most
                    && let Some(oldest) = self.by_age.pop_front()
                {
                    oldest.abort();
                }
                Some(ConnectionAdmission::serve(None))
            }
            Overflow::Wait => {
                let slot = Arc::clone(&self.serving).try_acquire_owned().ok()?;
                Some(ConnectionAdmission::serve(Some(slot)))
            }
            Overflow::Refuse(response) => {
                if let Ok(slot) = Arc::clone(&self.serving).try_acquire_owned() {
                    return Some(ConnectionAdmission::serve(Some(slot)));
                }
                let slot = Arc::clone(&self.refusing).try_acquire_owned().ok()?;
                Some(ConnectionAdmission {
                    refusal: Some(response),
                    _slot: Some(slot),
                })
            }
        }
    }

    pub fn spawn(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        let handle = self.connections.spawn(connection);
        if matches!(self.overflow, Overflow::EvictOldest) {
            self.by_age.push_back(handle);
        }
    }

    /// Waits until a connection closes; never returns while there is none.
    pub async fn closed(&mut self) {
        if self.connections.join_next().await.is_none() {
            std::future::pending().await
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

    const MOST: usize = 8;

    struct Open(Arc<AtomicUsize>);

    impl Drop for Open {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn an_idle_connection_is_evicted_for_a_new_one() {
        let mut limit = ConnectionLimit::new(MOST, Overflow::EvictOldest);
        let open = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 * MOST {
            let admission = limit.admit().unwrap();
            open.fetch_add(1, Ordering::Relaxed);
            let connection = Open(Arc::clone(&open));
            limit.spawn(async move {
                let (_admission, _connection) = (admission, connection);
                std::future::pending().await
            });
        }
        for _ in 0..2 * MOST {
            limit.closed().await;
        }
        assert_eq!(open.load(Ordering::Relaxed), MOST);
        assert!(limit.admit().is_some());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        limit.spawn(async move {
            let _ = sender.send("served");
        });
        assert_eq!(receiver.await, Ok("served"));
    }

    #[tokio::test]
    async fn connections_wait_for_a_slot() {
        let mut limit = ConnectionLimit::new(1, Overflow::Wait);
        assert!(limit.may_accept());
        let slot = limit.admit().unwrap();
        assert!(!limit.may_accept());
        assert!(limit.admit().is_none());
        limit.spawn(async move { drop(slot) });
        limit.closed().await;
        assert!(limit.may_accept());
    }

    #[test]
    fn connections_over_the_limit_are_refused_and_a_flood_of_them_is_closed() {
        let busy = || crate::text(StatusCode::SERVICE_UNAVAILABLE, "busy\n");
        let mut limit = ConnectionLimit::new(MOST, Overflow::Refuse(busy));
        let admitted: Vec<_> = (0..100).map_while(|_| limit.admit()).collect();
        let served = admitted
            .iter()
            .filter(|admission| admission.refusal.is_none())
            .count();
        assert_eq!((served, admitted.len()), (MOST, MOST + 16));
        assert!(limit.may_accept(), "to close the rest");
        drop(admitted);
        assert!(limit.admit().is_some_and(|admission| admission.refusal.is_none()));
    }
}
