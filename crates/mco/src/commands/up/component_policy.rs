//! The access of the components of `mco up` to Secrets: only to those that they work with.

use mco_api::vocabulary::names;
use mco_apiserver::Identity;
use mco_apiserver::auth::{AuthorizationDecision, Authorizer, COMPONENTS, RequestAttributes};
use mco_apiserver::store::ObjectStore;

#[derive(Clone, Copy, Debug, Default)]
pub struct ComponentPolicy;

impl Authorizer for ComponentPolicy {
    fn authorize(
        &self,
        identity: &Identity,
        wanted: &RequestAttributes,
        _store: &ObjectStore,
    ) -> Option<AuthorizationDecision> {
        if !identity.is_in(COMPONENTS) || !wanted.group.is_empty() || wanted.resource != "secrets" {
            return None;
        }
        let is_needed = match wanted.namespace.as_str() {
            // Certificates of the Ignition server, and user data of new machines.
            names::NAMESPACE | names::MACHINE_API_NAMESPACE => true,
            names::CONFIG_NAMESPACE => wanted.name == names::secret::PULL_SECRET,
            // Subscription certificates of image builds.
            names::CONFIG_MANAGED_NAMESPACE => wanted.name == names::secret::ENTITLEMENT,
            _ => false,
        };
        let denied = || AuthorizationDecision::deny("components of the system access their own Secrets only");
        (!is_needed).then(denied)
    }
}
