//! Merge strategies of fields. The model's tables select the strategy of each field.

use std::collections::{HashMap, HashSet};

use super::Merge;
use super::keyed::Keyed;
use super::observer::{KernelArgumentList, MergeChange, MergedItem, Trail};
use crate::model::{HttpHeader, SpecStamp};

/// A way to merge a child's value into a parent's.
pub(crate) trait Strategy<T> {
    fn merge(&self, parent: &mut T, child: T, trail: &mut Trail<'_>);
    fn announce(&self, value: &T, trail: &mut Trail<'_>);
}

/// Objects are merged field by field; scalars are replaced by the child's.
pub(crate) struct WholeValue;

/// Entries with equal keys are merged in the parent's position; new ones follow in the child's order.
pub(crate) struct ByKey;

/// A set of strings.
pub(crate) struct Set;

/// The parent's entries, then the child's.
pub(crate) struct Append;

/// HTTP headers: by name, and one without a value removes the parent's.
pub(crate) struct Headers;

/// The keys of a user, each an item of its own.
pub(crate) struct SshKeys;

/// Kernel arguments to add, each an item of its own.
pub(crate) struct ShouldExist;

/// Kernel arguments to remove, each an item of its own.
pub(crate) struct ShouldNotExist;

/// The `ignition` section, an item of its own.
pub(crate) struct IgnitionSection;

impl<T: Merge> Strategy<T> for IgnitionSection {
    fn merge(&self, parent: &mut T, child: T, trail: &mut Trail<'_>) {
        trail.inside(MergedItem::Section("ignition"), |trail| {
            parent.merge_from(child, trail)
        });
    }

    fn announce(&self, value: &T, trail: &mut Trail<'_>) {
        trail.inside(MergedItem::Section("ignition"), |trail| value.announce(trail));
    }
}

impl<T: Merge> Strategy<T> for WholeValue {
    fn merge(&self, parent: &mut T, child: T, trail: &mut Trail<'_>) {
        parent.merge_from(child, trail);
    }

    fn announce(&self, value: &T, trail: &mut Trail<'_>) {
        value.announce(trail);
    }
}

impl<T: PartialEq> Merge for Option<T> {
    fn merge_from(&mut self, child: Self, trail: &mut Trail<'_>) {
        if child.is_none() {
            return;
        }
        trail.report(match self {
            None => MergeChange::Added,
            Some(_) if *self == child => MergeChange::Repeated,
            Some(_) => MergeChange::Overrode,
        });
        *self = child;
    }

    fn announce(&self, trail: &mut Trail<'_>) {
        if self.is_some() {
            trail.report(MergeChange::Added);
        }
    }
}

/// Plain strings and numbers are the keys of their records, so they are already equal when they are merged.
macro_rules! identity {
    ($($type:ty),*) => {
        $(
            impl Merge for $type {
                fn merge_from(&mut self, child: Self, _: &mut Trail<'_>) {
                    *self = child;
                }

                fn announce(&self, _: &mut Trail<'_>) {}
            }
        )*
    };
}

identity!(String, i64, SpecStamp);

impl<T: Keyed + Merge + Clone> Strategy<Vec<T>> for ByKey {
    fn merge(&self, parent: &mut Vec<T>, child: Vec<T>, trail: &mut Trail<'_>) {
        let Pairing { pairs, added } = pair(parent, child);
        for (place, matching) in pairs {
            let entry = &mut parent[place];
            let key = entry.key().into_owned();
            let item = entry.item(trail.item());
            enter(&key, item, trail, |trail| entry.merge_from(matching, trail));
        }
        for entry in added {
            announce_entry(&entry, trail);
            parent.push(entry);
        }
    }

    fn announce(&self, value: &Vec<T>, trail: &mut Trail<'_>) {
        for entry in value {
            announce_entry(entry, trail);
        }
    }
}

/// The entries of a child list, partitioned by whether the parent list has their key.
struct Pairing<T> {
    /// Positions in the parent, each with the child's entry of the same key.
    pairs: Vec<(usize, T)>,
    /// Entries whose key the parent does not have.
    added: Vec<T>,
}

/// Pairs the entries of two lists by key. Keys repeat only in configs that were not validated. Then the child's last
/// entry of a key is used for every entry of the parent that has the key.
fn pair<T: Keyed + Clone>(parent: &[T], child: Vec<T>) -> Pairing<T> {
    let mut last_with: HashMap<String, usize> = HashMap::with_capacity(child.len());
    let lasts = |last_with: &HashMap<String, usize>, entry: &T| last_with.get(entry.key().as_ref()).copied();
    for (place, entry) in child.iter().enumerate() {
        last_with.insert(entry.key().into_owned(), place);
    }
    if last_with.is_empty() {
        return Pairing {
            pairs: Vec::new(),
            added: Vec::new(),
        };
    }
    let matches: Vec<(usize, usize)> = parent
        .iter()
        .enumerate()
        .filter_map(|(place, entry)| Some((place, lasts(&last_with, entry)?)))
        .collect();
    let mut uses = vec![0_usize; child.len()];
    for (_, last) in &matches {
        uses[*last] += 1;
    }
    let mut added = Vec::new();
    let mut overriding: Vec<Option<T>> = Vec::with_capacity(child.len());
    for entry in child {
        let is_matched = lasts(&last_with, &entry).is_some_and(|last| uses[last] > 0);
        if is_matched {
            overriding.push(Some(entry));
        } else {
            overriding.push(None);
            added.push(entry);
        }
    }
    let mut take = |last: usize| {
        uses[last] -= 1;
        if uses[last] == 0 {
            overriding[last].take()
        } else {
            overriding[last].clone()
        }
    };
    let pairs = matches
        .into_iter()
        .filter_map(|(place, last)| Some((place, take(last)?)))
        .collect();
    Pairing { pairs, added }
}

fn announce_entry<T: Keyed + Merge>(entry: &T, trail: &mut Trail<'_>) {
    let item = entry.item(trail.item());
    enter(&entry.key(), item, trail, |trail| {
        trail.report(MergeChange::Added);
        entry.announce(trail);
    });
}

fn enter(key: &str, item: Option<MergedItem>, trail: &mut Trail<'_>, step: impl FnOnce(&mut Trail<'_>)) {
    match item {
        Some(item) => trail.inside(item, step),
        None => trail.at(key, step),
    }
}

impl<T> Strategy<Vec<T>> for Append {
    fn merge(&self, parent: &mut Vec<T>, child: Vec<T>, trail: &mut Trail<'_>) {
        self.announce(&child, trail);
        parent.extend(child);
    }

    fn announce(&self, value: &Vec<T>, trail: &mut Trail<'_>) {
        if !value.is_empty() {
            trail.report(MergeChange::Added);
        }
    }
}

/// Unites two lists of strings, calling `report` for each of the child's.
fn unite(
    parent: &mut Vec<String>,
    child: Vec<String>,
    trail: &mut Trail<'_>,
    report: impl Fn(&str, MergeChange, &mut Trail<'_>),
) {
    let present: HashSet<&str> = parent.iter().map(String::as_str).collect();
    let mut added = Vec::with_capacity(child.len());
    for entry in child {
        if present.contains(entry.as_str()) {
            report(&entry, MergeChange::Repeated, trail);
        } else {
            report(&entry, MergeChange::Added, trail);
            added.push(entry);
        }
    }
    parent.extend(added);
}

impl Strategy<Vec<String>> for Set {
    fn merge(&self, parent: &mut Vec<String>, child: Vec<String>, trail: &mut Trail<'_>) {
        unite(parent, child, trail, |entry, change, trail| {
            trail.at(entry, |trail| trail.report(change));
        });
    }

    fn announce(&self, value: &Vec<String>, trail: &mut Trail<'_>) {
        for entry in value {
            trail.at(entry, |trail| trail.report(MergeChange::Added));
        }
    }
}

/// A list of strings each of which is an item of its own.
macro_rules! string_items {
    ($strategy:ident, |$entry:ident, $around:ident| $item:expr) => {
        impl $strategy {
            fn report($entry: &str, change: MergeChange, trail: &mut Trail<'_>) {
                let $around = trail.item();
                let item = $item;
                trail.inside(item, |trail| trail.report(change));
            }
        }

        impl Strategy<Vec<String>> for $strategy {
            fn merge(&self, parent: &mut Vec<String>, child: Vec<String>, trail: &mut Trail<'_>) {
                unite(parent, child, trail, Self::report);
            }

            fn announce(&self, value: &Vec<String>, trail: &mut Trail<'_>) {
                for entry in value {
                    Self::report(entry, MergeChange::Added, trail);
                }
            }
        }
    };
}

string_items!(SshKeys, |key, around| match around {
    MergedItem::User(user) => MergedItem::SshKey {
        user: user.clone(),
        key: key.to_owned()
    },
    other => other.clone(),
});
string_items!(ShouldExist, |argument, _around| MergedItem::KernelArgument {
    list: KernelArgumentList::ShouldExist,
    argument: argument.to_owned(),
});
string_items!(ShouldNotExist, |argument, _around| MergedItem::KernelArgument {
    list: KernelArgumentList::ShouldNotExist,
    argument: argument.to_owned(),
});

impl Strategy<Vec<HttpHeader>> for Headers {
    fn merge(&self, parent: &mut Vec<HttpHeader>, child: Vec<HttpHeader>, trail: &mut Trail<'_>) {
        let Pairing { pairs, added } = pair(parent, child);
        let mut removed = HashSet::new();
        for (place, matching) in pairs {
            trail.at(&matching.name.clone(), |trail| {
                if matching.value.is_none() {
                    removed.insert(place);
                    trail.report(MergeChange::Removed);
                } else {
                    parent[place].value.merge_from(matching.value, trail);
                }
            });
        }
        let mut place = 0..;
        parent.retain(|_| place.next().is_none_or(|place| !removed.contains(&place)));
        self.announce(&added, trail);
        parent.extend(added);
    }

    fn announce(&self, value: &Vec<HttpHeader>, trail: &mut Trail<'_>) {
        for header in value {
            trail.at(&header.name, |trail| trail.report(MergeChange::Added));
        }
    }
}
