//! Requests for resources: from a path and a method to a call of the registry.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::body::ApiBody;
use super::negotiate::{self, PatchFormat, ResponseEncoding};
use super::path::ResourcePath;
use super::{Api, ApiCall, cost, respond, reviews};
use crate::admission::AdmissionWarnings;
use crate::audit;
use crate::auth::{RequestAttributes, StreamAccess};
use crate::catalog::ResourceDefinition;
use crate::error::{self, ApiError};
use crate::patch::json::JsonPatch;
use crate::present::{Presenter, Representation};
use crate::registry::{DeleteResult, ObjectTarget, WriteContext, WriteResult};
use crate::selection::ObjectSelection;
use crate::selector::FieldSelector;
use crate::watch::{ObjectWatch, WatchSpec, WatchStart};

/// The timeout of a watch without its own. A jitter of up to the same time is added, so that watches that began
/// together, for example after a restart, do not end together.
const WATCH_LASTS: Duration = Duration::from_mins(30);

pub(super) async fn serve(
    api: &Arc<Api>,
    call: &Arc<ApiCall>,
    path: ResourcePath,
) -> Result<Response<ApiBody>, ApiError> {
    let catalog = api.registry.catalog();
    let verb = verb(call, &path);
    let definition = catalog.resource(&path.group, &path.version, &path.resource);
    api.require(&call.identity, &attributes(call, &path, verb, definition))?;
    let Some(definition) = definition else {
        return match catalog.group_version(&path.group, &path.version) {
            Some(_) => Err(ApiError::unknown_resource()),
            None => Ok(respond::not_found_page()),
        };
    };
    let request = ResourceRequest {
        api,
        call,
        verb,
        warnings: AdmissionWarnings::default(),
        target: ObjectTarget {
            definition: Arc::clone(definition),
            namespace: path.namespace,
            name: path.name,
            subresource: path.subresource,
        },
    };
    let mut outcome = if cost::is_heavy(&request) {
        run_on_cpu_threads(&request, path.watch).await
    } else {
        request.run(path.watch).await
    };
    let warnings = request.warnings.take();
    if audit::is_recorded(&call.identity, verb, &request.target) {
        audit::write(
            &call.identity,
            verb,
            &request.target,
            outcome.as_ref().map_or_else(|error| error.code, Response::status),
        );
    }
    if !warnings.is_empty() {
        // Warnings belong to an error response as well.
        let mut response = outcome.unwrap_or_else(|error| respond::error(&error));
        respond::warn(&mut response, &warnings);
        outcome = Ok(response);
    }
    outcome
}

/// Runs a request on the threads for CPU-heavy work.
async fn run_on_cpu_threads(
    request: &ResourceRequest<'_>,
    legacy_watch: bool,
) -> Result<Response<ApiBody>, ApiError> {
    let (api, call) = (Arc::clone(request.api), Arc::clone(request.call));
    let (verb, target, warnings) = (request.verb, request.target.clone(), request.warnings.clone());
    let work = Box::pin(async move {
        let request = ResourceRequest {
            api: &api,
            call: &call,
            verb,
            warnings,
            target,
        };
        request.run(legacy_watch).await
    });
    request.api.cpu.run(&request.call.identity, work).await
}

/// Returns the verb as authorization and discovery name it.
fn verb(call: &ApiCall, path: &ResourcePath) -> &'static str {
    match call.method {
        Method::GET | Method::HEAD if path.watch || (path.name.is_empty() && call.query.is_watch()) => {
            "watch"
        }
        Method::GET | Method::HEAD if path.name.is_empty() => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if path.name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ => "unknown",
    }
}

