//! Each API write names its field manager, so that `metadata.managedFields` show who has written what.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod source;

use std::fs;

use source::{sources, without_tests};

/// What is reviewed is not stored.
const REVIEWS: [&str; 2] = ["console/src/hub/mod.rs", "http/src/metrics/review.rs"];
/// The API server itself, and simulated clients of others.
const NOT_CLIENTS: [&str; 2] = ["apiserver/", "testkit/"];

#[test]
fn requests_of_nodes_and_images_of_the_installation_were_written_without_a_field_manager() {
    let crates = mco_testkit::repository_root().join("crates");
    let mut found = Vec::new();
    for path in sources(&crates) {
        let file = path.strip_prefix(&crates).unwrap().to_str().unwrap();
        let is_source = file.contains("/src/") && !file.ends_with("tests.rs");
        if !is_source || REVIEWS.contains(&file) || NOT_CLIENTS.iter().any(|start| file.starts_with(start)) {
            continue;
        }
        let code = without_tests(&fs::read_to_string(&path).unwrap());
        let anonymous = |line: &&str| {
            ["&PatchParams::default()", "&PostParams::default()"]
                .iter()
                .any(|parameters| line.contains(parameters))
        };
        found.extend(
            code.lines()
                .filter(anonymous)
                .map(|line| format!("{file}: {}", line.trim())),
        );
    }
    assert_eq!(found, [""; 0], "use FieldManager::patch_params or post_params");
}
