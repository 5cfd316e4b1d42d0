//! The places where a machine may stop in the middle of a change. Tests make it stop at each of them.

use std::io;

use mco_host::FsError;

pub trait Checkpoints {
    /// Called before each thing that changes the disk. An error is treated as if the disk had given it.
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

/// Production: nothing happens here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uninterrupted;

impl Checkpoints for Uninterrupted {
    fn at(&self, _: &'static str) -> io::Result<()> {
        Ok(())
    }
}
