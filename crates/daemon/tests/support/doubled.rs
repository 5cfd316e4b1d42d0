//! Machines whose OS tools are doubles.

use std::sync::Arc;
use std::time::Duration;

use mco_host::os::{Bootc, OperatingSystem, RpmOstree, Sleeper};
use mco_host::{BootId, Commands, HostCommands, Machine, Power, PowerError, Reboot, Root, SimulatedPower};
use mco_testkit::os_double::{OsDouble, OsTools};

#[derive(Debug)]
struct NoDelay;

impl Sleeper for NoDelay {
    fn sleep(&self, _: Duration) {}
}

/// Boots the doubles together with the machine's directory.
#[derive(Debug)]
struct DoublePower(OsDouble);

impl Power for DoublePower {
    fn boot_id(&self, root: &Root) -> Result<BootId, PowerError> {
        SimulatedPower.boot_id(root)
    }

    fn reboot(&self, root: &Root, because: &str) -> Result<Reboot, PowerError> {
        self.0.boot();
        SimulatedPower.reboot(root, because)
    }
}

/// Gives a machine the OS and the boots of the doubles.
pub fn use_double(machine: &mut Machine, double: &OsDouble, tools: OsTools) {
    let commands: Arc<dyn Commands> = Arc::new(HostCommands::through(double.launcher()));
    let os: Box<dyn OperatingSystem> = match tools {
        OsTools::Bootc => Box::new(Bootc::new(commands).with_sleeper(Arc::new(NoDelay))),
        OsTools::RpmOstree | OsTools::None => {
            Box::new(RpmOstree::new(commands).with_sleeper(Arc::new(NoDelay)))
        }
    };
    machine.os = os;
    machine.power = Box::new(DoublePower(double.clone()));
}
