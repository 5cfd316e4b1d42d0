//! Disks and everything on them.

use super::Resource;
use super::record::record;

record! {
    /// The `storage` section. Files, directories and links share one key space, the path.
    pub struct Storage {
        "directories" directories: Vec<Directory> [ByKey];
        "disks" disks: Vec<Disk> [ByKey];
        "files" files: Vec<File> [ByKey];
        "filesystems" filesystems: Vec<Filesystem> [ByKey];
        "links" links: Vec<Link> [ByKey];
        "luks" luks: Vec<Luks> [since(V3_2) ByKey];
        "raid" raid: Vec<Raid> [ByKey];
    }
}

record! {
    /// A regular file.
    pub struct File {
        "group" group: NodeGroup;
        "overwrite" overwrite: Option<bool>;
        "path" path: String [required];
        "user" user: NodeUser;
        "append" append: Vec<Resource> [Append];
        "contents" contents: Resource;
        "mode" mode: Option<i64>;
    }
}

record! {
    /// A directory.
    pub struct Directory {
        "group" group: NodeGroup;
        "overwrite" overwrite: Option<bool>;
        "path" path: String [required];
        "user" user: NodeUser;
        "mode" mode: Option<i64>;
    }
}

record! {
    /// A symbolic or hard link.
    pub struct Link {
        "group" group: NodeGroup;
        "overwrite" overwrite: Option<bool>;
        "path" path: String [required];
        "user" user: NodeUser;
        "hard" hard: Option<bool>;
        "target" target: Option<String> [plain_before(V3_3)];
    }
}

record! {
    /// The owning user of a file, directory or link.
    pub struct NodeUser {
        "id" id: Option<i64>;
        "name" name: Option<String>;
    }
}

record! {
    /// The owning group of a file, directory or link.
    pub struct NodeGroup {
        "id" id: Option<i64>;
        "name" name: Option<String>;
    }
}

record! {
    /// A disk and its partition table.
    pub struct Disk {
        "device" device: String [required];
        "partitions" partitions: Vec<Partition> [ByKey];
        "wipeTable" wipe_table: Option<bool>;
    }
}

record! {
    /// A partition; number 0 means "the next free one".
    pub struct Partition {
        "guid" guid: Option<String>;
        "label" label: Option<String>;
        "number" number: i64;
        "resize" resize: Option<bool> [since(V3_2)];
        "shouldExist" should_exist: Option<bool>;
        "sizeMiB" size_mib: Option<i64>;
        "startMiB" start_mib: Option<i64>;
        "typeGuid" type_guid: Option<String>;
        "wipePartitionEntry" wipe_partition_entry: Option<bool>;
    }
}

record! {
    /// A software RAID array.
    pub struct Raid {
        "devices" devices: Vec<String> [Set];
        "level" level: Option<String> [plain_before(V3_3)];
        "name" name: String [required];
        "options" options: Vec<String> [Append];
        "spares" spares: Option<i64>;
    }
}

record! {
    /// A filesystem on a device.
    pub struct Filesystem {
        "device" device: String [required];
        "format" format: Option<String>;
        "label" label: Option<String>;
        "mountOptions" mount_options: Vec<String> [since(V3_1) Append];
        "options" options: Vec<String> [Append];
        "path" path: Option<String>;
        "uuid" uuid: Option<String>;
        "wipeFilesystem" wipe_filesystem: Option<bool>;
    }
}

record! {
    /// An encrypted device.
    pub struct Luks {
        "cex" cex: Cex [since(V3_5)];
        "clevis" clevis: Clevis;
        "device" device: Option<String>;
        "discard" discard: Option<bool> [since(V3_4)];
        "keyFile" key_file: Resource;
        "label" label: Option<String>;
        "name" name: String [required];
        "openOptions" open_options: Vec<String> [since(V3_4) Set];
        "options" options: Vec<String> [Append];
        "uuid" uuid: Option<String>;
        "wipeVolume" wipe_volume: Option<bool>;
    }
}

record! {
    /// Binding of an encrypted device to an IBM CEX secure key.
    pub struct Cex {
        "enabled" enabled: Option<bool>;
    }
}

record! {
    /// Automatic unlocking of an encrypted device.
    pub struct Clevis {
        "custom" custom: ClevisCustom;
        "tang" tang: Vec<Tang> [ByKey];
        "threshold" threshold: Option<i64>;
        "tpm2" tpm2: Option<bool>;
    }
}

record! {
    /// A Clevis pin in Clevis's own syntax.
    pub struct ClevisCustom {
        "config" config: Option<String> [plain_before(V3_3)];
        "needsNetwork" needs_network: Option<bool>;
        "pin" pin: Option<String> [plain_before(V3_3)];
    }
}

record! {
    /// A Tang server.
    pub struct Tang {
        "advertisement" advertisement: Option<String> [since(V3_4)];
        "thumbprint" thumbprint: Option<String>;
        "url" url: String;
    }
}
