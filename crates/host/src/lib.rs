//! A machine: a rooted filesystem, services, accounts, kernel arguments, operating system images and boots.
//!
//! There are two kinds: the real machine, and a directory that simulates one for `mco up` and for tests. This crate
//! reads and changes a machine; it is independent of Kubernetes, MachineConfigs and any desired state.

mod accounts;
mod command;
mod directory;
mod enter;
mod machine;
pub mod os;
mod path;
mod power;
mod programs;
mod root;
pub mod runtime;
mod service_manager;
pub mod systemd;
mod watch;

pub use accounts::{AccountError, Accounts, User};
pub use command::{
    CommandError, CommandOutput, Commands, HostCommands, NOT_INSTALLED, shortened, succeed, succeed_with,
};
pub use enter::run_within;
pub use machine::{Machine, MachineError};
pub use path::{PathError, RootedPath};
pub use power::{BootId, Power, PowerError, Reboot, SimulatedPower, SystemdPower, random_name};
pub use programs::{
    HostPrograms, ProgramEnd, ProgramError, ProgramRequest, ProgramResult, Programs, SimulatedPrograms,
};
pub use root::{
    Attributes, Durability, FileEntry, FileKind, FileOwner, FsError, FsOperation, FsRecorder, Ownership, Root,
};
pub use service_manager::ServiceManager;
pub use watch::{WatchedState, Watcher};
