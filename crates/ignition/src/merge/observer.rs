//! Observer of a merge, from which a caller derives the origin of each part of the result.

use std::mem;

/// A thing in a config that has an identity across configs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MergedItem {
    /// A section of the config without items of its own; today only `ignition`.
    Section(&'static str),
    File(String),
    Directory(String),
    Link(String),
    Unit(String),
    Dropin {
        unit: String,
        name: String,
    },
    User(String),
    SshKey {
        user: String,
        key: String,
    },
    Group(String),
    Disk(String),
    Raid(String),
    Filesystem(String),
    Luks(String),
    KernelArgument {
        list: KernelArgumentList,
        argument: String,
    },
}

/// The two lists of kernel arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelArgumentList {
    ShouldExist,
    ShouldNotExist,
}

/// What the child did to an item or to one of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MergeChange {
    /// The parent had no such item or value.
    Added,
    /// The child's value replaced a different one of the parent.
    Overrode,
    /// The child states the value that the parent already had.
    Repeated,
    /// The parent's item or value is gone: the child declares the path as another kind of node, moves a kernel argument to
    /// the other list, or clears an HTTP header.
    Removed,
}

/// One step of a merge.
#[derive(Clone, Copy, Debug)]
pub struct MergeEvent<'a> {
    pub item: &'a MergedItem,
    /// The field of the item, as in `contents.source` or `partitions[number:1].sizeMiB`; empty for the item itself.
    pub field: &'a str,
    pub change: MergeChange,
}

/// Receives the steps of a merge, in order. An item is reported before its fields; fields that the child does not set
/// are not reported.
pub trait MergeObserver {
    fn event(&mut self, event: MergeEvent<'_>);
}

/// For a caller that needs only the result.
impl MergeObserver for () {
    fn event(&mut self, _: MergeEvent<'_>) {}
}

impl<O: MergeObserver + ?Sized> MergeObserver for &mut O {
    fn event(&mut self, event: MergeEvent<'_>) {
        (**self).event(event);
    }
}

/// The current position of a merge in the config.
pub(crate) struct Trail<'a> {
    observer: &'a mut dyn MergeObserver,
    item: MergedItem,
    field: String,
}

impl<'a> Trail<'a> {
    pub(super) fn new(observer: &'a mut dyn MergeObserver) -> Self {
        Self {
            observer,
            item: MergedItem::Section(""),
            field: String::new(),
        }
    }

    pub(super) fn report(&mut self, change: MergeChange) {
        self.observer.event(MergeEvent {
            item: &self.item,
            field: &self.field,
            change,
        });
    }

    pub(super) fn item(&self) -> &MergedItem {
        &self.item
    }

    /// Continues in the field `name` of the current object.
    pub(crate) fn within(&mut self, name: &str, step: impl FnOnce(&mut Self)) {
        let length = self.field.len();
        if length > 0 {
            self.field.push('.');
        }
        self.field.push_str(name);
        step(self);
        self.field.truncate(length);
    }

    /// Continues in the entry `key` of the current list.
    pub(super) fn at(&mut self, key: &str, step: impl FnOnce(&mut Self)) {
        let length = self.field.len();
        self.field.push('[');
        self.field.push_str(key);
        self.field.push(']');
        step(self);
        self.field.truncate(length);
    }

    /// Continues in an item of its own, whose fields are relative to it.
    pub(super) fn inside(&mut self, item: MergedItem, step: impl FnOnce(&mut Self)) {
        let outer_item = mem::replace(&mut self.item, item);
        let outer_field = mem::take(&mut self.field);
        step(self);
        self.item = outer_item;
        self.field = outer_field;
    }
}
