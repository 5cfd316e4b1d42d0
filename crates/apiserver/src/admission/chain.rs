//! The policies and webhooks that the API stores, enforced on every write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::Semaphore;
use tracing::error;

use super::configuration::AdmissionConfiguration;
use super::matching::AdmissionMatch;
use super::policy::{self, EvaluationInput, PolicyMatch};
use super::webhook::{self, Webhook, WebhookClient, WebhookVerdict};
use super::{AdmissionAttributes, AdmissionScope, GROUP, params};
use crate::auth::{self, Authorizer, Identity, RequestAttributes};
use crate::catalog::{Catalog, ResourceDefinition};
use crate::error::ApiError;
use crate::registry::{ObjectTarget, WriteContext, new_uid};
use crate::schema::cel::{AccessCheck, CelBudget, ResourceAccess, with_room};
use crate::store::{ObjectKey, ObjectStore};

/// The maximum number of evaluations at the same time. More would only compete for processors.
const MOST_EVALUATIONS: usize = 4;

/// A step of admission that calls webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionStage {
    Mutating,
    Validating,
}

/// The stored policies and webhooks.
#[derive(Debug)]
pub(crate) struct AdmissionChain {
    /// Whether there is anything to enforce: all that a write reads when there is not.
    active: AtomicBool,
    configuration: RwLock<Arc<AdmissionConfiguration>>,
    reloading: Mutex<()>,
    client: WebhookClient,
    evaluations: Arc<Semaphore>,
    authorizers: Vec<Arc<dyn Authorizer>>,
}

