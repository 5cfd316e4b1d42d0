//! Confinement: nothing planted inside a root, or written in a path, leads outside.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use mco_host::{Attributes, Durability, FileKind, FileOwner, FsError, Ownership, Root, RootedPath};

struct Trap {
    directory: tempfile::TempDir,
    root: Root,
}

impl Trap {
    /// A root, and beside it a directory that must stay untouched.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("root/etc")).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        fs::write(directory.path().join("outside/secret"), "untouched").unwrap();
        let root = Root::open(&directory.path().join("root"), Ownership::Recorded).unwrap();
        Self { directory, root }
    }

    fn inside(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join("root").join(path)
    }

    fn outside(&self) -> std::path::PathBuf {
        self.directory.path().join("outside")
    }

    fn assert_outside_untouched(&self) {
        let names: Vec<_> = fs::read_dir(self.outside())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(
            fs::read_to_string(self.outside().join("secret")).unwrap(),
            "untouched"
        );
    }
}

fn path(text: &str) -> RootedPath {
    RootedPath::new(text).unwrap()
}

const PLAIN: Attributes = Attributes::root(0o644);

#[test]
fn an_absolute_link_to_a_directory_outside_leads_inside() {
    let trap = Trap::new();
    symlink(trap.outside(), trap.inside("etc/escape")).unwrap();
    let missing = trap
        .root
        .create_file(&path("/etc/escape/new"), PLAIN, b"x", None, Durability::Now);
    assert!(missing.is_err());
    // The same link is fine once its target exists below the root.
    let below = trap.outside();
    fs::create_dir_all(trap.inside(below.strip_prefix("/").unwrap().to_str().unwrap())).unwrap();
    trap.root
        .create_file(&path("/etc/escape/new"), PLAIN, b"x", None, Durability::Now)
        .unwrap();
    trap.assert_outside_untouched();
}

#[test]
fn a_relative_link_cannot_climb_above_the_root() {
    let trap = Trap::new();
    symlink("../../../../../outside", trap.inside("etc/climb")).unwrap();
    fs::create_dir(trap.inside("outside")).unwrap();
    trap.root
        .write_atomically(&path("/etc/climb/new"), PLAIN, b"x")
        .unwrap();
    assert_eq!(fs::read_to_string(trap.inside("outside/new")).unwrap(), "x");
    trap.assert_outside_untouched();
}

#[test]
fn a_link_in_the_last_place_is_replaced_and_never_written_through() {
    let trap = Trap::new();
    symlink(trap.outside().join("secret"), trap.inside("etc/motd")).unwrap();
    assert!(
        trap.root
            .create_file(&path("/etc/motd"), PLAIN, b"x", None, Durability::Now)
            .is_err()
    );
    trap.root
        .write_atomically(&path("/etc/motd"), PLAIN, b"new")
        .unwrap();
    assert_eq!(
        trap.root.entry(&path("/etc/motd")).unwrap().unwrap().kind,
        FileKind::File
    );
    trap.assert_outside_untouched();
}

#[test]
fn reading_follows_links_below_the_root_only() {
    let trap = Trap::new();
    symlink(trap.outside().join("secret"), trap.inside("etc/stolen")).unwrap();
    assert_eq!(trap.root.read(&path("/etc/stolen"), 100).unwrap(), None);
    symlink("/etc/real", trap.inside("etc/link")).unwrap();
    fs::write(trap.inside("etc/real"), "inside").unwrap();
    assert_eq!(
        trap.root.read(&path("/etc/link"), 100).unwrap().unwrap(),
        b"inside"
    );
}

