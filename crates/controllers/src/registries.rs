//! Where machines pull images from, as MachineConfigs of the product's own pools.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Patch;
use kube::{Api, Resource};
use mco_api::MachineConfigPool;
use mco_api::foreign::image::Image;
use mco_api::foreign::image_policy::ImagePolicy;
use mco_api::vocabulary::events::registries as reasons;
use mco_api::vocabulary::{labels, names};
use mco_core::generated::{self, Generated, Generator};
use mco_core::registries::{self, BaseFiles, PolicyConflict, RegistryError, RegistrySources};
use mco_core::rollout::Event;
use mco_core::templates::base_file;
use serde_json::json;
use tracing::{error, warn};

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::error::{Error, is_not_found};
use crate::events::Reporter;
use crate::foundation::Foundation;
use crate::queue::Again;
use crate::user_configs::{existing, name_of};
use crate::{owned, patches};

const MANAGER: &str = "machine-config-controller-registries";
const SUBCONTROLLER: &str = "machine-config-controller-container-runtime-config";
const CONFIG_GROUP: &str = "config.openshift.io/v1";

/// Makes the registry configuration of all pools again.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(Again::OnChange);
    };
    if !cluster.sources_are_known() {
        return Ok(Again::NotYet(Some(SOURCES_POLL)));
    }
    match make(&cluster, &foundation) {
        Ok(made) => {
            let share = owned::share(made.configs);
            let published = owned::publish(&cluster, Generator::Registries, share, &foundation).await;
            let reported = report(&cluster, &made.conflicts).await;
            published.outcome().and(reported)?;
        }
        // What was in force stays in force: one bad object must neither stop all pools nor undo the good ones.
        Err(problem) => {
            error!("the registry settings cannot be used, so they stay as they are: {problem}");
            let is_own = |name: &str| name.starts_with("99-") && name.ends_with("-generated-registries");
            let found = || existing(&cluster, is_own);
            owned::retain(&cluster, Generator::Registries, &foundation, found).await?;
        }
    }
    Ok(Again::OnChange)
}

/// Leaves out what cannot be used even alone, and says so on it: one bad object keeps no good one from the machines.
fn usable<K: Resource<DynamicType = ()>>(
    cluster: &Cluster,
    foundation: &Foundation,
    objects: Vec<K>,
    choose: impl for<'k> Fn(&mut RegistrySources<'k>, &'k [K]),
) -> Vec<K> {
    let is_usable = |object: &K| {
        let mut alone = RegistrySources {
            image: None,
            digest_mirrors: &[],
            tag_mirrors: &[],
            content_policies: &[],
            cluster_policies: &[],
            policies: &[],
            feature_gates: &foundation.feature_gates,
            release_image: "",
        };
        choose(&mut alone, std::slice::from_ref(object));
        let checked = registries::files(&alone, base_files(foundation, names::pool::WORKER));
        checked.map(|_| ()).map_err(|problem| {
            let told = Event::warning(reasons::INVALID, problem.to_string());
            cluster.events.tell(Reporter::Registries, object, told);
            warn!(
                "{} {} is left out of the registry settings: {problem}",
                K::kind(&()),
                name_of(object.meta())
            );
        })
    };
    objects
        .into_iter()
        .filter(|object| is_usable(object).is_ok())
        .collect()
}

fn base_files<'a>(foundation: &'a Foundation, role: &str) -> BaseFiles<'a> {
    BaseFiles {
        registries_conf: base_file(&foundation.templates, role, registries::REGISTRIES_CONF)
            .unwrap_or_default(),
        policy_json: base_file(&foundation.templates, role, registries::POLICY_JSON).unwrap_or_default(),
    }
}

/// What the registry settings come to.
#[derive(Debug, Default)]
struct Made {
    configs: Vec<Generated>,
    conflicts: Vec<PolicyConflict>,
}