fn attributes(
    call: &ApiCall,
    path: &ResourcePath,
    verb: &str,
    definition: Option<&Arc<ResourceDefinition>>,
) -> RequestAttributes {
    let mut name = path.name.clone();
    // A list with one name is authorized like a request for that object. A selector that cannot be parsed names none.
    if name.is_empty() && matches!(verb, "list" | "watch" | "deletecollection") {
        let fields = definition.and_then(|definition| {
            FieldSelector::parse(call.query.get("fieldSelector"), definition.selectable_fields()).ok()
        });
        let pinned = fields.as_ref().and_then(|fields| fields.exact("metadata.name"));
        pinned.unwrap_or_default().clone_into(&mut name);
    }
    RequestAttributes {
        verb: verb.to_owned(),
        group: path.group.clone(),
        version: path.version.clone(),
        resource: path.resource.clone(),
        subresource: path.subresource.clone(),
        namespace: path.namespace.clone(),
        name,
        path: call.path.clone(),
    }
}

/// An authorized request for a resource.
pub(super) struct ResourceRequest<'a> {
    pub api: &'a Arc<Api>,
    pub call: &'a Arc<ApiCall>,
    pub verb: &'static str,
    pub target: ObjectTarget,
    /// The warnings of admission policies and webhooks.
    pub warnings: AdmissionWarnings,
}

