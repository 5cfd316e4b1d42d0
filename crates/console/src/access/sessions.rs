//! Who is logged in. Bounded in number and time; gone with the process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Hashed, secret};
use crate::hub::Hub;

/// A working day.
const IDLE: Duration = Duration::from_hours(12);
/// Beyond it the one that was idle longest is forgotten.
const MOST: usize = 256;

/// One browser of one person.
#[derive(Debug)]
pub(crate) struct Session {
    pub hub: Arc<Hub>,
    /// Every form carries it, and nobody else's page can know it.
    pub csrf: String,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<Hashed, (Arc<Session>, Instant)>>,
    /// People who are logged in more than once share their watches.
    hubs: Mutex<HashMap<Hashed, Weak<Hub>>>,
}

impl Sessions {
    /// The view of somebody who is logged in already.
    pub fn hub(&self, credential: &str) -> Option<Arc<Hub>> {
        self.hubs.lock().get(&Hashed::of(credential))?.upgrade()
    }

    /// Starts a session and returns its id, for the cookie and nothing else.
    pub fn start(&self, credential: &str, hub: Arc<Hub>) -> Result<String, getrandom::Error> {
        let id = secret()?;
        let session = Arc::new(Session { hub, csrf: secret()? });
        let mut hubs = self.hubs.lock();
        hubs.retain(|_, hub| hub.strong_count() > 0);
        hubs.insert(Hashed::of(credential), Arc::downgrade(&session.hub));
        drop(hubs);
        let mut sessions = self.by_id.lock();
        sessions.retain(|_, (_, used)| used.elapsed() < IDLE);
        while sessions.len() >= MOST {
            let idlest = sessions.iter().min_by_key(|(_, (_, used))| *used);
            let Some(idlest) = idlest.map(|(id, _)| *id) else {
                break;
            };
            sessions.remove(&idlest);
        }
        sessions.insert(Hashed::of(&id), (session, Instant::now()));
        Ok(id)
    }

    pub fn find(&self, id: &str) -> Option<Arc<Session>> {
        let mut sessions = self.by_id.lock();
        let (session, used) = sessions.get_mut(&Hashed::of(id))?;
        if used.elapsed() >= IDLE {
            return None;
        }
        *used = Instant::now();
        Some(Arc::clone(session))
    }

    pub fn end(&self, id: &str) {
        self.by_id.lock().remove(&Hashed::of(id));
    }
}
