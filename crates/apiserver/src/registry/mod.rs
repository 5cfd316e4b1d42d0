//! The verbs, as functions over the store. HTTP requests, controllers and tests call them.
//!
//! The registry implements create, update, patch and delete. It is independent of HTTP, authorization and the
//! representation of responses.

mod create;
mod delete;
mod generate;
mod list;
mod managers;
mod patch;
mod pods;
mod scale;
mod strategy;
mod typed;
mod update;
mod validate;

use std::fmt::Debug;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::RwLock;

pub use delete::{DeleteOptions, DeleteResult, PropagationPolicy};
pub(crate) use delete::{FOREGROUND, ORPHAN};
pub use generate::uid as new_uid;
pub use list::{ListOptions, ObjectList, RevisionMatch};
pub use managers::ManagedFieldsUpdate;
pub use patch::ObjectPatch;
pub(crate) use pods::is_ready as pod_is_ready;
pub(crate) use strategy::unregistered;
pub use update::UpdateResult;

use crate::admission::{Admission, AdmissionOperation, AdmissionRequest};
use crate::catalog::{Catalog, ResourceDefinition};
use crate::clock::Clock;
use crate::crd;
use crate::decode::FieldValidation;
use crate::error::ApiError;
use crate::meta::JsonObject;
use crate::store::{ObjectKey, ObjectStore, StoredObject};

/// The caller and the options of a write.
#[derive(Clone, Debug)]
pub struct WriteContext {
    pub user: String,
    pub groups: Vec<String>,
    /// The manager recorded in `metadata.managedFields`.
    pub field_manager: String,
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    pub managed_fields: ManagedFieldsUpdate,
    /// The UID of the object that a create stores; a random one if unset. Only the embedding program sets it.
    pub object_uid: Option<String>,
}

impl WriteContext {
    /// Returns the context of a write by the server itself.
    pub fn internal(manager: &str) -> Self {
        Self {
            user: format!("system:{manager}"),
            groups: vec!["system:masters".to_owned()],
            field_manager: manager.to_owned(),
            dry_run: false,
            field_validation: FieldValidation::Ignore,
            managed_fields: ManagedFieldsUpdate::Pending,
            object_uid: None,
        }
    }
}

/// The object that results from a write, and the warnings for the client.
#[derive(Debug)]
pub struct WriteResult {
    pub stored: Arc<StoredObject>,
    pub warnings: Vec<String>,
}

/// The object that a request names.
#[derive(Clone, Debug)]
pub struct ObjectTarget {
    pub definition: Arc<ResourceDefinition>,
    pub namespace: String,
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl ObjectTarget {
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.definition.storage, &self.namespace, &self.name)
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(self.definition.subject(&self.name))
    }
}

#[derive(Debug)]
pub struct ObjectRegistry {
    pub store: Arc<ObjectStore>,
    catalog: RwLock<Arc<Catalog>>,
    clock: Arc<dyn Clock>,
    admission: Vec<Arc<dyn Admission>>,
}

impl ObjectRegistry {
    pub fn new(store: Arc<ObjectStore>, clock: Arc<dyn Clock>, admission: Vec<Arc<dyn Admission>>) -> Self {
        Self {
            store,
            catalog: RwLock::new(Arc::new(Catalog::with(&[]))),
            clock,
            admission,
        }
    }

    /// Returns the current catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Rebuilds the catalog from the store, one rebuild at a time.
    pub(crate) fn replace_catalog(&self, build: impl FnOnce(&ObjectStore, &Catalog) -> Arc<Catalog>) {
        let mut catalog = self.catalog.write();
        *catalog = build(&self.store, &catalog);
    }

    /// Updates the catalog after a write of a definition, before the client gets the response.
    fn after_write(&self, target: &ObjectTarget) {
        if &*target.definition.storage == crd::RESOURCE {
            crd::reload(self);
        }
    }

    /// Returns the target of a cluster-scoped object.
    pub fn cluster_target(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        name: &str,
    ) -> Result<ObjectTarget, ApiError> {
        let catalog = self.catalog();
        let definition = catalog
            .resource(group, version, plural)
            .ok_or_else(|| ApiError::internal(format!("{plural} are not served")))?;
        Ok(ObjectTarget {
            definition: Arc::clone(definition),
            namespace: String::new(),
            name: name.to_owned(),
            subresource: String::new(),
        })
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn get(&self, target: &ObjectTarget) -> Result<Arc<StoredObject>, ApiError> {
        self.store.get(&target.key()).ok_or_else(|| target.not_found())
    }

    /// Delays an error until its cause is readable: accepted writes count before they are visible.
    async fn delay_until_cause_is_visible<T>(&self, outcome: Result<T, ApiError>) -> Result<T, ApiError> {
        if let Err(error) = &outcome
            && (error.is_not_found() || error.is_conflict() || error.is_already_exists())
        {
            self.store.settled().await;
        }
        outcome
    }

    /// Runs the admission plugins and returns the object to store.
    fn admit(
        &self,
        operation: AdmissionOperation,
        target: &ObjectTarget,
        context: &WriteContext,
        mut object: Option<JsonObject>,
        old: Option<&JsonObject>,
    ) -> Result<Option<JsonObject>, ApiError> {
        for hook in &self.admission {
            let request = AdmissionRequest {
                operation,
                definition: &target.definition,
                namespace: &target.namespace,
                name: &target.name,
                subresource: &target.subresource,
                object: object.as_ref(),
                old,
                user: &context.user,
                groups: &context.groups,
                dry_run: context.dry_run,
                store: &self.store,
            };
            match hook.review(&request) {
                Ok(None) => {}
                Ok(Some(replaced)) => object = Some(replaced),
                Err(rejection) => return Err(refused(target, &rejection.message, rejection.code)),
            }
        }
        Ok(object)
    }
}

/// When a client retries a write that a limit has rejected. Quotas become free as objects expire, not at once.
const RETRY_AFTER_SECONDS: u32 = 60;

fn refused(target: &ObjectTarget, message: &str, code: StatusCode) -> ApiError {
    let mut error = ApiError::forbidden(target.definition.subject(&target.name), message);
    error.code = code;
    match code {
        StatusCode::UNPROCESSABLE_ENTITY => error.reason = "Invalid",
        StatusCode::NOT_FOUND => {
            error.reason = "NotFound";
            message.clone_into(&mut error.message);
        }
        StatusCode::TOO_MANY_REQUESTS => {
            return ApiError::too_many_requests(message, RETRY_AFTER_SECONDS);
        }
        _ => {}
    }
    error
}
