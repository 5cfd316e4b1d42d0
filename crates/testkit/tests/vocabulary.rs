//! The vocabulary of the source: the words of CONTRIBUTING.md in comments, and type names that can be searched for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Words per 10,000 words of comments that each group may reach.
const LIMIT: usize = 2;
/// Definitions of types that share their name with another one, in all crates together.
const HOMONYMS: usize = 250;

/// Persons and promises in place of components and facts.
const AVOIDED: [(&str, &[&str]); 3] = [
    ("tell", &["tell", "tells", "told", "telling"]),
    (
        "nobody",
        &[
            "nobody",
            "somebody",
            "whoever",
            "whatever",
            "everybody",
            "anybody",
        ],
    ),
    ("shall", &["shall"]),
];

fn sources() -> Vec<PathBuf> {
    fn visit(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&mco_testkit::repository_root().join("crates"), &mut found);
    found.sort();
    found
}

/// The words of a file's line comments, in lower case.
fn comment_words(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("//"))
        .flat_map(|comment| comment.split(|c: char| !c.is_ascii_alphabetic()))
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

/// The types that a file defines, outside of its tests.
fn types(text: &str) -> Vec<&str> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let line = match line.strip_prefix("pub") {
                Some(rest) => rest.split_once(' ')?.1,
                None => line,
            };
            let (keyword, rest) = line.split_once(' ')?;
            ["struct", "enum", "trait", "type", "union"]
                .contains(&keyword)
                .then(|| rest.split(|c: char| !c.is_ascii_alphanumeric()).next())?
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn comments_use_the_terms_of_the_field() {
    let words: Vec<String> = sources()
        .iter()
        .filter(|path| !path.ends_with("testkit/tests/vocabulary.rs"))
        .flat_map(|path| comment_words(&fs::read_to_string(path).unwrap()))
        .collect();
    for (group, avoided) in AVOIDED {
        let found = words
            .iter()
            .filter(|word| avoided.contains(&word.as_str()))
            .count();
        assert!(
            found * 10_000 < LIMIT * words.len(),
            "{group}: {found} of {} words of comments; name the component and what it does",
            words.len()
        );
    }
}

#[test]
fn types_that_leave_their_module_have_names_of_their_own() {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let root = mco_testkit::repository_root().join("crates");
    for path in sources() {
        let place = path.strip_prefix(&root).unwrap().display().to_string();
        if !place.contains("/src/") {
            continue;
        }
        for name in types(&fs::read_to_string(&path).unwrap()) {
            by_name.entry(name.to_owned()).or_default().push(place.clone());
        }
    }
    by_name.retain(|_, places| places.len() > 1);
    let shared: usize = by_name.values().map(Vec::len).sum();
    assert!(
        shared < HOMONYMS,
        "{shared} definitions share {} names; qualify those that leave their module: {by_name:#?}",
        by_name.len()
    );
}
