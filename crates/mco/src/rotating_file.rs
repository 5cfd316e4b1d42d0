//! A private log file that is rotated by size, with a bounded number of earlier files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const PRIVATE: u32 = 0o600;

/// A log file. When it is full it is renamed to `<name>.1`, the earlier `.1` to `.2` and so on; the oldest is deleted.
#[derive(Debug)]
pub struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    old_files: u8,
}

impl RotatingFile {
    /// Opens a file for appending. It is readable by its owner only, also if it exists already.
    pub fn open(path: &Path, max_size: u64, old_files: u8) -> io::Result<Self> {
        let file = append_to(path)?;
        Ok(Self {
            path: path.to_owned(),
            size: file.metadata()?.len(),
            file,
            max_size,
            old_files,
        })
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.old_files).rev() {
            rename_existing(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename_existing(&self.path, &self.numbered(1))?;
        self.file = append_to(&self.path)?;
        self.size = 0;
        Ok(())
    }

    fn numbered(&self, number: u8) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_full = self.size > 0 && self.size.saturating_add(bytes.len() as u64) > self.max_size;
        if is_full && self.rotate().is_err() {
            // Without room for another file, the log goes on in this one, and the next attempt follows a full file.
            self.size = 0;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(PRIVATE)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(PRIVATE))?;
    Ok(file)
}

fn rename_existing(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_grew_without_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mco.log");
        let mut log = RotatingFile::open(&path, 100, 2).unwrap();
        for number in 0..100 {
            log.write_all(format!("line {number:03}\n").as_bytes()).unwrap();
        }
        let mut names: Vec<String> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["mco.log", "mco.log.1", "mco.log.2"]);
        let all: String = ["mco.log.2", "mco.log.1", "mco.log"]
            .map(|name| fs::read_to_string(directory.path().join(name)).unwrap())
            .concat();
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines.last(), Some(&"line 099"));
        assert_eq!(lines.len(), 23, "in order, without gaps: {lines:?}");
        for name in names {
            let metadata = fs::metadata(directory.path().join(name)).unwrap();
            assert!(metadata.len() <= 100);
            assert_eq!(metadata.permissions().mode() & 0o777, PRIVATE);
        }
    }

    #[test]
    fn the_log_of_an_earlier_version_was_readable_by_every_user() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mco.log");
        fs::write(&path, "earlier\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let mut log = RotatingFile::open(&path, 1000, 1).unwrap();
        writeln!(log, "later").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier\nlater\n");
    }
}
