//! Points at which a change may be interrupted. Tests interrupt it at each of them.

use std::io;

use mco_host::FsError;

pub trait Checkpoints {
    /// Called before each write to the disk. An error is handled like an I/O error of the disk.
    fn at(&self, point: &'static str) -> io::Result<()>;
}

impl dyn Checkpoints + '_ {
    pub(super) fn reach(&self, point: &'static str) -> Result<(), FsError> {
        self.at(point).map_err(|source| FsError::Failed {
            attempted: point,
            path: String::new(),
            source,
        })
    }
}

/// The production implementation: does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uninterrupted;

impl Checkpoints for Uninterrupted {
    fn at(&self, _: &'static str) -> io::Result<()> {
        Ok(())
    }
}
