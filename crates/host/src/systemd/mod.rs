//! systemd: which units a machine has and enables, and the services that run.
//!
//! Enablement is a matter of symbolic links and is computed here from the unit files, so that it can be part of one
//! transaction with everything else and works on any root. Running services are controlled over D-Bus, and through
//! `systemctl` where there is no bus.

mod bus;
mod enablement;
mod preset;
mod services;
mod unit_file;

pub use bus::{Bus, BusError};
pub use enablement::{Enablement, existing_links, links, state};
pub use preset::{Preset, preset};
pub use services::{ServiceAction, ServiceError, Services, SimulatedServices, Systemctl, SystemdServices};
pub use unit_file::{Fragment, InstallSection, RootUnits, UnitSource};

/// The directory of the administrator's units, and ours.
pub const UNIT_DIRECTORY: &str = "/etc/systemd/system";
/// The link target of a masked unit.
pub const MASK: &str = "/dev/null";