impl ResourceRequest<'_> {
    async fn run(&self, legacy_watch: bool) -> Result<Response<ApiBody>, ApiError> {
        let definition = &self.target.definition;
        if !self.target.namespace.is_empty() && !definition.namespaced {
            return Ok(respond::not_found_page());
        }
        if !self.target.subresource.is_empty() {
            return self.subresource().await;
        }
        if definition.namespaced
            && self.target.namespace.is_empty()
            && !matches!(self.verb, "list" | "watch")
            && !(self.verb == "create" && definition.is_virtual())
        {
            return match self.target.name.as_str() {
                "" => Err(ApiError::method_not_allowed()),
                _ => Ok(respond::not_found_page()),
            };
        }
        if !definition.allows(self.verb) {
            return Err(ApiError::method_not_allowed());
        }
        match self.verb {
            "create" if definition.is_virtual() => {
                reviews::answer(self.api, self.call, &self.target, self.parsed_body()?)
            }
            "create" if !self.target.name.is_empty() => Err(ApiError::method_not_allowed()),
            "create" => self.create().await,
            "get" => self.get().await,
            "list" => self.list().await,
            "watch" => self.watch(legacy_watch).await,
            "update" | "patch" if self.target.name.is_empty() => Err(ApiError::method_not_allowed()),
            "update" => self.update().await,
            "patch" => self.patch().await,
            "delete" => self.delete().await,
            "deletecollection" => self.delete_collection().await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    async fn subresource(&self) -> Result<Response<ApiBody>, ApiError> {
        let Some(sub) = self.target.definition.subresource(&self.target.subresource) else {
            let definition = &self.target.definition;
            // Logs are on the node, which this server does not reach. A missing pod is reported all the same.
            if definition.is("", "pods") && self.target.subresource == "log" {
                self.api.registry.get(&self.target)?;
            }
            return if definition.is_custom() {
                Err(ApiError::not_found(definition.subject(&self.target.name)))
            } else {
                Err(ApiError::unknown_resource())
            };
        };
        if !sub.verbs.contains(&self.verb) {
            return Err(ApiError::method_not_allowed());
        }
        match (sub.name.as_str(), self.verb) {
            ("scale", "get") => Ok(respond::json(
                StatusCode::OK,
                &self.api.registry.scale(&self.target)?,
            )),
            ("scale", _) => self.set_scale().await,
            ("eviction", _) => self.evict().await,
            ("binding", _) => {
                let context = self.context("CreateOptions")?;
                let binding = self.object(&context)?.0;
                self.api.registry.bind(&self.target, &context, binding).await?;
                Ok(created_status())
            }
            ("token", _) => reviews::token(self.api, self.call, &self.target),
            (_, "get") => self.get().await,
            (_, "update") => self.update().await,
            (_, "patch") => self.patch().await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn presenter(&self, list: bool) -> Result<(Presenter, ResponseEncoding), ApiError> {
        let (form, encoding) = negotiate::form(&self.call.headers, &self.call.query, list)?;
        Ok((
            Presenter::new(&self.target.definition, form, self.api.registry.clock()),
            encoding,
        ))
    }

    fn selection(&self) -> Result<ObjectSelection, ApiError> {
        let query = &self.call.query;
        let target = &self.target;
        let selection = ObjectSelection::parse(
            &target.definition,
            &target.namespace,
            query.get("labelSelector"),
            query.get("fieldSelector"),
        )?;
        Ok(selection)
    }

    async fn get(&self) -> Result<Response<ApiBody>, ApiError> {
        let (presenter, encoding) = self.presenter(false)?;
        self.api
            .registry
            .wait_for(self.call.query.get_revision()?)
            .await?;
        let stored = self.api.registry.get(&self.target)?;
        let mut response = respond::encode(encoding, StatusCode::OK, vec![presenter.object(&stored)?])?;
        self.warn(&mut response, &[]);
        Ok(response)
    }

    async fn list(&self) -> Result<Response<ApiBody>, ApiError> {
        let (presenter, encoding) = self.presenter(true)?;
        let options = self.call.query.list_options()?;
        let selection = self.selection()?;
        let listed = self
            .api
            .registry
            .list(&self.target.definition, &selection, &options)
            .await?;
        let mut response = respond::encode(
            encoding,
            StatusCode::OK,
            presenter.list(&listed.objects, &listed.meta)?,
        )?;
        self.warn(&mut response, &[]);
        Ok(response)
    }

    async fn watch(&self, legacy: bool) -> Result<Response<ApiBody>, ApiError> {
        let permit = self.api.limits.admit_watch(&self.call.identity)?;
        let (presenter, _) = self.presenter(true)?;
        let options = self.call.query.watch_options()?;
        let mut selection = self.selection()?;
        if legacy && !self.target.name.is_empty() {
            let pinned = format!("metadata.name={}", self.target.name);
            selection = ObjectSelection::parse(&self.target.definition, &self.target.namespace, "", &pinned)?;
        }
        let registry = &self.api.registry;
        let resource = Arc::clone(&self.target.definition.storage);
        let everything = |announce_end| WatchStart::Everything {
            page: registry.store.list(&resource, &selection.namespace),
            announce_end,
        };
        let start = match (options.send_initial_events, options.revision) {
            (Some(true), revision) => {
                registry.wait_for(revision.unwrap_or(0)).await?;
                everything(true)
            }
            (Some(false), None | Some(0)) => WatchStart::After(registry.store.revision()),
            // With bookmarks, even a watch without a revision gets the bookmark that ends the initial events.
            (None, None) => everything(options.bookmarks),
            (None, Some(0)) => everything(false),
            (_, Some(revision)) => self.start_after(revision),
        };
        let spec = WatchSpec {
            resource: Arc::clone(&self.target.definition.storage),
            selection,
            presenter,
            bookmarks: options.bookmarks.then_some(self.api.bookmark_interval),
            timeout: options
                .timeout
                .unwrap_or_else(|| WATCH_LASTS + jitter(WATCH_LASTS)),
        };
        let watch = ObjectWatch::new(Arc::clone(&registry.store), spec, start, self.api.stop.clone());
        let open = (self.api.metrics.watch_opened(), permit);
        let access = StreamAccess::new(self.api, &self.call.credential);
        let frames = stream::unfold(
            (watch, access, open),
            |(mut watch, mut access, open)| async move {
                let frame = tokio::select! {
                    biased;
                    () = access.revoked() => None,
                    frame = watch.next() => frame,
                }?;
                // The event may be newer than the revocation.
                access.is_valid().then_some((frame, (watch, access, open)))
            },
        );
        Ok(respond::stream(ApiBody::stream(frames)))
    }

    /// A kube-apiserver does not cache events, so a watch of them reaches back only as far as its store.
    fn start_after(&self, revision: u64) -> WatchStart {
        let forgotten = revision < self.api.registry.store.compacted();
        if forgotten && &*self.target.definition.storage == "events" {
            return WatchStart::Rejected(ApiError::expired(
                "The resourceVersion for the provided watch is too old.",
            ));
        }
        WatchStart::After(revision)
    }

    async fn create(&self) -> Result<Response<ApiBody>, ApiError> {
        let (presenter, encoding) = self.presenter(false)?;
        let context = self.context("CreateOptions")?;
        let (object, strict_errors) = self.object(&context)?;
        let mut written = self.api.registry.create(&self.target, &context, object).await?;
        written.warnings.splice(0..0, strict_errors);
        self.written(&presenter, encoding, StatusCode::CREATED, &written)
    }

    async fn update(&self) -> Result<Response<ApiBody>, ApiError> {
        let (presenter, encoding) = self.presenter(false)?;
        let context = self.context("UpdateOptions")?;
        let (object, strict_errors) = self.object(&context)?;
        let mut updated = self.api.registry.update(&self.target, &context, object).await?;
        updated.written.warnings.splice(0..0, strict_errors);
        let code = if updated.created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        self.written(&presenter, encoding, code, &updated.written)
    }

    async fn patch(&self) -> Result<Response<ApiBody>, ApiError> {
        let (presenter, encoding) = self.presenter(false)?;
        let context = self.context("PatchOptions")?;
        let patch = self.read_patch(&context)?;
        let updated = self.api.registry.patch(&self.target, &context, &patch).await?;
        let code = if updated.created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        self.written(&presenter, encoding, code, &updated.written)
    }

    async fn delete(&self) -> Result<Response<ApiBody>, ApiError> {
        let (presenter, encoding) = self.presenter(false)?;
        let context = self.context("DeleteOptions")?;
        let (options, dry_run) = self.delete_options()?;
        let context = WriteContext {
            dry_run: context.dry_run || dry_run,
            ..context
        };
        let deleted = self.api.registry.delete(&self.target, &context, &options).await?;
        let definition = &self.target.definition;
        match deleted {
            DeleteResult::Gone(last) if !self.api.registry.returns_deleted_object(&self.target) => {
                let status = error::success(
                    &definition.group,
                    &definition.plural,
                    &self.target.name,
                    &last.metadata.uid,
                );
                Ok(respond::json(StatusCode::OK, &status))
            }
            DeleteResult::Gone(stored) | DeleteResult::Pending(stored) => {
                respond::encode(encoding, StatusCode::OK, vec![presenter.object(&stored)?])
            }
        }
    }

    async fn delete_collection(&self) -> Result<Response<ApiBody>, ApiError> {
        let (presenter, encoding) = self.presenter(true)?;
        let context = self.context("DeleteOptions")?;
        let (options, dry_run) = self.delete_options()?;
        let context = WriteContext {
            dry_run: context.dry_run || dry_run,
            ..context
        };
        let selection = self.selection()?;
        let deleted = self
            .api
            .registry
            .delete_collection(&self.target, &context, &selection, &options)
            .await?;
        let meta = crate::present::ListMeta {
            revision: self.api.registry.store.revision(),
            ..crate::present::ListMeta::default()
        };
        respond::encode(encoding, StatusCode::OK, presenter.list(&deleted, &meta)?)
    }

    async fn set_scale(&self) -> Result<Response<ApiBody>, ApiError> {
        let context = self.context("UpdateOptions")?;
        let patch = match self.verb {
            "patch" => Some(negotiate::patch_format(
                &self.call.headers,
                self.target.definition.is_custom(),
            )?),
            _ => None,
        };
        let registry = &self.api.registry;
        let scale = if patch == Some(PatchFormat::Json) {
            let patch = JsonPatch::decode(&self.call.body, context.field_validation)?;
            let apply = |mut current: Value| {
                patch
                    .apply(&mut current)
                    .map_err(|error| ApiError::patch(&error))?;
                Ok(current)
            };
            registry.set_scale(&self.target, &context, &apply).await?
        } else {
            let body = self.parsed_body()?;
            let change = |current: Value| {
                Ok(match patch {
                    Some(_) => merged(current, &body),
                    None => body.clone(),
                })
            };
            registry.set_scale(&self.target, &context, &change).await?
        };
        Ok(respond::json(StatusCode::OK, &scale))
    }

    async fn evict(&self) -> Result<Response<ApiBody>, ApiError> {
        let context = self.context("CreateOptions")?;
        let eviction = self.parsed_body()?;
        let named = eviction
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !named.is_empty() && named != self.target.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let options = self.call.query.delete_options(eviction.get("deleteOptions"))?;
        let dry = eviction
            .pointer("/deleteOptions/dryRun")
            .and_then(Value::as_array);
        let context = WriteContext {
            dry_run: context.dry_run || dry.is_some_and(|values| !values.is_empty()),
            ..context
        };
        let Value::Object(mut eviction) = eviction else {
            return Err(ApiError::bad_request(
                "the body of an eviction must be a JSON object",
            ));
        };
        eviction
            .entry("apiVersion")
            .or_insert_with(|| Value::from("policy/v1"));
        eviction.entry("kind").or_insert_with(|| Value::from("Eviction"));
        self.api
            .registry
            .evict(&self.target, &context, eviction, &options)
            .await?;
        Ok(created_status())
    }

    fn written(
        &self,
        presenter: &Presenter,
        encoding: ResponseEncoding,
        code: StatusCode,
        written: &WriteResult,
    ) -> Result<Response<ApiBody>, ApiError> {
        let body: Bytes = if written.stored.revision == 0 && presenter.form == Representation::Whole {
            // The result of a dry-run create has no resource version.
            let mut value = Value::Object(written.stored.value()?);
            if let Some(metadata) = value["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            Bytes::from(presenter.value(&value).to_string())
        } else {
            presenter.object(&written.stored)?
        };
        let mut response = respond::encode(encoding, code, vec![body])?;
        self.warn(&mut response, &written.warnings);
        Ok(response)
    }

    fn warn(&self, response: &mut Response<ApiBody>, warnings: &[String]) {
        if let crate::catalog::DefinitionSource::Custom(version) = &self.target.definition.source
            && let Some(warning) = &version.deprecation_warning
        {
            respond::warn(response, std::slice::from_ref(warning));
        }
        respond::warn(response, warnings);
    }
}

/// Returns a random time below a limit.
fn jitter(limit: Duration) -> Duration {
    // Without randomness all watches end at the same time, which is inconvenient and not wrong.
    let random = getrandom::u32().unwrap_or(0);
    limit.mul_f64(f64::from(random) / (f64::from(u32::MAX) + 1.0))
}

fn created_status() -> Response<ApiBody> {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    respond::json(StatusCode::CREATED, &status)
}

fn merged(mut current: Value, change: &Value) -> Value {
    if let (Some(current), Some(change)) = (current.as_object_mut(), change.as_object()) {
        for (field, value) in change {
            let before = current.remove(field).unwrap_or(Value::Null);
            if !value.is_null() {
                current.insert(field.clone(), merged(before, value));
            }
        }
        return Value::Object(std::mem::take(current));
    }
    change.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_began_together_ended_together() {
        let jitters: Vec<Duration> = (0..20).map(|_| jitter(WATCH_LASTS)).collect();
        assert!(jitters.iter().all(|jitter| *jitter < WATCH_LASTS));
        assert!(jitters.iter().any(|jitter| *jitter != jitters[0]), "{jitters:?}");
    }
}
