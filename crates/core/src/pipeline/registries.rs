//! The generator of the registry configuration (99-<pool>-generated-registries).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::MachineConfigPool;
use mco_api::vocabulary::{labels, names};

use super::generate::name_of;
use super::{
    BaseConfigs, ClusterObjects, ClusterStage, ExistingConfigs, GenerationError, GenerationResult,
    GeneratorInputs, SkippedObject,
};
use crate::config::base_layout::BaseLayout;
use crate::config::node_versions::PoolNodes;
use crate::generators::base_refusal::BaseRefusal;
use crate::generators::generated::{self, Generator};
use crate::generators::registries::{
    self, BaseFiles, PolicyConflict, RegistryError, RegistryFiles, RegistryInputs,
};
use crate::generators::templates::base_file;

const CONFIG_GROUP: &str = "config.openshift.io/v1";
const DESCRIBED: &str = "registry settings";

pub(super) fn run(
    inputs: &GeneratorInputs<'_>,
    existing: &impl ExistingConfigs,
    result: &mut GenerationResult,
) {
    match inputs.stage {
        _ if !inputs.base.base.has_templates() => in_base(inputs, existing, result),
        ClusterStage::Installation => at_installation(inputs, result),
        ClusterStage::Cluster => {
            let before = result.configs.len();
            if let Err(error) = in_cluster(inputs, result) {
                // One invalid object must neither stop all pools nor revert the valid ones.
                result.fail(DESCRIBED, error);
                result.configs.truncate(before);
                for config in existing.of_generator(Generator::Registries) {
                    result.keep(Some(config));
                }
            }
        }
    }
}

/// Generates the mirrors of every pool of a base without templates.
fn in_base(inputs: &GeneratorInputs<'_>, existing: &impl ExistingConfigs, result: &mut GenerationResult) {
    let objects = inputs.objects;
    if !objects.has_registry_settings() {
        return;
    }
    let base = inputs.base.base;
    let Some(layout) = BaseLayout::of(base) else {
        let kind = "mirror set";
        result.fail(DESCRIBED, GenerationError::Base(BaseRefusal::NoBase { kind }));
        return;
    };
    if objects.image.is_some() || !objects.cluster_policies.is_empty() || !objects.policies.is_empty() {
        result.warn(format!(
            "Image and image policies have no effect on base {base}: only mirrors are configured"
        ));
    }
    let sources = sources(objects, inputs.base);
    for pool in &objects.pools {
        let nodes = PoolNodes::of(base, pool, &objects.pools, &objects.nodes);
        let name = names::generated_registries(nodes.pool);
        match registries::mirror_files(&layout, &nodes, &sources) {
            Ok((files, warnings)) => {
                for warning in warnings {
                    result.warn(warning);
                }
                if !files.is_empty() {
                    let version = (inputs.stage == ClusterStage::Cluster).then_some(inputs.version);
                    result.push(registries::generate(nodes.pool, files, version, None));
                }
            }
            // One pool whose nodes cannot take the mirrors keeps what it has; the others go on.
            Err(error) => {
                result.fail(DESCRIBED, error);
                result.keep(existing.in_force(&name));
            }
        }
    }
}

/// Generates for every pool, also without any object to generate from.
fn at_installation(inputs: &GeneratorInputs<'_>, result: &mut GenerationResult) {
    for pool in &inputs.objects.pools {
        let pool = name_of(&pool.metadata);
        match files(inputs.objects, inputs.base, pool) {
            Ok(files) => {
                let owner = generated::owner(CONFIG_GROUP, "Image", &ObjectMeta::default());
                report(&files, result);
                result.push(registries::generate(pool, files.files, None, Some(owner)));
            }
            Err(error) => result.fail(DESCRIBED, error),
        }
    }
}

/// Generates for the built-in pools, from every valid object.
fn in_cluster(inputs: &GeneratorInputs<'_>, result: &mut GenerationResult) -> Result<(), RegistryError> {
    let objects = without_unusable(inputs, result);
    if !objects.has_registry_settings() {
        return Ok(());
    }
    let image = objects.image.as_ref();
    let owner = image.map(|image| generated::owner(CONFIG_GROUP, "Image", &image.metadata));
    for pool in objects.pools.iter().filter(|pool| is_built_in(pool)) {
        let pool = name_of(&pool.metadata);
        let files = files(&objects, inputs.base, pool)?;
        report(&files, result);
        result.push(registries::generate(
            pool,
            files.files,
            Some(inputs.version),
            owner.clone(),
        ));
    }
    Ok(())
}

pub(super) fn is_built_in(pool: &MachineConfigPool) -> bool {
    let all = pool.metadata.labels.as_ref();
    all.is_some_and(|all| all.contains_key(labels::BUILT_IN))
}

fn report(files: &RegistryFiles, result: &mut GenerationResult) {
    for warning in &files.warnings {
        result.warn(warning.clone());
    }
    for conflict in &files.conflicts {
        result.warn(format!(
            "ImagePolicy \"{}/{}\": {}",
            conflict.namespace,
            conflict.name,
            conflict.message()
        ));
    }
    // The policies are the same for every pool.
    let conflicts: &Vec<PolicyConflict> = &files.conflicts;
    result.conflicts.clone_from(conflicts);
}

fn sources<'a>(objects: &'a ClusterObjects, base: &'a BaseConfigs) -> RegistryInputs<'a> {
    RegistryInputs {
        image: objects.image.as_ref(),
        digest_mirrors: &objects.digest_mirrors,
        tag_mirrors: &objects.tag_mirrors,
        content_policies: &objects.content_policies,
        cluster_policies: &objects.cluster_policies,
        policies: &objects.policies,
        feature_gates: &base.feature_gates,
        release_image: objects.release_image(),
    }
}

fn files(objects: &ClusterObjects, base: &BaseConfigs, pool: &str) -> Result<RegistryFiles, RegistryError> {
    let sources = sources(objects, base);
    let base_file = |path: &str| base_file(&base.templates, pool, path).unwrap_or_default();
    let base_files = BaseFiles {
        registries_conf: base_file(registries::REGISTRIES_CONF),
        policy_json: base_file(registries::POLICY_JSON),
    };
    registries::files(&sources, base_files)
}

/// Skips objects that are invalid on their own, so that they do not block the valid ones.
fn without_unusable(inputs: &GeneratorInputs<'_>, result: &mut GenerationResult) -> ClusterObjects {
    let mut usable = inputs.objects.clone();
    macro_rules! retain {
        ($($field:ident: $kind:literal),*) => {
            $(usable.$field.retain(|object| {
                let alone = ClusterObjects {
                    $field: vec![object.clone()],
                    ..ClusterObjects::default()
                };
                let checked = files(&alone, inputs.base, names::pool::WORKER);
                if let Err(error) = &checked {
                    result.skipped.push(SkippedObject {
                        kind: $kind,
                        namespace: object.metadata.namespace.clone(),
                        name: name_of(&object.metadata).to_owned(),
                        error: error.clone(),
                    });
                }
                checked.is_ok()
            });)*
        };
    }
    retain!(
        digest_mirrors: "ImageDigestMirrorSet",
        tag_mirrors: "ImageTagMirrorSet",
        content_policies: "ImageContentSourcePolicy",
        cluster_policies: "ClusterImagePolicy",
        policies: "ImagePolicy"
    );
    usable
}