fn make(cluster: &Cluster, foundation: &Foundation) -> Result<Made, RegistryError> {
    let image = cluster.images.get(names::SINGLETON);
    macro_rules! usable {
        ($objects:ident as $field:ident) => {
            usable(
                cluster,
                foundation,
                cluster.$objects.sorted(),
                |alone, one| alone.$field = one,
            )
        };
    }
    let digest_mirrors = usable!(digest_mirrors as digest_mirrors);
    let tag_mirrors = usable!(tag_mirrors as tag_mirrors);
    let content_policies = usable!(content_policies as content_policies);
    let cluster_policies = usable!(wide_image_policies as cluster_policies);
    let policies = usable!(image_policies as policies);
    let version = cluster.releases.get(names::CLUSTER_VERSION);
    let running = version.as_ref().and_then(|version| version.status.as_ref());
    let release_image = running.map(|status| status.desired.image.as_str());
    let sources = RegistrySources {
        image: image.as_deref(),
        digest_mirrors: &digest_mirrors,
        tag_mirrors: &tag_mirrors,
        content_policies: &content_policies,
        cluster_policies: &cluster_policies,
        policies: &policies,
        feature_gates: &foundation.feature_gates,
        release_image: release_image.unwrap_or(&foundation.controller_config.spec.release_image),
    };
    if image.is_none()
        && digest_mirrors.is_empty()
        && tag_mirrors.is_empty()
        && content_policies.is_empty()
        && cluster_policies.is_empty()
        && policies.is_empty()
    {
        return Ok(Made::default());
    }
    let owner = image.as_deref().map(owner);
    let mut made = Made::default();
    for pool in cluster.pools.all().iter().filter(|pool| is_built_in(pool)) {
        let role = pool.metadata.name.as_deref().unwrap_or_default();
        let files = registries::files(&sources, base_files(foundation, role))?;
        for warning in &files.warnings {
            warn!(pool = role, "{warning}");
        }
        // The policies are the same for every pool.
        made.conflicts = files.conflicts;
        let version = Some(cluster.options.source_version.as_str());
        let config = registries::generate(role, files.files, version, owner.clone());
        made.configs.push(config);
        let now = cluster.now();
        cluster
            .options
            .metrics
            .acted(SUBCONTROLLER, "Sync Image Config", role, now);
    }
    Ok(made)
}

/// Tells each namespaced policy whether a cluster-wide one decides in its place.
async fn report(cluster: &Cluster, conflicts: &[PolicyConflict]) -> Result<(), Error> {
    let mut reported = Ok(());
    for policy in cluster.image_policies.all() {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let name = name_of(&policy.metadata);
        let conflict = conflicts
            .iter()
            .find(|conflict| conflict.namespace == namespace && conflict.name == name);
        let status = policy.status.as_ref();
        let before = status.map_or(&[][..], |status| status.conditions.as_slice());
        let generation = policy.metadata.generation;
        let after = registries::policy_conditions(before, conflict, generation, &cluster.time());
        if after == before {
            continue;
        }
        if let Some(conflict) = conflict {
            warn!(policy = %format!("{namespace}/{name}"), "{}", conflict.message());
        }
        let policies: Api<ImagePolicy> = Api::namespaced(cluster.client.clone(), namespace);
        let patch = Patch::Merge(json!({"status": {"conditions": after}}));
        match policies.patch_status(name, &patches::by(MANAGER), &patch).await {
            Ok(written) => cluster.image_policies.learn(written),
            Err(problem) if is_not_found(&problem) => {}
            Err(problem) => {
                let attempt = format!("writing the status of ImagePolicy {namespace}/{name}");
                reported = Err(Error::api(attempt)(problem));
            }
        }
    }
    reported
}

pub(crate) fn is_built_in(pool: &MachineConfigPool) -> bool {
    let all = pool.metadata.labels.as_ref();
    all.is_some_and(|all| all.contains_key(labels::BUILT_IN))
}

/// Without an Image object there is nobody to own what is made from the others.
fn owner(image: &Image) -> OwnerReference {
    generated::owner(CONFIG_GROUP, "Image", &image.metadata)
}
