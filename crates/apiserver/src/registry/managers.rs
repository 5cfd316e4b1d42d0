//! Who set which field: the record in `metadata.managedFields`.

use super::{Registry, Target, WriteContext};
use crate::error::ApiError;
use crate::meta::Object;

impl Registry {
    /// Brings the record up to date after a write that was not an apply.
    pub(super) fn record_managers(
        &self,
        _target: &Target,
        _context: &WriteContext,
        _old: Option<&Object>,
        _new: &mut Object,
    ) -> Result<(), ApiError> {
        Ok(())
    }
}