impl AdmissionChain {
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self {
            active: AtomicBool::new(false),
            configuration: RwLock::default(),
            reloading: Mutex::new(()),
            client: WebhookClient::default(),
            evaluations: Arc::new(Semaphore::new(MOST_EVALUATIONS)),
            authorizers,
        }
    }

    /// Reads policies and webhooks from the store, one reload at a time.
    pub fn reload(&self, store: &ObjectStore) {
        let _one_at_a_time = self.reloading.lock();
        let before = Arc::clone(&self.configuration.read());
        // Compilation takes a while; other writes continue with the former configuration meanwhile.
        let read = AdmissionConfiguration::read(store, &before);
        let is_active = !read.is_empty();
        *self.configuration.write() = Arc::new(read);
        self.active.store(is_active, Ordering::Release);
    }

    /// Returns whether the rules of a policy or webhook match a write, before its objects are copied.
    pub fn has_rules_for(
        &self,
        stage: AdmissionStage,
        write: &AdmissionAttributes,
        catalog: &Catalog,
    ) -> bool {
        let configuration = Arc::clone(&self.configuration.read());
        let webhooks = match stage {
            AdmissionStage::Mutating => &configuration.mutating,
            AdmissionStage::Validating => &configuration.validating,
        };
        let matches = |matching: &AdmissionMatch| matching.definition(write, catalog).is_some();
        webhooks.iter().any(|webhook| matches(&webhook.matching))
            || stage == AdmissionStage::Validating
                && configuration
                    .policies
                    .iter()
                    .any(|(policy, _)| matches(&policy.matching))
    }

    /// Returns whether policies or webhooks may review this write.
    pub fn applies(&self, target: &ObjectTarget, context: &WriteContext) -> bool {
        self.active.load(Ordering::Acquire)
            && context.admission != AdmissionScope::Reviewed
            // Otherwise a policy or webhook could make its own repair impossible.
            && target.definition.group != GROUP
    }

    /// Calls the mutating webhooks, and returns the object if one of them has changed it.
    pub async fn mutate(
        &self,
        mut attributes: AdmissionAttributes,
        context: &WriteContext,
        catalog: &Catalog,
        store: &Arc<ObjectStore>,
    ) -> Result<Option<Value>, ApiError> {
        let configuration = Arc::clone(&self.configuration.read());
        let before = attributes.object.clone();
        let mut pending: Vec<usize> = Vec::new();
        for (index, hook) in configuration.mutating.iter().enumerate() {
            if self
                .call_mutating(hook, &mut attributes, context, catalog, store)
                .await?
            {
                // Only webhooks that have seen an older object are called again.
                pending = (0..index)
                    .filter(|earlier| configuration.mutating[*earlier].reinvoked)
                    .collect();
            }
        }
        for index in pending {
            let hook = &configuration.mutating[index];
            self.call_mutating(hook, &mut attributes, context, catalog, store)
                .await?;
        }
        Ok(attributes.object.filter(|object| Some(object) != before.as_ref()))
    }

    /// Calls one mutating webhook if it matches; returns whether it changed the object.
    async fn call_mutating(
        &self,
        hook: &Arc<Webhook>,
        attributes: &mut AdmissionAttributes,
        context: &WriteContext,
        catalog: &Catalog,
        store: &Arc<ObjectStore>,
    ) -> Result<bool, ApiError> {
        let review = WriteReview::new(attributes.clone(), catalog, Arc::clone(store));
        let Some(definition) = self.matched(hook, &review, context).await? else {
            return Ok(false);
        };
        let Some(verdict) = self.ask(hook, &review, &definition, context).await? else {
            return Ok(false);
        };
        let Some(patch) = verdict.patch else {
            return Ok(false);
        };
        if attributes.object.is_none() {
            return Err(ApiError::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                hook.name
            )));
        }
        let (mut object, _) = attributes.objects_as(&definition);
        patch.apply(&mut object).map_err(ApiError::internal)?;
        let changed = attributes.convert_back(&definition, object);
        let is_changed = attributes.object.as_ref() != Some(&changed);
        attributes.object = Some(changed);
        Ok(is_changed)
    }

    /// Evaluates the policies and calls the validating webhooks.
    pub async fn validate(
        &self,
        attributes: AdmissionAttributes,
        context: &WriteContext,
        catalog: &Catalog,
        store: &Arc<ObjectStore>,
    ) -> Result<(), ApiError> {
        let configuration = Arc::clone(&self.configuration.read());
        let review = WriteReview::new(attributes, catalog, Arc::clone(store));
        self.enforce_policies(&configuration, &review, context).await?;
        let calls = configuration
            .validating
            .iter()
            .map(|hook| self.call_validating(hook, &review, context));
        join_all(calls).await.into_iter().collect()
    }

    async fn enforce_policies(
        &self,
        configuration: &AdmissionConfiguration,
        review: &WriteReview<'_>,
        context: &WriteContext,
    ) -> Result<(), ApiError> {
        let matches = review.policy_matches(configuration);
        if matches.is_empty() {
            return Ok(());
        }
        let input = self.input(review, context);
        let violations = self
            .off_thread(move || policy::evaluate(&input, &matches))
            .await?;
        policy::enforce(&violations, &review.attributes, &context.warnings)
    }

    async fn call_validating(
        &self,
        hook: &Arc<Webhook>,
        review: &WriteReview<'_>,
        context: &WriteContext,
    ) -> Result<(), ApiError> {
        if let Some(definition) = self.matched(hook, review, context).await? {
            self.ask(hook, review, &definition, context).await?;
        }
        Ok(())
    }

    /// Returns the definition that a webhook matches, by its rules, selectors and conditions.
    async fn matched(
        &self,
        hook: &Arc<Webhook>,
        review: &WriteReview<'_>,
        context: &WriteContext,
    ) -> Result<Option<Arc<ResourceDefinition>>, ApiError> {
        let Some(definition) = hook.matching.definition(&review.attributes, review.catalog) else {
            return Ok(None);
        };
        let selected = hook
            .matching
            .selects(&review.attributes, review.namespace.as_ref());
        if !selected.map_err(ApiError::internal)? {
            return Ok(None);
        }
        if hook.conditions.is_empty() {
            return Ok(Some(definition));
        }
        let input = self.input(review, context);
        let (conditions, matched) = (Arc::clone(hook), Arc::clone(&definition));
        let holds = self
            .off_thread(move || {
                let budget = CelBudget::for_one_object();
                let outcome = input.with_scope(&matched, &budget, |scope| {
                    policy::conditions_hold(&conditions.conditions, scope)
                });
                outcome.and_then(|held| held)
            })
            .await?;
        match holds {
            Ok(held) => Ok(held.then_some(definition)),
            Err(_) if hook.fails_open => Ok(None),
            Err(error) => Err(review.attributes.forbidden(&error)),
        }
    }

    /// Calls a webhook. Returns nothing if the call failed and failures are ignored.
    async fn ask(
        &self,
        hook: &Webhook,
        review: &WriteReview<'_>,
        definition: &ResourceDefinition,
        context: &WriteContext,
    ) -> Result<Option<WebhookVerdict>, ApiError> {
        if context.dry_run && !hook.supports_dry_run {
            let message = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(ApiError::bad_request(message));
        }
        let uid = new_uid()?;
        let request = webhook::review(hook, &review.attributes, definition, &uid);
        let answer = self.client.call(hook, &review.store, &request).await;
        let verdict = answer.and_then(|answer| webhook::read_response(hook, &uid, &answer));
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(error) => {
                let message = format!("failed calling webhook {:?}: {error}", hook.name);
                tracing::warn!(webhook = hook.name, ignored = hook.fails_open, %error, "failed calling a webhook");
                return if hook.fails_open {
                    Ok(None)
                } else {
                    Err(ApiError::internal(message))
                };
            }
        };
        verdict
            .warnings
            .iter()
            .for_each(|warning| context.warnings.add(warning));
        if verdict.allowed {
            return Ok(Some(verdict));
        }
        Err(ApiError::denied_by_webhook(&hook.name, &verdict.status))
    }

    fn input(&self, review: &WriteReview<'_>, context: &WriteContext) -> EvaluationInput {
        let identity = Identity {
            user: context.user.clone(),
            groups: context.groups.clone(),
            uid: context.uid.clone(),
            extra: context.extra.clone(),
            impersonated_by: None,
        };
        EvaluationInput {
            attributes: Arc::clone(&review.attributes),
            namespace: review.visible_namespace(),
            checker: Arc::new(CallerAccess {
                identity,
                store: Arc::clone(&review.store),
                authorizers: self.authorizers.clone(),
            }),
        }
    }

    /// Evaluates expressions on a thread for blocking work, because they may use up their whole budget.
    async fn off_thread<T: Send + 'static>(
        &self,
        evaluate: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(&self.evaluations).acquire_owned().await;
        let permit = permit.map_err(ApiError::internal)?;
        let evaluation = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            with_room(evaluate)
        });
        evaluation.await.map_err(|ended| {
            if ended.is_panic() {
                mco_telemetry::count_panic("apiserver");
                error!("the evaluation of an admission policy panicked; the write is refused");
            }
            ApiError::internal("the evaluation of admission policies failed; the log contains the cause")
        })
    }
}

