//! Authentication: login codes and tokens become clients of the cluster.

use std::fmt;

use kube::Client;
use mco_http::tokens::RandomError;
use parking_lot::Mutex;

use super::{TokenHash, generate};

type ClientWithToken = dyn Fn(&str) -> Result<Client, kube::Error> + Send + Sync;
type Announce = dyn Fn(&str) + Send + Sync;

/// Turns logins into clients. The console has no client of its own.
pub struct ConsoleAccess {
    with_token: Box<ClientWithToken>,
    owner: Option<ConsoleOwner>,
}

/// The user who started the console on their own machine, with their credentials.
struct ConsoleOwner {
    client: Client,
    announce: Box<Announce>,
    code: Mutex<Option<TokenHash>>,
}

/// Why a login is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error(
        "this address was used already, or belongs to another console; use the newest one that it has printed"
    )]
    Code,
    #[error("this is not a token that the cluster accepts")]
    Token,
}

impl fmt::Debug for ConsoleAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleAccess")
            .field("owner", &self.owner.is_some())
            .finish_non_exhaustive()
    }
}

impl ConsoleAccess {
    /// Accepts bearer tokens of the cluster. `with_token` returns a client whose only credential is the token.
    pub fn new(with_token: impl Fn(&str) -> Result<Client, kube::Error> + Send + Sync + 'static) -> Self {
        Self {
            with_token: Box::new(with_token),
            owner: None,
        }
    }

    /// Also accepts the user who started the console, with a code that works once. `announce` is called with the first
    /// code, and with the next one when a code was used.
    #[must_use]
    pub fn with_owner(mut self, client: Client, announce: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.owner = Some(ConsoleOwner {
            client,
            announce: Box::new(announce),
            code: Mutex::default(),
        });
        self
    }

    /// Creates and announces a new code and revokes the old one.
    pub(crate) fn new_code(&self) -> Result<(), RandomError> {
        if let Some(owner) = &self.owner {
            let code = generate()?;
            *owner.code.lock() = Some(TokenHash::of(&code));
            (owner.announce)(&code);
        }
        Ok(())
    }

    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns the owner's client for the current code, which is revoked.
    pub(crate) fn with_code(&self, code: &str) -> Result<Client, LoginError> {
        let owner = self.owner.as_ref().ok_or(LoginError::Code)?;
        let mut expected = owner.code.lock();
        if *expected != Some(TokenHash::of(code)) {
            return Err(LoginError::Code);
        }
        *expected = None;
        Ok(owner.client.clone())
    }

    /// Returns a client for a token of the cluster, which is not verified yet.
    pub(crate) fn with_token(&self, token: &str) -> Result<Client, LoginError> {
        // A token must be usable as a header value.
        let plausible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !plausible {
            return Err(LoginError::Token);
        }
        (self.with_token)(token).map_err(|_| LoginError::Token)
    }
}
