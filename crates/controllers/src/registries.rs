//! Where machines pull images from, as MachineConfigs of the product's own pools.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::MachineConfigPool;
use mco_api::foreign::image::Image;
use mco_api::vocabulary::{labels, names};
use mco_core::generated::{self, Generated, Generator};
use mco_core::registries::{self, BaseFiles, RegistryError, RegistrySources};
use mco_core::templates::base_file;
use tracing::{error, warn};

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::error::Error;
use crate::foundation::Foundation;
use crate::owned;
use crate::queue::Again;
use crate::user_configs::existing;

const SUBCONTROLLER: &str = "machine-config-controller-container-runtime-config";
const CONFIG_GROUP: &str = "config.openshift.io/v1";

/// Makes the registry configuration of all pools again.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(Again::OnChange);
    };
    if !cluster.sources_are_known() {
        return Ok(Again::After(SOURCES_POLL));
    }
    match make(&cluster, &foundation) {
        Ok(configs) => owned::publish(&cluster, Generator::Registries, owned::share(configs)).await?,
        // What was in force stays in force: one bad object must neither stop all pools nor undo the good ones.
        Err(problem) => {
            error!("the registry settings cannot be used, so they stay as they are: {problem}");
            if !cluster.owned.has(Generator::Registries) {
                let is_own = |name: &str| name.starts_with("99-") && name.ends_with("-generated-registries");
                let share = existing(&cluster, is_own);
                owned::publish(&cluster, Generator::Registries, share).await?;
            }
        }
    }
    Ok(Again::OnChange)
}

fn make(cluster: &Cluster, foundation: &Foundation) -> Result<Vec<Generated>, RegistryError> {
    let image = cluster.images.get(names::SINGLETON);
    let (digest_mirrors, tag_mirrors) = (cluster.digest_mirrors.sorted(), cluster.tag_mirrors.sorted());
    let (content_policies, cluster_policies, policies) = (
        cluster.content_policies.sorted(),
        cluster.wide_image_policies.sorted(),
        cluster.image_policies.sorted(),
    );
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
        return Ok(Vec::new());
    }
    let owner = image.as_deref().map(owner);
    let mut configs = Vec::new();
    for pool in cluster.pools.all().iter().filter(|pool| is_built_in(pool)) {
        let role = pool.metadata.name.as_deref().unwrap_or_default();
        let base = BaseFiles {
            registries_conf: base_file(&foundation.templates, role, registries::REGISTRIES_CONF)
                .unwrap_or_default(),
            policy_json: base_file(&foundation.templates, role, registries::POLICY_JSON).unwrap_or_default(),
        };
        let files = registries::files(&sources, base)?;
        for warning in &files.warnings {
            warn!(pool = role, "{warning}");
        }
        for conflict in &files.conflicts {
            warn!(
                policy = %format!("{}/{}", conflict.namespace, conflict.name),
                "{}", conflict.message()
            );
        }
        let version = Some(cluster.options.source_version.as_str());
        configs.push(registries::generate(role, files.files, version, owner.clone()));
        let now = cluster.now();
        cluster
            .options
            .metrics
            .acted(SUBCONTROLLER, "Sync Image Config", role, now);
    }
    Ok(configs)
}

pub(crate) fn is_built_in(pool: &MachineConfigPool) -> bool {
    let all = pool.metadata.labels.as_ref();
    all.is_some_and(|all| all.contains_key(labels::BUILT_IN))
}

/// Without an Image object there is nobody to own what is made from the others.
fn owner(image: &Image) -> OwnerReference {
    generated::owner(CONFIG_GROUP, "Image", &image.metadata)
}
