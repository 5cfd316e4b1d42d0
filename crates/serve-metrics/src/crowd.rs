//! Everybody who is connected: a bounded number, however many come.

use std::collections::VecDeque;
use std::future::Future;

use tokio::task::{AbortHandle, JoinSet};

/// A few scrapers and a probe; each connection costs memory on every machine of a cluster.
const MOST: usize = 64;

/// Ends with everybody in it.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    conversations: JoinSet<()>,
    by_arrival: VecDeque<AbortHandle>,
}

impl Crowd {
    /// Lets one more in. Who has been here longest makes room: waiting for somebody to leave would let those who only stand
    /// around keep out the probes, and a process that is not seen alive is killed.
    pub fn admit(&mut self, conversation: impl Future<Output = ()> + Send + 'static) {
        self.by_arrival.retain(|one| !one.is_finished());
        if self.by_arrival.len() >= MOST
            && let Some(oldest) = self.by_arrival.pop_front()
        {
            oldest.abort();
        }
        self.by_arrival.push_back(self.conversations.spawn(conversation));
    }

    /// Never while nobody is here.
    pub async fn somebody_leaves(&mut self) {
        if self.conversations.join_next().await.is_none() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Present(Arc<AtomicUsize>);

    impl Drop for Present {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn who_only_stands_around_makes_room() {
        let mut crowd = Crowd::default();
        let present = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 * MOST {
            present.fetch_add(1, Ordering::Relaxed);
            let present = Present(Arc::clone(&present));
            crowd.admit(async move {
                let _present = present;
                std::future::pending().await
            });
        }
        for _ in 0..2 * MOST {
            crowd.somebody_leaves().await;
        }
        assert_eq!(present.load(Ordering::Relaxed), MOST);
        let (tell, told) = tokio::sync::oneshot::channel();
        crowd.admit(async move {
            let _ = tell.send("in");
        });
        assert_eq!(told.await, Ok("in"));
    }
}
