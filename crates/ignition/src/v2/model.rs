//! The objects of spec 2.2. In most of them absent, false, zero and empty are equal.

use crate::model::record::object;
use crate::model::{SpecStamp, Timeouts, Verification};

object! {
    pub struct ConfigV2 {
        "ignition" ignition: IgnitionV2 [required];
        "networkd" networkd: Networkd;
        "passwd" passwd: PasswdV2;
        "storage" storage: StorageV2;
        "systemd" systemd: SystemdV2;
    }
}

object! {
    pub struct IgnitionV2 {
        "config" config: IgnitionConfigV2;
        "security" security: SecurityV2 [since(V2_2)];
        "timeouts" timeouts: Timeouts [since(V2_1)];
        "version" version: SpecStamp;
    }
}

object! {
    pub struct IgnitionConfigV2 {
        "append" append: Vec<ReferenceV2>;
        "replace" replace: Option<ReferenceV2>;
    }
}

object! {
    pub struct SecurityV2 {
        "tls" tls: TlsV2;
    }
}

object! {
    pub struct TlsV2 {
        "certificateAuthorities" certificate_authorities: Vec<ReferenceV2>;
    }
}

object! {
    pub struct ReferenceV2 {
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
        "dropins" dropins: Vec<DropinV2> [since(V2_2)];
        "name" name: String;
    }
}

object! {
    pub struct PasswdV2 {
        "groups" groups: Vec<PasswdGroupV2>;
        "users" users: Vec<PasswdUserV2>;
    }
}

object! {
    pub struct PasswdGroupV2 {
        "gid" gid: Option<i64>;
        "name" name: String;
        "passwordHash" password_hash: String;
        "system" system: bool;
    }
}

object! {
    pub struct PasswdUserV2 {
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
    pub struct StorageV2 {
        "directories" directories: Vec<DirectoryV2> [since(V2_1)];
        "disks" disks: Vec<DiskV2>;
        "files" files: Vec<FileV2>;
        "filesystems" filesystems: Vec<FilesystemV2>;
        "links" links: Vec<LinkV2> [since(V2_1)];
        "raid" raid: Vec<RaidV2>;
    }
}

object! {
    pub struct FileV2 {
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
    pub struct DirectoryV2 {
        "filesystem" filesystem: String;
        "group" group: Option<NodeOwner>;
        "overwrite" overwrite: Option<bool> [since(V2_2)];
        "path" path: String;
        "user" user: Option<NodeOwner>;
        "mode" mode: Option<i64>;
    }
}

object! {
    pub struct LinkV2 {
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
    pub struct DiskV2 {
        "device" device: String;
        "partitions" partitions: Vec<PartitionV2>;
        "wipeTable" wipe_table: bool;
    }
}

object! {
    /// A partition; size and start are in sectors.
    pub struct PartitionV2 {
        "guid" guid: String;
        "label" label: String;
        "number" number: i64;
        "size" size: i64;
        "start" start: i64;
        "typeGuid" type_guid: String;
    }
}

object! {
    pub struct RaidV2 {
        "devices" devices: Vec<String>;
        "level" level: String;
        "name" name: String;
        "options" options: Vec<String> [since(V2_2)];
        "spares" spares: i64;
    }
}

object! {
    pub struct FilesystemV2 {
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
    pub struct SystemdV2 {
        "units" units: Vec<UnitV2>;
    }
}

object! {
    pub struct UnitV2 {
        "contents" contents: String;
        "dropins" dropins: Vec<DropinV2>;
        "enable" enable: bool;
        "enabled" enabled: Option<bool> [since(V2_1)];
        "mask" mask: bool;
        "name" name: String;
    }
}

object! {
    pub struct DropinV2 {
        "contents" contents: String;
        "name" name: String;
    }
}
