//! A compressed archive that is renamed to its final name only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tar::{Builder, Header};

/// The top-level directory in the archive.
const TOP: &str = "mco-gather";
/// Longest file name; names of objects are shorter.
const LONGEST_NAME: usize = 200;

pub struct Bundle {
    archive: Builder<GzEncoder<File>>,
    path: PathBuf,
    unfinished: PathBuf,
    time: u64,
    names: Vec<String>,
}

impl Bundle {
    pub fn create(path: &Path, time: Timestamp) -> anyhow::Result<Self> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        // Readable by the owner only, even without secrets.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)
            .with_context(|| format!("cannot write {}; choose another place with --out", path.display()))?;
        Ok(Self {
            archive: Builder::new(GzEncoder::new(file, Compression::default())),
            path: path.to_owned(),
            unfinished,
            time: u64::try_from(time.as_second()).unwrap_or_default(),
            names: Vec::new(),
        })
    }

    pub fn add(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        let name = format!("{TOP}/{name}");
        self.archive
            .append_data(&mut header, &name, bytes)
            .with_context(|| format!("cannot write {name} to {}", self.path.display()))?;
        self.names.push(name);
        Ok(())
    }

    /// Completes the archive and returns the names of its files.
    pub fn finish(self) -> anyhow::Result<Vec<String>> {
        let failed = || format!("cannot write {}", self.path.display());
        let file = self.archive.into_inner().and_then(GzEncoder::finish);
        file.and_then(|file| file.sync_all()).with_context(failed)?;
        fs::rename(&self.unfinished, &self.path).with_context(failed)?;
        Ok(self.names)
    }
}

/// Returns the name as one safe path component.
pub fn safe(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
            c
        } else {
            '_'
        }
    };
    let name: String = name.chars().map(plain).take(LONGEST_NAME).collect();
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_within_its_directory() {
        for (name, file) in [
            ("50-worker-chrony", "50-worker-chrony"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("a/b:c\u{1b}", "a_b_c_"),
        ] {
            assert_eq!(safe(name), file);
        }
        assert_eq!(safe(&"x".repeat(500)).len(), LONGEST_NAME);
    }
}
