//! Writes a generated MachineConfig over one that is not what was generated, and no more of it than differs in meaning.

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mco_api::MachineConfig;
use mco_core::generators::generated::{self, Restoration};

use crate::error::Error;

/// Makes a MachineConfig what was generated. Returns it as written; none if it was right.
pub(crate) async fn restore(
    configs: &Api<MachineConfig>,
    actual: &MachineConfig,
    wanted: &MachineConfig,
) -> Result<Option<MachineConfig>, Error> {
    let name = wanted.metadata.name.as_deref().unwrap_or_default();
    let Some(restoration) = generated::restoration(actual, wanted) else {
        return Ok(None);
    };
    let written = match restoration {
        Restoration::Metadata(patch) => {
            let parameters = PatchParams::default();
            configs.patch(name, &parameters, &Patch::Merge(patch)).await
        }
        Restoration::Whole(config) => configs.replace(name, &PostParams::default(), &config).await,
    };
    let attempt = format!("restoring MachineConfig {name}");
    written.map(Some).map_err(Error::api(attempt))
}
