//! The kernel's FIPS mode, which is fixed when a machine is installed.

use crate::path::RootedPath;
use crate::root::{FsError, Root};

const FIPS: &str = "/proc/sys/crypto/fips_enabled";

/// Returns whether the running kernel is in FIPS mode; `None` if it does not report it.
pub fn fips_enabled(root: &Root) -> Result<Option<bool>, FsError> {
    let text = root.read_text(&RootedPath::new(FIPS)?, 64)?;
    Ok(text.map(|text| text.trim() == "1"))
}
