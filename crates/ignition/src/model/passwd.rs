//! Users and groups.

use super::record::record;

record! {
    /// The `passwd` section.
    pub struct Passwd {
        "groups" groups: Vec<PasswdGroup> [ByKey];
        "users" users: Vec<PasswdUser> [ByKey];
    }
}

record! {
    /// A group to create, change or remove.
    pub struct PasswdGroup {
        "gid" gid: Option<i64>;
        "name" name: String [required];
        "passwordHash" password_hash: Option<String>;
        "shouldExist" should_exist: Option<bool> [since(V3_2)];
        "system" system: Option<bool>;
    }
}

record! {
    /// A user to create, change or remove.
    pub struct PasswdUser {
        "gecos" gecos: Option<String>;
        "groups" groups: Vec<String> [Set];
        "homeDir" home_dir: Option<String>;
        "name" name: String [required];
        "noCreateHome" no_create_home: Option<bool>;
        "noLogInit" no_log_init: Option<bool>;
        "noUserGroup" no_user_group: Option<bool>;
        "passwordHash" password_hash: Option<String>;
        "primaryGroup" primary_group: Option<String>;
        "sshAuthorizedKeys" ssh_authorized_keys: Vec<String> [SshKeys];
        "shell" shell: Option<String>;
        "shouldExist" should_exist: Option<bool> [since(V3_2)];
        "system" system: Option<bool>;
        "uid" uid: Option<i64>;
    }
}
