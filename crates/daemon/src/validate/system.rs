//! The booted image and the kernel's arguments.

use mco_host::Machine;
use mco_host::os::{Backend, missing_kernel_arguments, same_image};

use super::{Mismatch, ValidateError};
use crate::config::NodeConfig;

pub(super) fn validate(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    let wanted = config.os_image();
    let arguments = &config.object.spec.kernel_arguments;
    let image_counts = machine.os.backend() != Backend::PackageMode && !wanted.is_empty();
    if !image_counts && arguments.is_empty() {
        return Ok(Vec::new());
    }
    let state = machine.os.state(&machine.root)?;
    let mut mismatches = Vec::new();
    let booted = state.image.unwrap_or_default();
    if image_counts && !same_image(&booted, wanted) {
        let cause = format!("expected target osImageURL {wanted:?}, have {booted:?}");
        mismatches.push(Mismatch::plain("osImageURL", cause));
    }
    let missing = missing_kernel_arguments(arguments, &state.kernel_arguments);
    if !missing.is_empty() {
        let cause = format!("missing expected kernel arguments: [{}]", missing.join(" "));
        mismatches.push(Mismatch::plain("kernelArguments", cause));
    }
    Ok(mismatches)
}