/// A write and what the rules of policies and webhooks are matched with.
struct WriteReview<'a> {
    attributes: Arc<AdmissionAttributes>,
    catalog: &'a Catalog,
    store: Arc<ObjectStore>,
    namespace: Option<Value>,
}

impl<'a> WriteReview<'a> {
    fn new(attributes: AdmissionAttributes, catalog: &'a Catalog, store: Arc<ObjectStore>) -> Self {
        let namespace = if attributes.namespace.is_empty() {
            None
        } else {
            let key = ObjectKey::new(&Arc::from("namespaces"), "", &attributes.namespace);
            store
                .latest(&key)
                .and_then(|stored| stored.value().ok())
                .map(Value::Object)
        };
        Self {
            attributes: Arc::new(attributes),
            catalog,
            store,
            namespace,
        }
    }

    /// Returns `namespaceObject`, which has no managers and owners, and is null for a Namespace itself.
    fn visible_namespace(&self) -> Option<Value> {
        if self.attributes.definition.is("", "namespaces") {
            return None;
        }
        let mut namespace = self.namespace.clone()?;
        if let Some(metadata) = namespace["metadata"].as_object_mut() {
            metadata.retain(|field, _| {
                !matches!(field.as_str(), "managedFields" | "ownerReferences" | "selfLink")
            });
        }
        Some(namespace)
    }

    fn policy_matches(&self, configuration: &AdmissionConfiguration) -> Vec<PolicyMatch> {
        let (attributes, namespace) = (&self.attributes, self.namespace.as_ref());
        let mut matches = Vec::new();
        for (policy, bindings) in &configuration.policies {
            let Some(definition) = policy.matching.definition(attributes, self.catalog) else {
                continue;
            };
            let policy_error = match policy.matching.selects(attributes, namespace) {
                Ok(false) => continue,
                Ok(true) => None,
                Err(error) => Some(error),
            };
            for binding in bindings {
                if binding.matching.definition(attributes, self.catalog).is_none() {
                    continue;
                }
                let selected = policy_error
                    .clone()
                    .map_or_else(|| binding.matching.selects(attributes, namespace), Err);
                let params = match selected {
                    Ok(false) => continue,
                    Ok(true) => params::collect(
                        &policy.param_kind,
                        &binding.param_ref,
                        attributes,
                        self.catalog,
                        &self.store,
                    ),
                    Err(error) => Err(error),
                };
                matches.push(PolicyMatch {
                    policy: Arc::clone(policy),
                    binding: Arc::clone(binding),
                    definition: Arc::clone(&definition),
                    params,
                });
            }
        }
        matches
    }
}

/// The access of the caller, for the variable `authorizer`.
#[derive(Debug)]
struct CallerAccess {
    identity: Identity,
    store: Arc<ObjectStore>,
    authorizers: Vec<Arc<dyn Authorizer>>,
}

impl AccessCheck for CallerAccess {
    fn check(&self, access: &ResourceAccess) -> (bool, String) {
        let wanted = RequestAttributes {
            verb: access.verb.clone(),
            group: access.group.clone(),
            version: "*".to_owned(),
            resource: access.resource.clone(),
            subresource: access.subresource.clone(),
            namespace: access.namespace.clone(),
            name: access.name.clone(),
            path: access.path.clone(),
        };
        let account = access.service_account.as_ref().map(|(namespace, name)| {
            let user = format!("system:serviceaccount:{namespace}:{name}");
            let groups = [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ];
            Identity::new(user, &groups.each_ref().map(String::as_str))
        });
        let identity = account.as_ref().unwrap_or(&self.identity);
        match auth::authorize(identity, &wanted, &self.store, &self.authorizers) {
            auth::AuthorizationDecision::Allowed { because } => (true, because),
            auth::AuthorizationDecision::Denied { because } => (false, because),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_an_admission_policy_was_not_counted() {
        let chain = AdmissionChain::new(Vec::new());
        let before = mco_telemetry::panics_of("apiserver");
        let refused = chain.off_thread(|| panic!("spec of a Secret")).await;
        let refused: Result<(), ApiError> = refused;
        let text = refused.unwrap_err().to_string();
        assert!(!text.contains("spec of a Secret"), "{text}");
        assert_eq!(mco_telemetry::panics_of("apiserver"), before + 1);
    }
}
