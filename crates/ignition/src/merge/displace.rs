//! Lists that share one key space: an entry in one list of the child removes the entry with the same key from the other
//! lists of the parent.

use std::borrow::Cow;
use std::collections::HashSet;

use super::keyed::Keyed;
use super::observer::{KernelArgumentList, MergeChange, MergedItem, Trail};
use crate::model::{KernelArguments, Storage};

/// A path is a file, a directory or a link, never two of them.
pub(super) fn nodes(parent: &mut Storage, child: &Storage, trail: &mut Trail<'_>) {
    let files = paths(&child.files);
    let directories = paths(&child.directories);
    let links = paths(&child.links);
    remove(&mut parent.files, &[&directories, &links], trail);
    remove(&mut parent.directories, &[&files, &links], trail);
    remove(&mut parent.links, &[&files, &directories], trail);
}

/// A kernel argument is wanted or unwanted, never both.
pub(super) fn kernel_arguments(parent: &mut KernelArguments, child: &KernelArguments, trail: &mut Trail<'_>) {
    let mut remove = |list: &mut Vec<String>, displacing: &[String], kind| {
        let displacing: HashSet<&str> = displacing.iter().map(String::as_str).collect();
        list.retain(|argument| {
            let displaced = displacing.contains(argument.as_str());
            if displaced {
                let item = MergedItem::KernelArgument {
                    list: kind,
                    argument: argument.clone(),
                };
                trail.inside(item, |trail| trail.report(MergeChange::Removed));
            }
            !displaced
        });
    };
    remove(
        &mut parent.should_exist,
        &child.should_not_exist,
        KernelArgumentList::ShouldExist,
    );
    remove(
        &mut parent.should_not_exist,
        &child.should_exist,
        KernelArgumentList::ShouldNotExist,
    );
}

fn paths<T: Keyed>(nodes: &[T]) -> HashSet<Cow<'_, str>> {
    nodes.iter().map(Keyed::key).collect()
}

fn remove<T: Keyed>(nodes: &mut Vec<T>, displacing: &[&HashSet<Cow<'_, str>>], trail: &mut Trail<'_>) {
    if displacing.iter().all(|paths| paths.is_empty()) {
        return;
    }
    nodes.retain(|node| {
        let displaced = displacing.iter().any(|paths| paths.contains(node.key().as_ref()));
        if displaced && let Some(item) = node.item(trail.item()) {
            trail.inside(item, |trail| trail.report(MergeChange::Removed));
        }
        !displaced
    });
}
