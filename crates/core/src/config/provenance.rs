//! The provenance of each part of a merged config, recorded during the merge.
//!
//! Provenance is never inferred from the merged result: the merge reports each step, and this module records the
//! steps in order.

use std::collections::BTreeMap;

use mco_ignition::{MergeChange, MergeEvent, MergeObserver, MergedItem};

/// A MachineConfig, by its index in merge order.
pub type SourceIndex = usize;

/// The provenance of one merge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    sources: Vec<String>,
    items: BTreeMap<MergedItem, Vec<MergeStep>>,
    scalars: BTreeMap<SpecField, Vec<SourceIndex>>,
    /// One entry per element of the merged list.
    pub(crate) kernel_arguments: Vec<SourceIndex>,
    /// One entry per element of the merged list.
    pub(crate) extensions: Vec<SourceIndex>,
}

/// The single-valued fields of a MachineConfig's spec outside of its Ignition config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecField {
    Fips,
    KernelType,
    OsImageUrl,
    ExtensionsImage,
}

impl SpecField {
    pub fn path(self) -> &'static str {
        match self {
            Self::Fips => "fips",
            Self::KernelType => "kernelType",
            Self::OsImageUrl => "osImageURL",
            Self::ExtensionsImage => "baseOSExtensionsContainerImage",
        }
    }
}

/// One change of an item by one MachineConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeStep {
    pub source: SourceIndex,
    /// The field of the item; empty for the item itself.
    pub field: String,
    pub change: MergeChange,
}

/// The MachineConfigs that determine an item's final fields, and those that were overridden.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attribution<'a> {
    /// Each MachineConfig with fields in the result, and those fields.
    pub winners: Vec<Contribution<'a>>,
    /// Each MachineConfig with overridden fields, and those fields.
    pub overridden: Vec<Contribution<'a>>,
    /// The MachineConfig that removed the item from the result, by declaring its path as another type of entry.
    pub removed_by: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution<'a> {
    pub source: &'a str,
    pub fields: Vec<&'a str>,
}

impl Provenance {
    /// Returns the MachineConfigs in merge order.
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    pub fn items(&self) -> impl Iterator<Item = &MergedItem> {
        self.items.keys()
    }

    pub fn source_of_kernel_argument(&self, index: usize) -> Option<&str> {
        self.kernel_arguments.get(index).map(|source| self.name(*source))
    }

    pub fn source_of_extension(&self, index: usize) -> Option<&str> {
        self.extensions.get(index).map(|source| self.name(*source))
    }

    /// Returns the MachineConfigs that set a field, in merge order; the last one wins.
    pub fn sources_of_field(&self, field: SpecField) -> Vec<&str> {
        self.scalars
            .get(&field)
            .into_iter()
            .flatten()
            .map(|source| self.name(*source))
            .collect()
    }

    /// Returns the attribution of an item: which MachineConfigs supplied it, and which were overridden.
    pub fn attribute(&self, item: &MergedItem) -> Option<Attribution<'_>> {
        let steps = self.items.get(item)?;
        let mut holders: BTreeMap<&str, SourceIndex> = BTreeMap::new();
        let mut lost: Vec<(SourceIndex, &str)> = Vec::new();
        let mut removed_by = None;
        for step in steps {
            if step.change == MergeChange::Removed && step.field.is_empty() {
                lost.extend(holders.iter().map(|(field, source)| (*source, *field)));
                holders.clear();
                removed_by = Some(self.name(step.source));
                continue;
            }
            removed_by = None;
            let previous = match step.change {
                MergeChange::Removed => holders.remove(step.field.as_str()),
                _ => holders.insert(&step.field, step.source),
            };
            // Setting a field to the same value overrides no other MachineConfig.
            if step.change != MergeChange::Repeated {
                lost.extend(previous.map(|source| (source, step.field.as_str())));
            }
        }
        // The item itself only counts while none of its fields is attributed to the source.
        let named_by_field = |source: SourceIndex| holders.iter().any(|(f, s)| !f.is_empty() && *s == source);
        let won = holders
            .iter()
            .filter(|(field, source)| !field.is_empty() || !named_by_field(**source))
            .map(|(field, source)| (*source, *field));
        Some(Attribution {
            winners: self.by_source(won),
            overridden: self.by_source(lost.into_iter().filter(|(_, field)| !field.is_empty())),
            removed_by,
        })
    }

    /// Returns the MachineConfigs that contributed to an item, in merge order.
    pub fn contributors(&self, item: &MergedItem) -> Vec<&str> {
        let mut sources: Vec<SourceIndex> = self
            .items
            .get(item)
            .into_iter()
            .flatten()
            .map(|step| step.source)
            .collect();
        sources.dedup();
        sources.into_iter().map(|source| self.name(source)).collect()
    }

    fn by_source<'a>(&'a self, pairs: impl Iterator<Item = (SourceIndex, &'a str)>) -> Vec<Contribution<'a>> {
        let mut grouped: BTreeMap<SourceIndex, Vec<&str>> = BTreeMap::new();
        for (source, field) in pairs {
            let fields = grouped.entry(source).or_default();
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        grouped
            .into_iter()
            .rev()
            .map(|(source, mut fields)| {
                fields.sort_unstable();
                Contribution {
                    source: self.name(source),
                    fields,
                }
            })
            .collect()
    }

    fn name(&self, source: SourceIndex) -> &str {
        self.sources.get(source).map_or("", String::as_str)
    }

    pub(crate) fn begin(&mut self, source: &str) -> SourceIndex {
        self.sources.push(source.to_owned());
        self.sources.len() - 1
    }

    pub(crate) fn set_field(&mut self, field: SpecField, source: SourceIndex) {
        self.scalars.entry(field).or_default().push(source);
    }

    /// Returns a recorder for the merge steps of one source.
    pub(crate) fn recorder(&mut self, source: SourceIndex) -> Recorder<'_> {
        Recorder {
            provenance: self,
            source,
        }
    }
}

pub(crate) struct Recorder<'a> {
    provenance: &'a mut Provenance,
    source: SourceIndex,
}

impl MergeObserver for Recorder<'_> {
    fn event(&mut self, event: MergeEvent<'_>) {
        let step = MergeStep {
            source: self.source,
            field: event.field.to_owned(),
            change: event.change,
        };
        match self.provenance.items.get_mut(event.item) {
            Some(steps) => steps.push(step),
            None => {
                self.provenance.items.insert(event.item.clone(), vec![step]);
            }
        }
    }
}