#[test]
fn a_pipe_or_device_is_refused_and_does_not_block() {
    let trap = Trap::new();
    let status = std::process::Command::new("mkfifo")
        .arg(trap.inside("etc/pipe"))
        .status()
        .unwrap();
    assert!(status.success());
    let error = trap.root.read(&path("/etc/pipe"), 100).unwrap_err();
    assert!(
        matches!(
            error,
            FsError::WrongKind {
                found: FileKind::Special,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_path_through_a_file_names_that_file() {
    let trap = Trap::new();
    fs::write(trap.inside("etc/passwd"), "").unwrap();
    let error = trap
        .root
        .missing_directories(&path("/etc/passwd/sub/dir"))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"/etc/passwd\" is a regular file, not a directory"
    );
    assert_eq!(trap.root.entry(&path("/etc/passwd/x")).unwrap(), None);
}

#[test]
fn a_dangling_link_in_a_parent_is_named() {
    let trap = Trap::new();
    symlink("/nowhere", trap.inside("etc/dangling")).unwrap();
    let error = trap
        .root
        .missing_directories(&path("/etc/dangling/sub"))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"/etc/dangling\" is a symbolic link, not a directory"
    );
}

#[test]
fn an_owner_that_cannot_be_set_is_noted_with_the_file() {
    let trap = Trap::new();
    let owner = FileOwner { uid: 1000, gid: 1001 };
    let attributes = Attributes { mode: 0o600, owner };
    trap.root
        .create_file(&path("/etc/a"), attributes, b"x", None, Durability::Now)
        .unwrap();
    trap.root
        .create_file(&path("/etc/b"), PLAIN, b"x", None, Durability::Now)
        .unwrap();
    trap.root
        .create_directory(&path("/etc/d"), Attributes { mode: 0o700, owner })
        .unwrap();
    trap.root.rename(&path("/etc/a"), &path("/etc/c")).unwrap();
    trap.root.copy_file(&path("/etc/c"), &path("/etc/copy")).unwrap();
    let found = |name: &str| trap.root.entry(&path(name)).unwrap().unwrap();
    assert_eq!((found("/etc/c").owner, found("/etc/c").mode), (owner, 0o600));
    assert_eq!(
        (found("/etc/copy").owner, found("/etc/copy").mode),
        (owner, 0o600)
    );
    assert_eq!((found("/etc/d").owner, found("/etc/d").mode), (owner, 0o700));
    assert_eq!(found("/etc/b").owner, FileOwner::ROOT);
}

#[test]
fn the_file_limit_is_respected() {
    let trap = Trap::new();
    fs::write(trap.inside("etc/big"), vec![0; 1000]).unwrap();
    assert!(matches!(
        trap.root.read(&path("/etc/big"), 999),
        Err(FsError::TooLarge { limit: 999, .. })
    ));
    assert_eq!(
        trap.root.read(&path("/etc/big"), 1000).unwrap().unwrap().len(),
        1000
    );
}

#[test]
fn missing_parents_are_created_once_and_outermost_first() {
    let trap = Trap::new();
    let missing = trap.root.missing_directories(&path("/etc/a/b")).unwrap();
    assert_eq!(missing, [path("/etc/a"), path("/etc/a/b")]);
    trap.root
        .create_directories(&path("/etc/a/b"), Attributes::root(0o755))
        .unwrap();
    assert!(
        trap.root
            .missing_directories(&path("/etc/a/b"))
            .unwrap()
            .is_empty()
    );
    assert!(Path::new(&trap.inside("etc/a/b")).is_dir());
    assert!(!trap.root.remove_directory(&path("/etc/a")).unwrap());
    assert!(trap.root.remove_directory(&path("/etc/a/b")).unwrap());
}

/// The user of the tests below that is not trusted.
const CORE: u32 = 1000;

/// Returns a root with enforced owners and a home directory of [`CORE`]; `None` without the privilege to change owners.
fn with_home() -> Option<Trap> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: owners can only be changed by root");
        return None;
    }
    let mut trap = Trap::new();
    trap.root = Root::open(&trap.directory.path().join("root"), Ownership::Enforced).unwrap();
    fs::create_dir_all(trap.inside("home/core/.ssh")).unwrap();
    for path in ["home/core", "home/core/.ssh"] {
        std::os::unix::fs::chown(trap.inside(path), Some(CORE), Some(CORE)).unwrap();
    }
    Some(trap)
}

fn link_of(trap: &Trap, owner: u32, target: &str, path: &str) {
    symlink(target, trap.inside(path)).unwrap();
    std::os::unix::fs::lchown(trap.inside(path), Some(owner), Some(owner)).unwrap();
}

#[track_caller]
fn assert_untrusted<T: std::fmt::Debug>(result: Result<T, FsError>, expected: &str) {
    match result.unwrap_err() {
        FsError::UntrustedLink { link, owner, .. } => assert_eq!((link.as_str(), owner), (expected, CORE)),
        other => assert!(matches!(other, FsError::UntrustedLink { .. }), "{other}"),
    }
}

