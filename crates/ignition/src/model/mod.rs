//! The one typed model of an Ignition config: spec 3.5, regardless of the version that was parsed.
//!
//! A value of these types is structurally sound (every key known, every value of the right type) but not necessarily
//! valid; [`crate::validate()`] checks that. Absent and empty are equal for objects and lists, as in Ignition's own
//! JSON; optional scalars keep the difference between absent, false and zero.

mod field;
mod ignition;
mod passwd;
pub(crate) mod record;
mod storage;
mod systemd;

pub use field::SpecStamp;
pub(crate) use field::{RecordField, RecordObject};
pub use ignition::{
    Config, HttpHeader, Ignition, IgnitionConfig, KernelArguments, Proxy, Resource, Security, Timeouts, Tls,
    Verification,
};
pub use passwd::{Passwd, PasswdGroup, PasswdUser};
pub use storage::{
    Cex, Clevis, ClevisCustom, Directory, Disk, File, Filesystem, Link, Luks, NodeGroup, NodeUser, Partition,
    Raid, Storage, Tang,
};
pub use systemd::{Dropin, Systemd, Unit};
