//! The credential behind a request. Requests and open streams are served only while it is valid.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Identity, TokenHash};
use crate::http::Api;

/// A caller and the proof of its identity.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticatedCaller {
    pub identity: Identity,
    pub credential: Credential,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A client in this process, which needs none.
    InProcess,
    Token(TokenHash),
    /// A client certificate, with the name of the CA that issued it.
    Certificate {
        issuer: String,
    },
}

/// The access of one open stream, which ends with the credential of its caller.
#[derive(Debug)]
pub(crate) struct StreamAccess {
    api: Arc<Api>,
    credential: Credential,
    revocations: watch::Receiver<()>,
}

impl StreamAccess {
    pub fn new(api: &Arc<Api>, credential: &Credential) -> Self {
        Self {
            revocations: api.tokens.revocations(),
            api: Arc::clone(api),
            credential: credential.clone(),
        }
    }

    pub fn is_valid(&self) -> bool {
        self.api.is_valid(&self.credential)
    }

    /// Waits until the credential is revoked.
    pub async fn revoked(&mut self) {
        if self.credential == Credential::InProcess {
            return std::future::pending().await;
        }
        // The sender lives as long as the API, which this borrows.
        while self.revocations.changed().await.is_ok() {
            if !self.is_valid() {
                return;
            }
        }
    }
}
