//! Validates lists with unique keys.

use std::collections::HashSet;
use std::hash::Hash;

use super::{Checker, rule};
use crate::merge::Keyed;
use crate::model::{KernelArguments, Storage};

/// Reports every entry whose key occurs earlier.
pub(super) fn by_key<T: Keyed>(list: &[T], check: &mut Checker) {
    report_repeats(list.iter().map(Keyed::key), &mut HashSet::new(), check);
}

pub(super) fn strings(list: &[String], check: &mut Checker) {
    report_repeats(list.iter().map(String::as_str), &mut HashSet::new(), check);
}

/// Reports arguments that are in both lists.
pub(super) fn kernel_arguments(arguments: &KernelArguments, check: &mut Checker) {
    let mut seen = HashSet::new();
    check.field("shouldExist", |check| {
        report_repeats(
            arguments.should_exist.iter().map(String::as_str),
            &mut seen,
            check,
        );
    });
    check.field("shouldNotExist", |check| {
        report_repeats(
            arguments.should_not_exist.iter().map(String::as_str),
            &mut seen,
            check,
        );
    });
}

/// Reports paths that are declared as more than one of file, directory and link.
pub(super) fn paths(storage: &Storage, check: &mut Checker) {
    let mut seen = HashSet::new();
    check.field("directories", |check| {
        report_repeats(
            storage.directories.iter().map(|node| node.path.as_str()),
            &mut seen,
            check,
        );
    });
    check.field("files", |check| {
        report_repeats(
            storage.files.iter().map(|node| node.path.as_str()),
            &mut seen,
            check,
        );
    });
    check.field("links", |check| {
        report_repeats(
            storage.links.iter().map(|node| node.path.as_str()),
            &mut seen,
            check,
        );
    });
}

fn report_repeats<K: Eq + Hash>(keys: impl Iterator<Item = K>, seen: &mut HashSet<K>, check: &mut Checker) {
    for (index, key) in keys.enumerate() {
        if !seen.insert(key) {
            check.element(index, |check| check.error(rule::DUPLICATE));
        }
    }
}
