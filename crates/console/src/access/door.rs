//! What opens the console, and whom one is then.

use std::fmt;

use kube::Client;
use parking_lot::Mutex;

use super::{Hashed, secret};

type ClientWithToken = dyn Fn(&str) -> Result<Client, kube::Error> + Send + Sync;
type Announce = dyn Fn(&str) + Send + Sync;

/// Turns a login into a client. The console itself never has another one.
pub struct Door {
    with_token: Box<ClientWithToken>,
    owner: Option<Owner>,
}

/// The person who started the console, on whose machine it runs and whose credentials it was given.
struct Owner {
    client: Client,
    announce: Box<Announce>,
    code: Mutex<Option<Hashed>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("this address was used already, or is not of this console; use the newest one it has told")]
    Code,
    #[error("this is not a token that the cluster accepts")]
    Token,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("owner", &self.owner.is_some())
            .finish_non_exhaustive()
    }
}

impl Door {
    /// Opens for bearer tokens of the cluster: `with_token` makes a client that has nothing but the token.
    pub fn new(with_token: impl Fn(&str) -> Result<Client, kube::Error> + Send + Sync + 'static) -> Self {
        Self {
            with_token: Box::new(with_token),
            owner: None,
        }
    }

    /// Opens also for the person who started the console, with a code that works once. `announce` is told the code, and
    /// the next one as soon as it was used.
    #[must_use]
    pub fn with_owner(mut self, client: Client, announce: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.owner = Some(Owner {
            client,
            announce: Box::new(announce),
            code: Mutex::default(),
        });
        self
    }

    /// Makes and announces a new code; the one before is worth nothing from now on.
    pub(crate) fn new_code(&self) -> Result<(), getrandom::Error> {
        if let Some(owner) = &self.owner {
            let code = secret()?;
            *owner.code.lock() = Some(Hashed::of(&code));
            (owner.announce)(&code);
        }
        Ok(())
    }

    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// The owner's client for the right code, which is used up by that.
    pub(crate) fn with_code(&self, code: &str) -> Result<Client, Refused> {
        let owner = self.owner.as_ref().ok_or(Refused::Code)?;
        let mut expected = owner.code.lock();
        if *expected != Some(Hashed::of(code)) {
            return Err(Refused::Code);
        }
        *expected = None;
        Ok(owner.client.clone())
    }

    pub(crate) fn with_token(&self, token: &str) -> Result<Client, Refused> {
        // What cannot be a header cannot be a token either.
        let plausible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !plausible {
            return Err(Refused::Token);
        }
        (self.with_token)(token).map_err(|_| Refused::Token)
    }
}
