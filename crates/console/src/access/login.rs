//! Authentication: login codes and tokens become clients of the cluster.

use std::fmt;
use std::time::{Duration, Instant};

use kube::Client;
use mco_http::tokens::RandomError;
use parking_lot::Mutex;

use super::{TokenHash, generate};

/// Enough to switch to a browser; a code in a log or in a terminal's history is worthless afterwards.
const CODE_LIFETIME: Duration = Duration::from_mins(10);

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
    /// The code that works now, and when it was announced.
    code: Mutex<Option<(TokenHash, Instant)>>,
}

/// Why a login is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error(
        "this address was used already, or belongs to another console; use the newest one that it has printed"
    )]
    Code,
    #[error("this address has expired; use the newest one that the console has printed")]
    Expired,
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
            *owner.code.lock() = Some((TokenHash::of(&code), Instant::now()));
            (owner.announce)(&code);
        }
        Ok(())
    }

    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns the owner's client for the current code, which is revoked. After [`LoginError::Expired`] a new code has
    /// to be announced.
    pub(crate) fn with_code(&self, code: &str) -> Result<Client, LoginError> {
        self.with_code_at(code, Instant::now())
    }

    fn with_code_at(&self, code: &str, now: Instant) -> Result<Client, LoginError> {
        let owner = self.owner.as_ref().ok_or(LoginError::Code)?;
        let mut current = owner.code.lock();
        let Some((_, announced)) = current.take_if(|(hash, _)| *hash == TokenHash::of(code)) else {
            return Err(LoginError::Code);
        };
        if now.duration_since(announced) > CODE_LIFETIME {
            return Err(LoginError::Expired);
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_login_code_never_expired() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        let client = move || Client::new(service, "default");
        let codes: Arc<Mutex<Vec<String>>> = Arc::default();
        let announced = Arc::clone(&codes);
        let access = ConsoleAccess::new(move |_| Ok(client()))
            .with_owner(client(), move |code| announced.lock().push(code.to_owned()));
        access.new_code().unwrap();
        let code = codes.lock()[0].clone();
        let later = Instant::now() + CODE_LIFETIME + Duration::from_secs(1);
        let refused = |code: &str, at: Instant| access.with_code_at(code, at).err();
        assert_eq!(refused("guess", later), Some(LoginError::Code));
        assert_eq!(refused(&code, later), Some(LoginError::Expired));
        assert_eq!(
            refused(&code, Instant::now()),
            Some(LoginError::Code),
            "it is gone"
        );
        access.new_code().unwrap();
        let next = codes.lock()[1].clone();
        assert_eq!(refused(&next, Instant::now()), None);
        assert_eq!(
            refused(&next, Instant::now()),
            Some(LoginError::Code),
            "it works once"
        );
    }
}
