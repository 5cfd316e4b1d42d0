//! The sessions of logged-in browsers, in memory, bounded in number and time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mco_http::tokens::RandomError;
use parking_lot::Mutex;

use super::{TokenHash, generate};
use crate::hub::Hub;

/// A working day.
const IDLE: Duration = Duration::from_hours(12);
/// Beyond it the session that was idle longest is evicted.
const MAX_SESSIONS: usize = 256;

/// One browser of one user.
#[derive(Debug)]
pub(crate) struct Session {
    pub hub: Arc<Hub>,
    /// The CSRF token of every form, which pages of other sites cannot read.
    pub csrf: String,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<TokenHash, (Arc<Session>, Instant)>>,
    /// Sessions of one user share their watches.
    hubs: Mutex<HashMap<TokenHash, Weak<Hub>>>,
}

impl Sessions {
    /// Returns the hub of a user who is logged in already.
    pub fn hub(&self, credential: &str) -> Option<Arc<Hub>> {
        self.hubs.lock().get(&TokenHash::of(credential))?.upgrade()
    }

    /// Starts a session and returns its id for the cookie.
    pub fn start(&self, credential: &str, hub: Arc<Hub>) -> Result<String, RandomError> {
        let id = generate()?;
        let session = Arc::new(Session {
            hub,
            csrf: generate()?,
        });
        let mut hubs = self.hubs.lock();
        hubs.retain(|_, hub| hub.strong_count() > 0);
        hubs.insert(TokenHash::of(credential), Arc::downgrade(&session.hub));
        drop(hubs);
        let mut sessions = self.by_id.lock();
        sessions.retain(|_, (_, used)| used.elapsed() < IDLE);
        while sessions.len() >= MAX_SESSIONS {
            let oldest = sessions.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(id, _)| *id) else {
                break;
            };
            sessions.remove(&oldest);
        }
        sessions.insert(TokenHash::of(&id), (session, Instant::now()));
        Ok(id)
    }

    /// Returns a session that has not expired and marks it as used.
    pub fn find(&self, id: &str) -> Option<Arc<Session>> {
        let mut sessions = self.by_id.lock();
        let (session, used) = sessions.get_mut(&TokenHash::of(id))?;
        if used.elapsed() >= IDLE {
            return None;
        }
        *used = Instant::now();
        Some(Arc::clone(session))
    }

    pub fn end(&self, id: &str) {
        self.by_id.lock().remove(&TokenHash::of(id));
    }
}
