//! The keys that identify list entries across configs.

use std::borrow::Cow;

use super::observer::MergedItem;
use crate::model::{
    Directory, Disk, Dropin, File, Filesystem, HttpHeader, Link, Luks, Partition, PasswdGroup, PasswdUser,
    Raid, Resource, Tang, Unit,
};

/// An entry of a list in which equal keys mean the same thing.
pub(crate) trait Keyed {
    fn key(&self) -> Cow<'_, str>;

    /// The entry as an item of its own, or `None` when it is only a part of the item around it.
    fn item(&self, around: &MergedItem) -> Option<MergedItem>;
}

macro_rules! keyed_item {
    ($($type:ident . $field:ident => $item:ident),* $(,)?) => {
        $(
            impl Keyed for $type {
                fn key(&self) -> Cow<'_, str> {
                    Cow::Borrowed(&self.$field)
                }

                fn item(&self, _: &MergedItem) -> Option<MergedItem> {
                    Some(MergedItem::$item(self.$field.clone()))
                }
            }
        )*
    };
}

keyed_item! {
    File.path => File,
    Directory.path => Directory,
    Link.path => Link,
    Unit.name => Unit,
    PasswdUser.name => User,
    PasswdGroup.name => Group,
    Disk.device => Disk,
    Raid.name => Raid,
    Filesystem.device => Filesystem,
    Luks.name => Luks,
}

impl Keyed for Dropin {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn item(&self, around: &MergedItem) -> Option<MergedItem> {
        match around {
            MergedItem::Unit(unit) => Some(MergedItem::Dropin {
                unit: unit.clone(),
                name: self.name.clone(),
            }),
            _ => None,
        }
    }
}

impl Keyed for Partition {
    fn key(&self) -> Cow<'_, str> {
        match (self.number, &self.label) {
            (0, Some(label)) => Cow::Owned(format!("label:{label}")),
            (0, None) => Cow::Borrowed(""),
            (number, _) => Cow::Owned(format!("number:{number}")),
        }
    }

    fn item(&self, _: &MergedItem) -> Option<MergedItem> {
        None
    }
}

impl Keyed for Resource {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.source.as_deref().unwrap_or_default())
    }

    fn item(&self, _: &MergedItem) -> Option<MergedItem> {
        None
    }
}

impl Keyed for HttpHeader {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn item(&self, _: &MergedItem) -> Option<MergedItem> {
        None
    }
}

impl Keyed for Tang {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.url)
    }

    fn item(&self, _: &MergedItem) -> Option<MergedItem> {
        None
    }
}
