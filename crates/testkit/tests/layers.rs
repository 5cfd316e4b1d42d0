//! The layers of `mco-core` (config, generators, rollout, pipeline): a layer uses only itself and those before it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use source::{sources, without_tests};

const LAYERS: [&str; 4] = ["config", "generators", "rollout", "pipeline"];

/// The layers that a text of the module at `depth` below the crate's root names, as `crate::<layer>`, with `super::` or in
/// a group of either.
fn named(text: &str, depth: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for (start, _) in text.match_indices("crate::") {
        found.extend(layers_at(&text[start + "crate::".len()..]));
    }
    let root = "super::".repeat(depth);
    for (start, _) in text.match_indices(&root) {
        found.extend(layers_at(text[start..].trim_start_matches("super::")));
    }
    found
}

/// The layers that a path from the crate's root begins with, several if it begins with a group.
fn layers_at(path: &str) -> Vec<usize> {
    let mut firsts = Vec::new();
    if let Some(group) = path.strip_prefix('{') {
        let (mut level, mut one) = (0, String::new());
        for c in group.chars() {
            match c {
                '}' if level == 0 => break,
                ',' if level == 0 => firsts.push(std::mem::take(&mut one)),
                '{' => level += 1,
                '}' => level -= 1,
                _ if level == 0 => one.push(c),
                _ => {}
            }
        }
        firsts.push(one);
    } else {
        firsts.push(path.to_owned());
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = firsts.iter().map(|path| {
        let path = path.trim_start();
        path.split(|c| !is_part(c)).next().unwrap_or_default()
    });
    names
        .filter_map(|name| LAYERS.iter().position(|layer| *layer == name))
        .collect()
}

/// How far below the crate's root the module of a file is.
fn depth(file: &Path) -> usize {
    let is_directory = file.ends_with("mod.rs");
    file.components().count() - usize::from(is_directory)
}

#[test]
fn a_layer_uses_only_itself_and_those_before_it() {
    let core = mco_testkit::repository_root().join("crates/core/src");
    for (index, layer) in LAYERS.iter().enumerate() {
        for path in sources(&core.join(layer)) {
            if path.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let file = path.strip_prefix(&core).unwrap();
            for used in named(&without_tests(&text), depth(file)) {
                assert!(used <= index, "{}: {layer} uses {}", file.display(), LAYERS[used]);
            }
        }
    }
}

#[test]
fn code_after_the_first_test_item_and_paths_with_super_were_not_checked() {
    let text = "#[cfg(test)]\nuse crate::pipeline::Fixture;\n\n#[cfg(test)]\nmod tests {\n    fn a() {\n        \
                crate::pipeline::b();\n    }\n}\n\nfn after() {\n    crate::rollout::plan();\n}\n";
    assert_eq!(named(&without_tests(text), 2), BTreeSet::from([2]));
    let shared = Path::new("config/merge/mod.rs");
    for (text, expected) in [
        ("use super::super::rollout::plan;", [2].as_slice()),
        (
            "use super::super::{generators::{self, pipeline}, rollout};",
            &[1, 2],
        ),
        (
            "use crate::{\n    config::{rollout, hex},\n    generators,\n};",
            &[0, 1],
        ),
        ("use super::rollout;", &[]),
        ("use super::super::rollouts;", &[]),
    ] {
        let named: Vec<usize> = named(text, depth(shared)).into_iter().collect();
        assert_eq!(named, expected, "{text}");
    }
    assert_eq!(depth(Path::new("config/merge.rs")), 2);
    assert_eq!(depth(Path::new("config/mod.rs")), 1);
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
