//! The directories of builds that run as processes of this host. While a build runs, its directory has the credentials and
//! keys that the build reads, and gigabytes of images; afterwards only its log.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

const LOG: &str = "log";

/// Returns the path of the log.
pub(crate) fn log(directory: &Path) -> PathBuf {
    directory.join(LOG)
}

/// Removes everything except the log.
pub(crate) fn clear(directory: &Path) {
    for path in entries(directory) {
        if path != log(directory) {
            remove(&path);
        }
    }
}

/// Returns the directories that belong to none of these builds.
pub(crate) fn orphans(directories: Vec<PathBuf>, builds: &BTreeSet<String>) -> Vec<PathBuf> {
    let is_known = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        builds.contains(&*name)
    };
    directories.into_iter().filter(|path| !is_known(path)).collect()
}

/// Returns what a directory contains; nothing if it does not exist.
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes a file or a directory.
pub(crate) fn remove(path: &Path) {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let removed = if is_directory {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!("cannot remove {} of a build: {error}", path.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_storage_of_a_build_that_has_ended_stayed_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let build = directory.path().join("worker-1");
        for path in ["final-image-push-creds", "volume-1", "storage/vfs"] {
            fs::create_dir_all(build.join(path)).unwrap();
            fs::write(build.join(path).join("file"), "x").unwrap();
        }
        fs::write(build.join("policy.json"), "{}").unwrap();
        fs::write(log(&build), "STEP 1").unwrap();
        std::os::unix::fs::symlink("/etc", build.join("link")).unwrap();
        clear(&build);
        assert_eq!(entries(&build), [log(&build)]);
        assert!(Path::new("/etc").exists());
    }

    #[test]
    fn only_directories_of_existing_builds_stay() {
        let directories = vec![
            PathBuf::from("/data/builds/a-1"),
            PathBuf::from("/data/builds/a-12"),
        ];
        let builds = BTreeSet::from(["a-1".to_owned()]);
        assert_eq!(
            orphans(directories, &builds),
            [PathBuf::from("/data/builds/a-12")]
        );
    }
}
