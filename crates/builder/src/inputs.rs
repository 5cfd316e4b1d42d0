//! Gathers what a build reads, with live requests: a Secret may have been replaced a moment ago.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::names::{self, config_map, secret};
use mco_api::{ControllerConfig, MachineOSBuild, MachineOSConfig};
use mco_core::config::pools::NodePools;
use mco_core::generators::os_builds::{self, BuildError, BuildInputs, BuildObjects};

use crate::context::Context;
use crate::error::Error;
use crate::reconcile::Rendered;

/// The release's own images have no buildah, or not this program.
const NO_BUILDER_IMAGE: &str = "no image is set in which builds run: install with --builder-image IMAGE (or start mco \
                                builder with it), an image with this program and buildah, built by Containerfile.builder";

/// Returns the objects of a build. The inner error is about its inputs.
pub(crate) async fn objects(
    ctx: &Context,
    config: &MachineOSConfig,
    build: &MachineOSBuild,
    rendered: &Rendered,
) -> Result<Result<BuildObjects, BuildError>, Error> {
    let pool = config.spec.machine_config_pool.name.as_str();
    let base_secret = match &config.spec.base_image_pull_secret {
        Some(reference) => required_secret(ctx, config, &reference.name).await?,
        // A cluster may have no pull secret; its base images are public then.
        None => match secret(ctx, secret::GLOBAL_PULL_SECRET_COPY).await? {
            Some(found) => found,
            None => os_builds::empty_credentials(secret::GLOBAL_PULL_SECRET_COPY),
        },
    };
    let push_secret = required_secret(ctx, config, &config.spec.rendered_image_push_secret.name).await?;
    let builder_image = ctx.options.builder_image.as_deref().unwrap_or_default();
    if builder_image.is_empty() {
        return Err(Error::Invalid(NO_BUILDER_IMAGE.to_owned()));
    }
    let controller_config = ctx
        .cluster_api::<ControllerConfig>()
        .get_opt(CONTROLLER_CONFIG_NAME)
        .await;
    let controller_config = controller_config.map_err(Error::api("reading the ControllerConfig"))?;
    let controller_config = controller_config.ok_or_else(|| {
        Error::Invalid(format!(
            "there is no ControllerConfig {CONTROLLER_CONFIG_NAME}, whose proxy and certificates the build needs; the \
             operator creates it"
        ))
    })?;
    let pools = ctx.pools.all();
    let membership = NodePools::new(pools.iter().map(AsRef::as_ref));
    let nodes = ctx.nodes.all();
    let members = nodes
        .iter()
        .filter(|node| membership.is_member(node.metadata.labels.as_ref(), pool));
    let architectures = os_builds::of_nodes(members.map(AsRef::as_ref));
    let inputs = BuildInputs {
        pool,
        config,
        build,
        rendered: &rendered.object,
        stored: &rendered.stored,
        controller_config: &controller_config,
        base_secret: &base_secret,
        push_secret: &push_secret,
        has_entitlement: secret(ctx, &secret::entitlement_of(pool)).await?.is_some(),
        has_yum_repos: config_map(ctx, config_map::YUM_REPOS).await?.is_some(),
        has_rpm_keys: secret(ctx, secret::RPM_KEYS).await?.is_some(),
        builder_image,
        architectures: &architectures,
        default_architecture: ctx.options.default_architecture,
    };
    Ok(os_builds::objects(&inputs))
}

pub(crate) async fn secret(ctx: &Context, name: &str) -> Result<Option<Secret>, Error> {
    let found = ctx.api::<Secret>().get_opt(name).await;
    found.map_err(Error::api(format!("reading Secret {name}")))
}

async fn config_map(ctx: &Context, name: &str) -> Result<Option<ConfigMap>, Error> {
    let found = ctx.api::<ConfigMap>().get_opt(name).await;
    found.map_err(Error::api(format!("reading ConfigMap {name}")))
}

async fn required_secret(ctx: &Context, config: &MachineOSConfig, name: &str) -> Result<Secret, Error> {
    let found = secret(ctx, name).await?;
    found.ok_or_else(|| {
        let config = config.metadata.name.as_deref().unwrap_or_default();
        Error::Invalid(format!(
            "secret {name} from {config} is not found. Did you use the right secret name? It must be in namespace {}",
            names::NAMESPACE
        ))
    })
}
