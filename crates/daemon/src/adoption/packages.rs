//! Names the packages that own files, from the databases on the machine's own disk.

use std::collections::BTreeMap;

use mco_api::node_adoption::AdoptionDifference;
use mco_host::{FileKind, FsError, Root, RootedPath};

const DPKG_LISTS: &str = "/var/lib/dpkg/info";
const LARGEST_LIST: u64 = 16 << 20;

/// Adds the owning package to each file that would be replaced or removed. On distributions with rpm the database is
/// binary, so their packages stay unnamed.
pub(super) fn name(root: &Root, differences: &mut [AdoptionDifference]) -> Result<(), FsError> {
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
    for (index, difference) in differences.iter().enumerate() {
        if difference.found.is_none() {
            continue;
        }
        wanted.insert(difference.path.clone(), index);
        // Packages of a merged /usr may still list the old names.
        if let Some(merged) = difference.path.strip_prefix("/usr") {
            wanted.entry(merged.to_owned()).or_insert(index);
        }
    }
    let lists = RootedPath::new(DPKG_LISTS)?;
    let exists = root
        .entry(&lists)?
        .is_some_and(|entry| entry.kind == FileKind::Directory);
    if wanted.is_empty() || !exists {
        return Ok(());
    }
    for file in root.list(&lists)? {
        // `.conffiles` have the configuration files of packages that list only their directories.
        let Some(package) = file
            .strip_suffix(".list")
            .or_else(|| file.strip_suffix(".conffiles"))
        else {
            continue;
        };
        let text = root
            .read_text(&lists.join(&file)?, LARGEST_LIST)?
            .unwrap_or_default();
        for line in text.lines() {
            let path = line.split(' ').next().unwrap_or_default();
            let difference = wanted.get(path).and_then(|index| differences.get_mut(*index));
            if let Some(difference) = difference {
                difference.package.get_or_insert_with(|| package.to_owned());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mco_api::node_adoption::AdoptionFile;
    use mco_host::Ownership;

    use super::*;

    #[test]
    fn the_owner_of_a_file_is_found_in_dpkgs_lists() {
        let directory = tempfile::tempdir().unwrap();
        let lists = directory.path().join("var/lib/dpkg/info");
        std::fs::create_dir_all(&lists).unwrap();
        std::fs::write(lists.join("chrony.list"), "/.\n/etc\n/usr/sbin/chronyd\n").unwrap();
        std::fs::write(lists.join("chrony.conffiles"), "/etc/chrony/chrony.conf\n").unwrap();
        std::fs::write(
            lists.join("kubelet.list"),
            "/lib/systemd/system/kubelet.service\n",
        )
        .unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let difference = |path: &str| AdoptionDifference {
            path: path.to_owned(),
            found: Some(AdoptionFile::default()),
            ..AdoptionDifference::default()
        };
        let mut all = [
            difference("/etc/chrony/chrony.conf"),
            difference("/usr/lib/systemd/system/kubelet.service"),
            difference("/etc/own"),
        ];
        name(&root, &mut all).unwrap();
        let packages: Vec<Option<&str>> = all.iter().map(|one| one.package.as_deref()).collect();
        assert_eq!(packages, [Some("chrony"), Some("kubelet"), None]);
    }
}
