//! Asks the cluster whose a token is and whether they may get `/metrics`. No token is logged or kept.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use thiserror::Error;
use tokio::time::Instant;

use crate::memory::{Fingerprint, Memory, Verdict};

/// Scrapers give up after ten seconds themselves.
const PATIENCE: Duration = Duration::from_secs(9);

#[derive(Debug, Error)]
pub(crate) enum ReviewError {
    #[error("{0}")]
    Refused(#[from] kube::Error),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    TooSlow,
}

pub(crate) struct Reviewer {
    client: kube::Client,
    memory: Mutex<Memory>,
    /// Strangers can make us ask as often as they like, but not more than one question at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Reviewer {
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            memory: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub async fn verdict(&self, token: &str) -> Result<Verdict, ReviewError> {
        let fingerprint = Fingerprint::of(token);
        if let Some(verdict) = self.recall(fingerprint) {
            return Ok(verdict);
        }
        let asked = tokio::time::timeout(PATIENCE, self.ask_once(fingerprint, token));
        asked.await.map_err(|_| ReviewError::TooSlow)?
    }

    async fn ask_once(&self, fingerprint: Fingerprint, token: &str) -> Result<Verdict, ReviewError> {
        let _turn = self.turn.lock().await;
        // Whoever had the turn before may have asked the same.
        if let Some(verdict) = self.recall(fingerprint) {
            return Ok(verdict);
        }
        let verdict = self.ask(token).await?;
        self.memory().keep(fingerprint, verdict, Instant::now());
        Ok(verdict)
    }

    fn recall(&self, fingerprint: Fingerprint) -> Option<Verdict> {
        self.memory().recall(fingerprint, Instant::now())
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, token: &str) -> Result<Verdict, kube::Error> {
        let Some(user) = self.owner(token).await? else {
            return Ok(Verdict::Unknown);
        };
        Ok(if self.is_allowed(user).await? {
            Verdict::Allowed
        } else {
            Verdict::Forbidden
        })
    }

    async fn owner(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn is_allowed(&self, user: UserInfo) -> Result<bool, kube::Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(crate::METRICS.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}
