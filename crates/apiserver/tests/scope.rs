//! The API server has no knowledge of the resources of the embedding program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

/// Words of the machine config API. Policy about these objects belongs to the embedding program, which installs it as
/// an `Authorizer`, an `Admission` or an `ExtraRoute`.
const FOREIGN: &[&str] = &["machineconfig", "rendered-", "pool"];

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_source_names_a_resource_of_the_embedding_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources = sources(&root);
    assert!(sources.len() > 100, "{}", sources.len());
    for path in sources {
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            for word in FOREIGN {
                assert!(!line.contains(word), "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
}