#[test]
fn a_link_in_a_users_directory_does_not_redirect_root() {
    let Some(trap) = with_home() else { return };
    fs::create_dir(trap.inside("etc/cron.hourly")).unwrap();
    link_of(
        &trap,
        CORE,
        "/etc/cron.hourly",
        "home/core/.ssh/authorized_keys.d",
    );
    link_of(&trap, CORE, "../../etc", "home/core/sub");
    link_of(&trap, CORE, "/etc/shadow", "home/core/file");
    fs::write(trap.inside("etc/shadow"), "secret").unwrap();
    let keys = path("/home/core/.ssh/authorized_keys.d/ignition");
    let link = "/home/core/.ssh/authorized_keys.d";
    let root = &trap.root;
    assert_untrusted(root.create_file(&keys, PLAIN, b"x", None, Durability::Now), link);
    assert_untrusted(root.write_atomically(&keys, PLAIN, b"x"), link);
    assert_untrusted(root.entry(&keys), link);
    assert_untrusted(root.missing_directories(&keys.parent().unwrap()), link);
    assert_untrusted(root.remove_file(&path("/home/core/sub/shadow")), "/home/core/sub");
    assert_untrusted(root.symlink("x", &path("/home/core/sub/link")), "/home/core/sub");
    assert_untrusted(
        root.create_directory(&path("/home/core/sub/a"), PLAIN),
        "/home/core/sub",
    );
    assert_untrusted(
        root.rename(&path("/etc/shadow"), &path("/home/core/sub/moved")),
        "/home/core/sub",
    );
    assert_untrusted(root.read(&path("/home/core/file"), 100), "/home/core/file");
    assert_eq!(fs::read_dir(trap.inside("etc/cron.hourly")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(trap.inside("etc/shadow")).unwrap(), "secret");
}

#[test]
fn a_link_of_a_user_in_a_shared_directory_of_root_is_not_followed() {
    let Some(trap) = with_home() else { return };
    fs::create_dir(trap.inside("tmp")).unwrap();
    link_of(&trap, CORE, "/etc", "tmp/etc");
    assert_untrusted(
        trap.root.write_atomically(&path("/tmp/etc/x"), PLAIN, b"x"),
        "/tmp/etc",
    );
}

#[test]
fn a_directory_of_root_below_a_users_directory_does_not_make_its_links_trusted() {
    let Some(trap) = with_home() else { return };
    // The user can rename the directory, and so put its link wherever a config writes below the home directory.
    fs::create_dir(trap.inside("home/core/backup")).unwrap();
    link_of(&trap, 0, "/etc", "home/core/backup/etc");
    assert_untrusted(
        trap.root
            .write_atomically(&path("/home/core/backup/etc/x"), PLAIN, b"x"),
        "/home/core/backup/etc",
    );
}

#[test]
fn links_of_root_are_followed_on_the_way_to_a_users_directory() {
    let Some(trap) = with_home() else { return };
    fs::create_dir_all(trap.inside("var")).unwrap();
    fs::create_dir_all(trap.inside("run")).unwrap();
    fs::create_dir_all(trap.inside("usr/lib")).unwrap();
    fs::rename(trap.inside("home"), trap.inside("var/home")).unwrap();
    link_of(&trap, 0, "var/home", "home");
    link_of(&trap, 0, "../run", "var/run");
    link_of(&trap, 0, "usr/lib", "lib");
    link_of(&trap, 0, "/lib/../lib/./modules", "etc/modules");
    fs::create_dir(trap.inside("usr/lib/modules")).unwrap();
    for (name, found) in [
        ("/home/core/.ssh/keys", "var/home/core/.ssh/keys"),
        ("/var/run/a", "run/a"),
        ("/lib/a", "usr/lib/a"),
        ("/etc/modules/a", "usr/lib/modules/a"),
    ] {
        trap.root.write_atomically(&path(name), PLAIN, b"x").unwrap();
        assert_eq!(fs::read_to_string(trap.inside(found)).unwrap(), "x", "{name}");
    }
    link_of(&trap, 0, "loop", "etc/loop");
    assert!(matches!(
        trap.root.read(&path("/etc/loop"), 1),
        Err(FsError::Failed { .. })
    ));
}
