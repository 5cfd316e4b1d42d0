//! What a connection is doing: whether it has sent a request, and whether one is in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Orders the moments at which connections became idle.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// The activity of one connection, shared by the connection and its listener.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    requests: AtomicU64,
    in_progress: AtomicUsize,
    /// Whether a response has ended that may be in the buffers of the protocol yet.
    is_unsent: AtomicBool,
    idle_since: AtomicU64,
}

/// How readily a connection is closed for a new one: first those without any request, then those that have been idle
/// for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionRank {
    has_requested: bool,
    idle_since: u64,
}

impl Default for ConnectionActivity {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            in_progress: AtomicUsize::new(0),
            is_unsent: AtomicBool::new(false),
            idle_since: AtomicU64::new(SEQUENCE.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl ConnectionActivity {
    /// Counts a request as in progress until the guard is dropped, which is when its response has ended, and the
    /// connection is flushed.
    pub fn begin(self: &Arc<Self>) -> RequestInProgress {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        RequestInProgress(Arc::clone(self))
    }

    /// Records that everything was written to the socket.
    pub fn flushed(&self) {
        self.is_unsent.store(false, Ordering::Relaxed);
    }

    /// Returns the rank of an idle connection; `None` while a request is in progress or its response is being sent.
    pub fn eviction_rank(&self) -> Option<EvictionRank> {
        let is_idle =
            self.in_progress.load(Ordering::Acquire) == 0 && !self.is_unsent.load(Ordering::Relaxed);
        is_idle.then(|| EvictionRank {
            has_requested: self.requests.load(Ordering::Relaxed) > 0,
            idle_since: self.idle_since.load(Ordering::Relaxed),
        })
    }
}

#[derive(Debug)]
pub(crate) struct RequestInProgress(Arc<ConnectionActivity>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let now = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        self.0.idle_since.store(now, Ordering::Relaxed);
        self.0.is_unsent.store(true, Ordering::Relaxed);
        self.0.in_progress.fetch_sub(1, Ordering::Release);
    }
}
