//! The layers of `mco-core` (config, generators, rollout, pipeline): a layer uses only itself and those before it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

const LAYERS: [&str; 4] = ["config", "generators", "rollout", "pipeline"];

fn sources(directory: &Path) -> Vec<PathBuf> {
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

/// The code without its tests, which may build fixtures with any layer.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// The layers that a text names as `crate::<layer>`.
fn named(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices("crate::").filter_map(|(start, path)| {
        let rest = text.get(start + path.len()..)?;
        let name = rest
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()?;
        LAYERS.iter().position(|layer| *layer == name)
    })
}

#[test]
fn a_layer_uses_only_itself_and_those_before_it() {
    let core = mco_testkit::repository_root().join("crates/core/src");
    for (index, layer) in LAYERS.iter().enumerate() {
        for file in sources(&core.join(layer)) {
            if file.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for used in named(without_tests(&text)) {
                let file = file.strip_prefix(&core).unwrap();
                assert!(used <= index, "{}: {layer} uses {}", file.display(), LAYERS[used]);
            }
        }
    }
}

#[test]
fn nothing_is_outside_of_the_layers() {
    let core = mco_testkit::repository_root().join("crates/core/src");
    let mut names: Vec<String> = fs::read_dir(core)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["config", "generators", "lib.rs", "pipeline", "rollout"]);
}

/// The rows of the path through the source: `` | 1 | `file` `function` | ... | ``.
fn path_of_a_machine_config() -> Vec<(String, String)> {
    let text = fs::read_to_string(mco_testkit::repository_root().join("docs/architecture.md")).unwrap();
    text.lines()
        .filter_map(|line| {
            let mut quoted = line.strip_prefix("| ")?.split('`').skip(1).step_by(2);
            Some((quoted.next()?.to_owned(), quoted.next()?.to_owned()))
        })
        .collect()
}

#[test]
fn the_documented_path_of_a_machine_config_names_real_functions() {
    let path = path_of_a_machine_config();
    assert!((30..=45).contains(&path.len()), "{} hops", path.len());
    for (file, function) in path {
        let source = mco_testkit::repository_root().join("crates").join(&file);
        let text = fs::read_to_string(&source).unwrap_or_else(|_| panic!("there is no {file}"));
        let found = [format!("fn {function}("), format!("fn {function}<")];
        assert!(
            found.iter().any(|definition| text.contains(definition)),
            "{file} has no function {function}"
        );
    }
}

/// The rows of "Where is it?": `` | behaviour | `term` | `file` | ``.
#[test]
fn the_terms_of_where_is_it_are_in_their_files() {
    let text = fs::read_to_string(mco_testkit::repository_root().join("CONTRIBUTING.md")).unwrap();
    let section = text.split("## Where is it?").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| {
            let mut quoted = line.strip_prefix("| ")?.split('`').skip(1).step_by(2);
            Some((quoted.next()?, quoted.next()?))
        })
        .collect();
    assert!(rows.len() >= 12, "{} rows", rows.len());
    for (term, file) in rows {
        let source = fs::read_to_string(mco_testkit::repository_root().join(file));
        let source = source.unwrap_or_else(|_| panic!("there is no {file}"));
        assert!(source.contains(term), "{file} does not contain {term:?}");
    }
}
