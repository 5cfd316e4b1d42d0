//! Formats file modes as the reference does in its messages: as letters, decimal and octal of Go's mode bits.

use mco_host::{FileEntry, FileKind};

const DIRECTORY: u32 = 1 << 31;
const SYMLINK: u32 = 1 << 27;
const SPECIAL: u32 = 1 << 26;
const SETUID: u32 = 1 << 23;
const SETGID: u32 = 1 << 22;
const STICKY: u32 = 1 << 20;
/// The letters of the type bits, from the highest on.
const LETTERS: &str = "dalTLDpSugct?";

pub fn of_entry(entry: &FileEntry) -> u32 {
    let kind = match entry.kind {
        FileKind::File => 0,
        FileKind::Directory => DIRECTORY,
        FileKind::Symlink => SYMLINK,
        FileKind::Special => SPECIAL,
    };
    let bits = [(0o4000, SETUID), (0o2000, SETGID), (0o1000, STICKY)];
    let special: u32 = bits
        .iter()
        .filter(|(bit, _)| entry.mode & bit != 0)
        .map(|(_, go)| go)
        .sum();
    kind | special | (entry.mode & 0o777)
}

/// Formats a mode, for example `-rw-r--r--/420/0644`.
pub fn describe(mode: u32) -> String {
    let mut letters: String = LETTERS
        .chars()
        .enumerate()
        .filter(|(index, _)| mode & (1 << (31 - index)) != 0)
        .map(|(_, letter)| letter)
        .collect();
    if letters.is_empty() {
        letters.push('-');
    }
    letters.extend("rwxrwxrwx".chars().enumerate().map(|(index, letter)| {
        if mode & (1 << (8 - index)) == 0 {
            '-'
        } else {
            letter
        }
    }));
    format!("{letters}/{mode}/0{mode:o}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_they_always_did() {
        assert_eq!(describe(0o644), "-rw-r--r--/420/0644");
        assert_eq!(describe(SYMLINK | 0o777), "Lrwxrwxrwx/134218239/01000000777");
        assert_eq!(describe(DIRECTORY | 0o755), "drwxr-xr-x/2147484141/020000000755");
    }
}
