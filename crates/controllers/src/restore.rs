//! Restores a generated MachineConfig that differs from what was generated.

use kube::Api;
use kube::api::Patch;
use mco_api::MachineConfig;
use mco_core::generators::generated::{self, Restoration};
use mco_runtime::{FieldManager, object_name};

use crate::error::Error;

/// Writes those parts of a MachineConfig that differ in meaning from what was generated. Returns it as written; `None`
/// if nothing had to be written.
pub(crate) async fn restore(
    configs: &Api<MachineConfig>,
    manager: FieldManager,
    actual: &MachineConfig,
    wanted: &MachineConfig,
) -> Result<Option<MachineConfig>, Error> {
    let name = object_name(&wanted.metadata);
    let Some(restoration) = generated::restoration(actual, wanted) else {
        return Ok(None);
    };
    let written = match restoration {
        Restoration::Metadata(patch) => {
            let parameters = manager.patch_params();
            configs.patch(name, &parameters, &Patch::Merge(patch)).await
        }
        Restoration::Whole(config) => configs.replace(name, &manager.post_params(), &config).await,
    };
    let attempt = format!("restoring MachineConfig {name}");
    written.map(Some).map_err(Error::api(attempt))
}
