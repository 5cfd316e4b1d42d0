//! Lists: revision, selection and paging.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use serde::{Deserialize, Serialize};

use super::ObjectRegistry;
use crate::catalog::ResourceDefinition;
use crate::decode;
use crate::error::ApiError;
use crate::present::ListMeta;
use crate::selection::ObjectSelection;
use crate::store::{ObjectPage, StoredObject};

/// How long a list waits for a revision that does not exist yet.
const FRESH_ENOUGH: Duration = Duration::from_secs(3);

const TOKEN: base64::engine::GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionMatch {
    Exact,
    NotOlderThan,
}

#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// `None` when unset; zero means "any".
    pub revision: Option<u64>,
    pub revision_match: Option<RevisionMatch>,
    pub limit: usize,
    pub continue_token: String,
}

/// A list, or a page of one.
#[derive(Debug)]
pub struct ObjectList {
    pub objects: Vec<Arc<StoredObject>>,
    pub meta: ListMeta,
}

/// The continue token of a paged list, in the format of Kubernetes.
#[derive(Debug, Serialize, Deserialize)]
struct ContinueToken {
    v: String,
    /// Negative for an inconsistent continuation.
    rv: i64,
    start: String,
}

impl ObjectRegistry {
    pub async fn list(
        &self,
        definition: &Arc<ResourceDefinition>,
        selection: &ObjectSelection,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiError> {
        let page = self.page(definition, selection, options).await?;
        let mut objects = page.objects;
        objects.retain(|stored| selection.selects(stored));
        let mut meta = ListMeta {
            revision: page.revision,
            ..ListMeta::default()
        };
        if options.limit > 0 && objects.len() > options.limit {
            let rest = objects.split_off(options.limit);
            if selection.is_everything() {
                meta.remaining = Some(rest.len());
            }
            let start = rest
                .first()
                .map(|stored| stored.key.path.to_string())
                .unwrap_or_default();
            meta.continue_token = Some(token(page.revision, &start)?);
        }
        Ok(ObjectList { objects, meta })
    }

    async fn page(
        &self,
        definition: &Arc<ResourceDefinition>,
        selection: &ObjectSelection,
        options: &ListOptions,
    ) -> Result<ObjectPage, ApiError> {
        let resource = &*definition.storage;
        if !options.continue_token.is_empty() {
            return self.continued(resource, selection, options);
        }
        let exact = match (options.revision_match, options.revision) {
            (Some(RevisionMatch::Exact), Some(revision)) => Some(revision),
            // Without a match rule, a limited list at a revision means exactly that revision.
            (None, Some(revision)) if revision > 0 && options.limit > 0 => Some(revision),
            _ => None,
        };
        self.wait_for(options.revision.unwrap_or(0)).await?;
        match exact {
            None => Ok(self.current(resource, selection)),
            Some(revision) => self
                .store
                .list_at(resource, &selection.namespace, revision, None)
                .map_err(|_| ApiError::expired("The resourceVersion for the provided list is too old.")),
        }
    }

    /// Returns the current objects. A selection of one name reads only that object.
    fn current(&self, resource: &str, selection: &ObjectSelection) -> ObjectPage {
        match selection.only_name() {
            Some(name) if !selection.namespace.is_empty() || !self.is_namespaced(resource) => {
                let resource = Arc::from(resource);
                let key = crate::store::ObjectKey::new(&resource, &selection.namespace, name);
                self.store.get_page(&key)
            }
            _ => self.store.list(resource, &selection.namespace),
        }
    }

    fn is_namespaced(&self, resource: &str) -> bool {
        self.catalog()
            .stored(resource)
            .is_none_or(|definition| definition.namespaced)
    }

    fn continued(
        &self,
        resource: &str,
        selection: &ObjectSelection,
        options: &ListOptions,
    ) -> Result<ObjectPage, ApiError> {
        if options.revision.is_some_and(|revision| revision > 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let invalid = |why: &str| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = TOKEN
            .decode(options.continue_token.trim_end_matches('='))
            .map_err(|error| invalid(&error.to_string()))?;
        let decoded = decode::decode(&bytes, None).map_err(|error| invalid(&error.to_string()))?;
        let token: ContinueToken =
            serde_json::from_value(decoded.value).map_err(|error| invalid(&error.to_string()))?;
        if token.v != TOKEN_VERSION {
            return Err(invalid(&format!(
                "server does not recognize this encoded version {:?}",
                token.v
            )));
        }
        let Ok(revision) = u64::try_from(token.rv) else {
            let mut page = self.store.list(resource, &selection.namespace);
            page.objects.retain(|stored| *stored.key.path >= *token.start);
            return Ok(page);
        };
        self.store
            .list_at(resource, &selection.namespace, revision, Some(&token.start))
            .map_err(|_| expired_token(&token.start))
    }

    /// Waits until a revision is visible.
    pub async fn wait_for(&self, revision: u64) -> Result<(), ApiError> {
        if self.store.revision() >= revision {
            return Ok(());
        }
        match tokio::time::timeout(FRESH_ENOUGH, self.store.reached(revision)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(ApiError::revision_too_large(revision, self.store.revision())),
        }
    }
}

fn token(revision: u64, start: &str) -> Result<String, ApiError> {
    encode(&ContinueToken {
        v: TOKEN_VERSION.to_owned(),
        rv: i64::try_from(revision).map_err(ApiError::internal)?,
        start: start.to_owned(),
    })
}

fn encode(token: &ContinueToken) -> Result<String, ApiError> {
    Ok(TOKEN.encode(serde_json::to_vec(token).map_err(ApiError::internal)?))
}

fn expired_token(start: &str) -> ApiError {
    let inconsistent = encode(&ContinueToken {
        v: TOKEN_VERSION.to_owned(),
        rv: -1,
        start: start.to_owned(),
    });
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.continue_token = inconsistent.ok();
    error
}
