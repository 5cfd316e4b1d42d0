//! The objects of spec 2.2. In most of them absent, false, zero and empty are equal.

use crate::model::record::object;
use crate::model::{SpecStamp, Timeouts, Verification};

object! {
    pub struct Config {
        "ignition" ignition: Ignition [required];
        "networkd" networkd: Networkd;
        "passwd" passwd: Passwd;
        "storage" storage: Storage;
        "systemd" systemd: Systemd;
    }
}

object! {
    pub struct Ignition {
        "config" config: IgnitionConfig;
        "security" security: Security [since(V2_2)];
        "timeouts" timeouts: Timeouts [since(V2_1)];
        "version" version: SpecStamp;
    }
}

object! {
    pub struct IgnitionConfig {
        "append" append: Vec<Reference>;
        "replace" replace: Option<Reference>;
    }
}

object! {
    pub struct Security {
        "tls" tls: Tls;
    }
}

object! {
    pub struct Tls {
        "certificateAuthorities" certificate_authorities: Vec<Reference>;
    }
}

object! {
    pub struct Reference {
        "source" source: String;
        "verification" verification: Verification;
    }
}

object! {
    pub struct Networkd {
        "units" units: Vec<NetworkdUnit>;
    }
}

object! {
    pub struct NetworkdUnit {
        "contents" contents: String;
        "dropins" dropins: Vec<Dropin> [since(V2_2)];
        "name" name: String;
    }
}

object! {
    pub struct Passwd {
        "groups" groups: Vec<PasswdGroup>;
        "users" users: Vec<PasswdUser>;
    }
}

object! {
    pub struct PasswdGroup {
        "gid" gid: Option<i64>;
        "name" name: String;
        "passwordHash" password_hash: String;
        "system" system: bool;
    }
}

object! {
    pub struct PasswdUser {
        "create" create: Option<UserCreate>;
        "gecos" gecos: String [since(V2_1)];
        "groups" groups: Vec<String> [since(V2_1)];
        "homeDir" home_dir: String [since(V2_1)];
        "name" name: String;
        "noCreateHome" no_create_home: bool [since(V2_1)];
        "noLogInit" no_log_init: bool [since(V2_1)];
        "noUserGroup" no_user_group: bool [since(V2_1)];
        "passwordHash" password_hash: Option<String>;
        "primaryGroup" primary_group: String [since(V2_1)];
        "sshAuthorizedKeys" ssh_authorized_keys: Vec<String>;
        "shell" shell: String [since(V2_1)];
        "system" system: bool [since(V2_1)];
        "uid" uid: Option<i64> [since(V2_1)];
    }
}

object! {
    /// The older syntax for creating a user.
    pub struct UserCreate {
        "gecos" gecos: String;
        "groups" groups: Vec<String>;
        "homeDir" home_dir: String;
        "noCreateHome" no_create_home: bool;
        "noLogInit" no_log_init: bool;
        "noUserGroup" no_user_group: bool;
        "primaryGroup" primary_group: String;
        "shell" shell: String;
        "system" system: bool;
        "uid" uid: Option<i64>;
    }
}

object! {
    pub struct Storage {
        "directories" directories: Vec<Directory> [since(V2_1)];
        "disks" disks: Vec<Disk>;
        "files" files: Vec<File>;
        "filesystems" filesystems: Vec<Filesystem>;
        "links" links: Vec<Link> [since(V2_1)];
        "raid" raid: Vec<Raid>;
    }
}

object! {
    pub struct File {
        "filesystem" filesystem: String;
        "group" group: Option<NodeOwner>;
        "overwrite" overwrite: Option<bool> [since(V2_2)];
        "path" path: String;
        "user" user: Option<NodeOwner>;
        "append" append: bool [since(V2_2)];
        "contents" contents: FileContents;
        "mode" mode: Option<i64>;
    }
}

object! {
    pub struct FileContents {
        "compression" compression: String;
        "source" source: String;
        "verification" verification: Verification;
    }
}

object! {
    pub struct Directory {
        "filesystem" filesystem: String;
        "group" group: Option<NodeOwner>;
        "overwrite" overwrite: Option<bool> [since(V2_2)];
        "path" path: String;
        "user" user: Option<NodeOwner>;
        "mode" mode: Option<i64>;
    }
}

object! {
    pub struct Link {
        "filesystem" filesystem: String;
        "group" group: Option<NodeOwner>;
        "overwrite" overwrite: Option<bool> [since(V2_2)];
        "path" path: String;
        "user" user: Option<NodeOwner>;
        "hard" hard: bool;
        "target" target: String;
    }
}

object! {
    pub struct NodeOwner {
        "id" id: Option<i64>;
        "name" name: String [since(V2_1)];
    }
}

object! {
    pub struct Disk {
        "device" device: String;
        "partitions" partitions: Vec<Partition>;
        "wipeTable" wipe_table: bool;
    }
}

object! {
    /// A partition; size and start are in sectors.
    pub struct Partition {
        "guid" guid: String;
        "label" label: String;
        "number" number: i64;
        "size" size: i64;
        "start" start: i64;
        "typeGuid" type_guid: String;
    }
}

object! {
    pub struct Raid {
        "devices" devices: Vec<String>;
        "level" level: String;
        "name" name: String;
        "options" options: Vec<String> [since(V2_2)];
        "spares" spares: i64;
    }
}

object! {
    pub struct Filesystem {
        "mount" mount: Option<Mount>;
        "name" name: String;
        "path" path: Option<String>;
    }
}

object! {
    pub struct Mount {
        "create" create: Option<MountCreate>;
        "device" device: String;
        "format" format: String;
        "label" label: Option<String> [since(V2_1)];
        "options" options: Vec<String> [since(V2_1)];
        "uuid" uuid: Option<String> [since(V2_1)];
        "wipeFilesystem" wipe_filesystem: bool [since(V2_1)];
    }
}

object! {
    /// The older syntax for creating a filesystem.
    pub struct MountCreate {
        "force" force: bool;
        "options" options: Vec<String>;
    }
}

object! {
    pub struct Systemd {
        "units" units: Vec<Unit>;
    }
}

object! {
    pub struct Unit {
        "contents" contents: String;
        "dropins" dropins: Vec<Dropin>;
        "enable" enable: bool;
        "enabled" enabled: Option<bool> [since(V2_1)];
        "mask" mask: bool;
        "name" name: String;
    }
}

object! {
    pub struct Dropin {
        "contents" contents: String;
        "name" name: String;
    }
}
