//! Pools whose OS images were built before the cluster exists.

use std::collections::BTreeMap;

use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::{annotations, labels, names};
use mco_api::{MachineConfig, MachineConfigPool, MachineOSConfig};

use super::error::BootstrapError;
use crate::generators::generated::{ConfigOrigin, Generated};

/// Returns the MachineConfigs that set the images which MachineOSConfigs name as already built.
pub(super) fn generate(
    objects: &[MachineOSConfig],
    pools: &[MachineConfigPool],
) -> Vec<Result<Generated, BootstrapError>> {
    let annotated = objects.iter().filter_map(|object| {
        let all = object.metadata.annotations.as_ref()?;
        Some((object, all.get(annotations::PRE_BUILT_IMAGE)?))
    });
    annotated
        .map(|(object, image)| {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let pool = object.spec.machine_config_pool.name.as_str();
            match problem(image, pool, pools) {
                None => Ok(pre_built_image(pool, image, name)),
                Some(message) => Err(BootstrapError::PreBuiltImage {
                    name: name.to_owned(),
                    message,
                }),
            }
        })
        .collect()
}

fn problem(image: &str, pool: &str, pools: &[MachineConfigPool]) -> Option<String> {
    if !is_digest_reference(image) {
        return Some(format!(
            "pre-built image {image:?} must be referenced by digest, as in name@sha256:<64 hex digits>"
        ));
    }
    let exists = pools
        .iter()
        .any(|known| known.metadata.name.as_deref() == Some(pool));
    (!exists).then(|| format!("there is no MachineConfigPool {pool:?}"))
}

fn is_digest_reference(image: &str) -> bool {
    image.split_once("@sha256:").is_some_and(|(repository, digest)| {
        let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        !repository.is_empty() && digest.len() == 64 && digest.bytes().all(lower_hex)
    })
}

/// Generates a config that counts as user-provided; otherwise its image would be ignored.
fn pre_built_image(pool: &str, image: &str, object: &str) -> Generated {
    let spec = MachineConfigSpec {
        os_image_url: image.to_owned(),
        ..MachineConfigSpec::default()
    };
    let mut config = MachineConfig::new(&names::pre_built_image(pool), spec);
    config.metadata.labels = Some(BTreeMap::from([(labels::ROLE.to_owned(), pool.to_owned())]));
    config.metadata.annotations = Some(BTreeMap::from([(
        annotations::PRE_BUILT_IMAGE.to_owned(),
        image.to_owned(),
    )]));
    Generated {
        config,
        origin: ConfigOrigin {
            made_from: format!("MachineOSConfig {object:?}"),
            items: BTreeMap::new(),
        },
    }
}
