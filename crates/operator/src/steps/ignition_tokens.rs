//! The tokens with which machines fetch their first configuration from the config server.
//!
//! A pool's token is in its managed pointer config, and its hash in a Secret that is mounted into the servers. Both are
//! written by the operator alone.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use mco_api::vocabulary::names;
use mco_core::generators::user_data;
use mco_http::pool_tokens::{PoolTokens, TokenRecord};
use mco_http::tokens::{self, RandomError, TokenHash};
use thiserror::Error;

use crate::cluster::{ClusterError, OperatorClient, metadata};
use crate::manifests::SERVER_TOKENS_KEY;
use crate::steps::user_data::{NAMESPACE, USER_DATA};

const DAY: Duration = Duration::from_hours(24);
/// The lifetime of a token. It is long, because administrators copy pointer configs into images and installers.
const LIFETIME: Duration = DAY.saturating_mul(365);
/// A token is replaced this long before it expires; until then the old one is valid too.
const RENEWAL: Duration = DAY.saturating_mul(180);

#[derive(Debug, Error)]
pub enum IgnitionTokenError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("time does not fit into the expiry of a token: {0}")]
    Time(#[from] jiff::Error),
    #[error("{0} cannot be written as JSON: {1}")]
    Encode(&'static str, #[source] serde_json::Error),
}

/// Returns the present token of each pool. New ones are recorded first, so that no machine has a token before the
/// servers accept it.
pub async fn present(
    cluster: &OperatorClient,
    pools: &[&str],
    now: Timestamp,
) -> Result<BTreeMap<String, String>, IgnitionTokenError> {
    let found = cluster
        .secret(names::NAMESPACE, names::secret::SERVER_TOKENS)
        .await?;
    let recorded = found.as_ref().and_then(recorded);
    let mut used = BTreeMap::new();
    for pool in pools {
        let managed = cluster.secret(NAMESPACE, &names::secret::user_data(pool)).await?;
        if let Some(token) = managed.as_ref().and_then(token_of) {
            used.insert((*pool).to_owned(), token);
        }
    }
    let before = recorded.clone().unwrap_or_default();
    let (records, present) = renewed(before, pools, &used, now)?;
    if recorded.as_ref() != Some(&records) {
        cluster.apply(&secret(&records)?).await?;
    }
    Ok(present)
}

/// Returns the records and the tokens to use. A token is replaced if it has no record, which is how it is revoked, or
/// expires soon. Records of deleted pools are dropped.
fn renewed(
    mut records: PoolTokens,
    pools: &[&str],
    used: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(PoolTokens, BTreeMap<String, String>), IgnitionTokenError> {
    records
        .tokens
        .retain(|record| !record.is_expired(now) && pools.contains(&record.pool.as_str()));
    let renewal = now.checked_add(RENEWAL)?;
    let mut present = BTreeMap::new();
    for pool in pools {
        let is_current = |token: &String| {
            let hash = TokenHash::of(token).to_hex();
            let mut matching = records.tokens.iter();
            matching.any(|record| {
                record.pool == **pool
                    && record.sha256.eq_ignore_ascii_case(&hash)
                    && !record.is_expired(renewal)
            })
        };
        let token = if let Some(token) = used.get(*pool).filter(|token| is_current(token)) {
            token.clone()
        } else {
            let token = tokens::generate()?;
            let record = TokenRecord::new(pool, &token, now.checked_add(LIFETIME)?);
            records.tokens.push(record);
            token
        };
        present.insert((*pool).to_owned(), token);
    }
    Ok((records, present))
}

/// Returns the records of the Secret. An unreadable one counts as absent: all tokens are replaced.
fn recorded(secret: &Secret) -> Option<PoolTokens> {
    let text = &secret.data.as_ref()?.get(SERVER_TOKENS_KEY)?.0;
    match PoolTokens::parse(text) {
        Ok(records) => Some(records),
        Err(problem) => {
            let name = names::secret::SERVER_TOKENS;
            tracing::warn!("Secret {}/{name} is replaced: {problem}", names::NAMESPACE);
            None
        }
    }
}

fn token_of(secret: &Secret) -> Option<String> {
    user_data::token(&secret.data.as_ref()?.get(USER_DATA)?.0)
}

fn secret(records: &PoolTokens) -> Result<Secret, IgnitionTokenError> {
    let text = serde_json::to_vec_pretty(records)
        .map_err(|source| IgnitionTokenError::Encode("the records of tokens", source))?;
    Ok(Secret {
        metadata: metadata(Some(names::NAMESPACE), names::secret::SERVER_TOKENS),
        type_: Some("Opaque".to_owned()),
        data: Some([(SERVER_TOKENS_KEY.to_owned(), ByteString(text))].into()),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_until_it_is_revoked_or_about_to_expire() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let pools = ["master", "worker"];
        let (records, first) = renewed(PoolTokens::default(), &pools, &BTreeMap::new(), now).unwrap();
        assert_eq!(records.tokens.len(), 2);
        assert_ne!(first["master"], first["worker"]);
        for pool in pools {
            assert_eq!(records.check(Some(&first[pool]), pool, now), Ok(()));
        }
        let again = renewed(records.clone(), &pools, &first, now).unwrap();
        assert_eq!(again, (records.clone(), first.clone()));

        let mut revoked = records.clone();
        revoked.tokens.retain(|record| record.pool != "worker");
        let (after, second) = renewed(revoked, &pools, &first, now).unwrap();
        assert_eq!(second["master"], first["master"]);
        assert!(after.check(Some(&first["worker"]), "worker", now).is_err());
        assert_eq!(after.check(Some(&second["worker"]), "worker", now), Ok(()));

        // One day after the renewal is due.
        let late = now.checked_add(DAY * (365 - 180 + 1)).unwrap();
        let (after, third) = renewed(records, &pools, &first, late).unwrap();
        assert_ne!(third["worker"], first["worker"]);
        assert_eq!(
            after.check(Some(&first["worker"]), "worker", late),
            Ok(()),
            "machines that are being created have the old one"
        );
        let (after, _) = renewed(after, &["master"], &third, late).unwrap();
        assert!(after.tokens.iter().all(|record| record.pool == "master"));
    }
}
