//! Authenticates and authorizes scrapers with TokenReview and SubjectAccessReview. No token is logged or stored.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use thiserror::Error;
use tokio::time::Instant;

use super::review_cache::{ReviewCache, ReviewVerdict};
use crate::tokens::TokenHash;

/// Scrapers time out after ten seconds.
const DEADLINE: Duration = Duration::from_secs(9);

#[derive(Debug, Error)]
pub(super) enum ReviewError {
    #[error("{0}")]
    Failed(#[from] kube::Error),
    #[error("no response within {} s", DEADLINE.as_secs())]
    TimedOut,
}

pub(super) struct TokenReviewer {
    client: kube::Client,
    cache: Mutex<ReviewCache>,
    /// Unauthenticated clients can cause any number of reviews, but only one at a time.
    in_progress: tokio::sync::Mutex<()>,
}

impl TokenReviewer {
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            cache: Mutex::default(),
            in_progress: tokio::sync::Mutex::default(),
        }
    }

    pub async fn verdict(&self, token: &str) -> Result<ReviewVerdict, ReviewError> {
        let hash = TokenHash::of(token);
        if let Some(verdict) = self.cached(hash) {
            return Ok(verdict);
        }
        let review = tokio::time::timeout(DEADLINE, self.review_once(hash, token));
        review.await.map_err(|_| ReviewError::TimedOut)?
    }

    async fn review_once(&self, hash: TokenHash, token: &str) -> Result<ReviewVerdict, ReviewError> {
        let _guard = self.in_progress.lock().await;
        // A request that held the lock before may have reviewed the same token.
        if let Some(verdict) = self.cached(hash) {
            return Ok(verdict);
        }
        let verdict = self.review(token).await?;
        self.cache().insert(hash, verdict, Instant::now());
        Ok(verdict)
    }

    fn cached(&self, hash: TokenHash) -> Option<ReviewVerdict> {
        self.cache().get(hash, Instant::now())
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, ReviewCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn review(&self, token: &str) -> Result<ReviewVerdict, kube::Error> {
        let Some(user) = self.authenticate(token).await? else {
            return Ok(ReviewVerdict::Unauthenticated);
        };
        Ok(if self.is_authorized(user).await? {
            ReviewVerdict::Allowed
        } else {
            ReviewVerdict::Forbidden
        })
    }

    async fn authenticate(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
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

    async fn is_authorized(&self, user: UserInfo) -> Result<bool, kube::Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(super::METRICS.to_owned()),
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
