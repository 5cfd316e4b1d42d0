//! Ignition's merge: a child config overrides a parent.
//!
//! The rules are those of spec 3.5. What MachineConfigs add to them (defaults, fix-ups) does not belong here. The
//! result of merging two valid configs is not necessarily valid; validate it when that matters.

mod displace;
mod keyed;
mod observer;
pub(crate) mod strategy;

use crate::model::Config;

pub(crate) use keyed::Keyed;
pub(crate) use observer::Trail;
pub use observer::{KernelArgumentList, MergeChange, MergeEvent, MergeObserver, MergedItem};

/// Merges `child` into `parent` and reports to `observer` what the child added, overrode, repeated or removed.
///
/// The cost is linear in the two configs, and the parent is changed in place, so that folding many configs into one
/// accumulated parent stays cheap. Folding from `Config::default()` reports everything in the first config as added.
#[must_use]
pub fn merge(mut parent: Config, child: Config, observer: &mut impl MergeObserver) -> Config {
    let mut trail = Trail::new(observer);
    displace::nodes(&mut parent.storage, &child.storage, &mut trail);
    displace::kernel_arguments(&mut parent.kernel_arguments, &child.kernel_arguments, &mut trail);
    parent.merge_from(child, &mut trail);
    parent
}

/// A value that a child's value of the same type can be merged into.
pub(crate) trait Merge: Sized {
    fn merge_from(&mut self, child: Self, trail: &mut Trail<'_>);

    /// Reports everything in a value that the child alone has.
    fn announce(&self, trail: &mut Trail<'_>);
}
