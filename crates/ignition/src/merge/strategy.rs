//! How the values of one field are combined. Which strategy a field follows is stated in the model's tables.

use std::collections::{HashMap, HashSet};

use super::Merge;
use super::keyed::Keyed;
use super::observer::{Change, Item, KernelArgumentList, Trail};
use crate::model::{HttpHeader, SpecStamp};

/// A way to lay a child's value over a parent's.
pub(crate) trait Strategy<T> {
    fn merge(&self, parent: &mut T, child: T, trail: &mut Trail<'_>);
    fn announce(&self, value: &T, trail: &mut Trail<'_>);
}

/// Objects field by field; scalars replaced by what the child states.
pub(crate) struct Whole;

/// Entries with equal keys are one thing, kept in the parent's place; new ones follow in the child's order.
pub(crate) struct ByKey;

/// Strings of which each is kept once.
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
        trail.inside(Item::Section("ignition"), |trail| parent.merge_from(child, trail));
    }

    fn announce(&self, value: &T, trail: &mut Trail<'_>) {
        trail.inside(Item::Section("ignition"), |trail| value.announce(trail));
    }
}

impl<T: Merge> Strategy<T> for Whole {
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
            None => Change::Added,
            Some(_) if *self == child => Change::Repeated,
            Some(_) => Change::Overrode,
        });
        *self = child;
    }

    fn announce(&self, trail: &mut Trail<'_>) {
        if self.is_some() {
            trail.report(Change::Added);
        }
    }
}

/// Plain strings and numbers are the keys of their records, equal on both sides by the time they meet.
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

impl<T: Keyed + Merge> Strategy<Vec<T>> for ByKey {
    fn merge(&self, parent: &mut Vec<T>, child: Vec<T>, trail: &mut Trail<'_>) {
        if child.is_empty() {
            return;
        }
        let mut child: Vec<Option<T>> = child.into_iter().map(Some).collect();
        let places: HashMap<String, usize> = child
            .iter()
            .flatten()
            .enumerate()
            .map(|(place, entry)| (entry.key().into_owned(), place))
            .collect();
        for entry in parent.iter_mut() {
            let matching = places
                .get(entry.key().as_ref())
                .and_then(|&place| child[place].take());
            if let Some(matching) = matching {
                let key = entry.key().into_owned();
                let item = entry.item(trail.item());
                enter(&key, item, trail, |trail| entry.merge_from(matching, trail));
            }
        }
        for entry in child.into_iter().flatten() {
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

fn announce_entry<T: Keyed + Merge>(entry: &T, trail: &mut Trail<'_>) {
    let item = entry.item(trail.item());
    enter(&entry.key(), item, trail, |trail| {
        trail.report(Change::Added);
        entry.announce(trail);
    });
}

fn enter(key: &str, item: Option<Item>, trail: &mut Trail<'_>, step: impl FnOnce(&mut Trail<'_>)) {
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
            trail.report(Change::Added);
        }
    }
}

/// Unites two lists of strings, telling `report` about each of the child's.
fn unite(
    parent: &mut Vec<String>,
    child: Vec<String>,
    trail: &mut Trail<'_>,
    report: impl Fn(&str, Change, &mut Trail<'_>),
) {
    if child.is_empty() {
        return;
    }
    let present: HashSet<String> = parent.iter().cloned().collect();
    for entry in child {
        if present.contains(&entry) {
            report(&entry, Change::Repeated, trail);
        } else {
            report(&entry, Change::Added, trail);
            parent.push(entry);
        }
    }
}

impl Strategy<Vec<String>> for Set {
    fn merge(&self, parent: &mut Vec<String>, child: Vec<String>, trail: &mut Trail<'_>) {
        unite(parent, child, trail, |entry, change, trail| {
            trail.at(entry, |trail| trail.report(change));
        });
    }

    fn announce(&self, value: &Vec<String>, trail: &mut Trail<'_>) {
        for entry in value {
            trail.at(entry, |trail| trail.report(Change::Added));
        }
    }
}

/// A list of strings each of which is an item of its own.
macro_rules! string_items {
    ($strategy:ident, |$entry:ident, $around:ident| $item:expr) => {
        impl $strategy {
            fn report($entry: &str, change: Change, trail: &mut Trail<'_>) {
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
                    Self::report(entry, Change::Added, trail);
                }
            }
        }
    };
}

string_items!(SshKeys, |key, around| match around {
    Item::User(user) => Item::SshKey {
        user: user.clone(),
        key: key.to_owned()
    },
    other => other.clone(),
});
string_items!(ShouldExist, |argument, _around| Item::KernelArgument {
    list: KernelArgumentList::ShouldExist,
    argument: argument.to_owned(),
});
string_items!(ShouldNotExist, |argument, _around| Item::KernelArgument {
    list: KernelArgumentList::ShouldNotExist,
    argument: argument.to_owned(),
});

impl Strategy<Vec<HttpHeader>> for Headers {
    fn merge(&self, parent: &mut Vec<HttpHeader>, child: Vec<HttpHeader>, trail: &mut Trail<'_>) {
        for header in child {
            let place = parent.iter().position(|known| known.name == header.name);
            trail.at(&header.name.clone(), |trail| match (place, &header.value) {
                (Some(place), None) => {
                    parent.remove(place);
                    trail.report(Change::Removed);
                }
                (Some(place), Some(_)) => parent[place].merge_from(header, trail),
                (None, _) => {
                    trail.report(Change::Added);
                    parent.push(header);
                }
            });
        }
    }

    fn announce(&self, value: &Vec<HttpHeader>, trail: &mut Trail<'_>) {
        for header in value {
            trail.at(&header.name, |trail| trail.report(Change::Added));
        }
    }
}
