//! systemd units and their drop-ins.

use super::record::record;

record! {
    /// The `systemd` section.
    pub struct Systemd {
        "units" units: Vec<Unit> [ByKey];
    }
}

record! {
    /// A unit to write, enable or mask; each of the three only when stated.
    pub struct Unit {
        "contents" contents: Option<String>;
        "dropins" dropins: Vec<Dropin> [ByKey];
        "enabled" enabled: Option<bool>;
        "mask" mask: Option<bool>;
        "name" name: String [required];
    }
}

record! {
    /// A fragment that overrides parts of a unit.
    pub struct Dropin {
        "contents" contents: Option<String>;
        "name" name: String [required];
    }
}
