//! The stored policies, bindings and webhooks in compiled form.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::policy::{CompiledPolicy, PolicyBinding};
use super::webhook::{Webhook, WebhookKind};
use crate::store::{ObjectStore, StoredObject};

/// The resource under which policies are stored.
pub(crate) const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// What is enforced, ordered by name.
#[derive(Debug, Default)]
pub(super) struct AdmissionConfiguration {
    /// A policy with its bindings; a policy without any has no effect.
    pub policies: Vec<(Arc<CompiledPolicy>, Vec<Arc<PolicyBinding>>)>,
    pub mutating: Vec<Arc<Webhook>>,
    pub validating: Vec<Arc<Webhook>>,
    compiled: HashMap<CompiledKey, Compiled>,
}

/// UID and generation of an object: the same pair has the same spec.
type CompiledKey = (String, i64);

#[derive(Clone, Debug)]
enum Compiled {
    Policy(Arc<CompiledPolicy>),
    Webhooks(Vec<Arc<Webhook>>),
}

impl AdmissionConfiguration {
    /// Reads the store. What has not changed since `before` is not compiled again.
    pub fn read(store: &ObjectStore, before: &Self) -> Self {
        let mut configuration = Self::default();
        let mut bindings: HashMap<String, Vec<Arc<PolicyBinding>>> = HashMap::new();
        for (_, object) in objects(store, BINDINGS) {
            let binding = PolicyBinding::read(&object);
            bindings
                .entry(binding.policy.clone())
                .or_default()
                .push(Arc::new(binding));
        }
        for (stored, object) in objects(store, POLICIES) {
            let compiled = configuration.reuse(before, &stored, || {
                Compiled::Policy(Arc::new(CompiledPolicy::compile(&object)))
            });
            if let Compiled::Policy(policy) = compiled
                && let Some(bindings) = bindings.remove(&policy.name)
            {
                configuration.policies.push((policy, bindings));
            }
        }
        configuration.mutating = configuration.webhooks(store, before, MUTATING, WebhookKind::Mutating);
        configuration.validating = configuration.webhooks(store, before, VALIDATING, WebhookKind::Validating);
        configuration
    }

    fn webhooks(
        &mut self,
        store: &ObjectStore,
        before: &Self,
        resource: &str,
        kind: WebhookKind,
    ) -> Vec<Arc<Webhook>> {
        let mut all = Vec::new();
        for (stored, object) in objects(store, resource) {
            let compiled = self.reuse(before, &stored, || {
                let webhooks = object["webhooks"].as_array().into_iter().flatten();
                Compiled::Webhooks(
                    webhooks
                        .map(|webhook| Arc::new(Webhook::read(webhook, kind)))
                        .collect(),
                )
            });
            if let Compiled::Webhooks(webhooks) = compiled {
                all.extend(webhooks);
            }
        }
        all
    }

    fn reuse(
        &mut self,
        before: &Self,
        stored: &StoredObject,
        compile: impl FnOnce() -> Compiled,
    ) -> Compiled {
        let generation = stored
            .value()
            .map_or(0, |object| crate::meta::generation(&object));
        let key = (stored.metadata.uid.clone(), generation);
        let compiled = before.compiled.get(&key).cloned().unwrap_or_else(compile);
        self.compiled.insert(key, compiled.clone());
        compiled
    }

    pub fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.mutating.is_empty() && self.validating.is_empty()
    }
}

fn objects(store: &ObjectStore, resource: &str) -> Vec<(Arc<StoredObject>, Value)> {
    let listed = store.list(resource, "").objects.into_iter();
    listed
        .filter_map(|stored| {
            let object = Value::Object(stored.value().ok()?);
            Some((stored, object))
        })
        .collect()
}
