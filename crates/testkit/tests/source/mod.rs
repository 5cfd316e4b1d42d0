//! The source of the crates, for tests of its structure.

use std::fs;
use std::path::{Path, PathBuf};

const TEST_ONLY: &str = "#[cfg(test)]";

/// Returns the Rust files below a directory.
pub fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the code without its tests, which may do more. Relies on rustfmt: an item ends where a line with its own
/// indentation closes it.
pub fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let content = line.trim_start();
        let indentation = line.len() - content.len();
        if !content.starts_with(TEST_ONLY) {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        for line in lines.by_ref() {
            let is_outermost = line.len() - line.trim_start().len() == indentation;
            if is_outermost && (line.ends_with(';') || line.ends_with('}') || line.ends_with(',')) {
                break;
            }
        }
    }
    code
}
