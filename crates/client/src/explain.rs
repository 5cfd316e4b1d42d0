//! The provenance of each part of a rendered config, as a printable value.

use mco_ignition::{KernelArgumentList, MergedItem};
use serde::Serialize;

use mco_core::config::node_files;
use mco_core::config::provenance::{Contribution, SpecField};
use mco_core::config::render::Rendered;
use mco_core::generators::generated::Origins;

/// One part of a config and its provenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `file`, `unit`, `kernelArgument`, ...
    pub section: &'static str,
    /// The path, name or value.
    pub name: String,
    /// The sources of the fields in the result, the last in merge order first.
    pub from: Vec<ConfigPart>,
    /// The sources of overridden fields, the last in merge order first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<ConfigPart>,
    /// The MachineConfig that removed the item from the result, by declaring its path as another type of entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_by: Option<String>,
}

/// A MachineConfig and the fields it supplied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigPart {
    pub machine_config: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The origin of a generated MachineConfig; see [`add_origins`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_from: Option<String>,
}

/// Returns the provenance of everything in a rendered config.
pub fn explain(rendered: &Rendered) -> Vec<Explanation> {
    let mut all: Vec<Explanation> = rendered
        .provenance
        .items()
        .filter_map(|item| explain_item(rendered, item))
        .collect();
    all.extend(node_files(rendered));
    all.extend(list_elements(rendered));
    all.extend(spec_fields(rendered));
    all
}

/// Adds the origins of generated MachineConfigs: the object or template they were generated from.
pub fn add_origins(explanations: &mut [Explanation], origins: &Origins) {
    for one in explanations {
        let (section, name) = (one.section, one.name.clone());
        for part in one.from.iter_mut().chain(&mut one.overridden) {
            let Some(origin) = origins.of_config(&part.machine_config) else {
                continue;
            };
            let item = origin
                .items
                .iter()
                .find(|(item, _)| title(item).is_some_and(|title| title.0 == section && title.1 == name));
            part.made_from = Some(item.map_or_else(|| origin.made_from.clone(), |(_, text)| text.clone()));
        }
    }
}

/// Returns the provenance of a named item: a path, a unit with its drop-ins, a user with its keys, or a field of the
/// spec.
pub fn explain_named(rendered: &Rendered, name: &str) -> Vec<Explanation> {
    let of_unit = format!("{name}/");
    let matches = |one: &Explanation| {
        one.name == name || one.name.starts_with(&of_unit) && one.section != "file" || one.section == name
    };
    explain(rendered).into_iter().filter(matches).collect()
}

/// Returns the provenance of files that differ between nodes, of which the config itself has only a list.
fn node_files(rendered: &Rendered) -> impl Iterator<Item = Explanation> {
    let listed = node_files::listed(&rendered.config.ignition).into_iter();
    listed.map(|file| Explanation {
        section: "file",
        name: file.path,
        from: vec![ConfigPart {
            machine_config: file.machine_config,
            fields: vec![match file.secret {
                Some(secret) => format!("value of Secret {secret}"),
                None => "contents with values of the node".to_owned(),
            }],
            made_from: None,
        }],
        overridden: Vec::new(),
        removed_by: None,
    })
}

fn explain_item(rendered: &Rendered, item: &MergedItem) -> Option<Explanation> {
    let (section, name) = title(item)?;
    let attribution = rendered.provenance.attribute(item)?;
    let shown = |contributions: Vec<Contribution<'_>>| {
        let part = |one: Contribution<'_>| ConfigPart {
            machine_config: one.source.to_owned(),
            fields: one
                .fields
                .into_iter()
                .filter(|field| is_visible(field))
                .map(str::to_owned)
                .collect(),
            made_from: None,
        };
        contributions.into_iter().map(part).collect::<Vec<_>>()
    };
    let mut from = shown(attribution.winners);
    // A source that only supplied the item's key has not contributed to it.
    if from.iter().any(|part| !part.fields.is_empty()) {
        from.retain(|part| !part.fields.is_empty());
    }
    let mut overridden = shown(attribution.overridden);
    overridden.retain(|part| !part.fields.is_empty());
    Some(Explanation {
        section,
        name,
        from,
        overridden,
        removed_by: attribution.removed_by.map(str::to_owned),
    })
}

/// Whether a field is shown. The key of an item is redundant, and compression only affects the encoding of contents.
fn is_visible(field: &str) -> bool {
    !matches!(field, "" | "path" | "name" | "device" | "contents.compression")
}

fn title(item: &MergedItem) -> Option<(&'static str, String)> {
    Some(match item {
        MergedItem::File(path) => ("file", path.clone()),
        MergedItem::Directory(path) => ("directory", path.clone()),
        MergedItem::Link(path) => ("link", path.clone()),
        MergedItem::Unit(name) => ("unit", name.clone()),
        MergedItem::Dropin { unit, name } => ("dropin", format!("{unit}/{name}")),
        MergedItem::User(name) => ("user", name.clone()),
        MergedItem::SshKey { user, key } => ("sshKey", format!("{user}/{}", shortened_key(key))),
        MergedItem::Group(name) => ("group", name.clone()),
        MergedItem::Disk(device) => ("disk", device.clone()),
        MergedItem::Raid(name) => ("raid", name.clone()),
        MergedItem::Filesystem(device) => ("filesystem", device.clone()),
        MergedItem::Luks(name) => ("luks", name.clone()),
        MergedItem::KernelArgument {
            list: KernelArgumentList::ShouldExist,
            argument,
        } => ("ignitionKernelArgument", argument.clone()),
        MergedItem::KernelArgument {
            list: KernelArgumentList::ShouldNotExist,
            argument,
        } => ("ignitionKernelArgument", format!("not {argument}")),
        MergedItem::Section(name) if !name.is_empty() => ("section", (*name).to_owned()),
        MergedItem::Section(_) => return None,
    })
}

/// Returns type and comment of an SSH key, by which it is recognised; the key itself is too long to show.
fn shortened_key(key: &str) -> String {
    let mut parts = key.split_whitespace();
    let kind = parts.next().unwrap_or_default();
    let body = parts.next().unwrap_or_default();
    let comment = parts.collect::<Vec<_>>().join(" ");
    let tail: String = body
        .chars()
        .rev()
        .take(8)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    format!("{kind} ...{tail} {comment}").trim_end().to_owned()
}

fn list_elements(rendered: &Rendered) -> Vec<Explanation> {
    let single = |section, name: &String, source: Option<&str>| Explanation {
        section,
        name: name.clone(),
        from: vec![ConfigPart {
            machine_config: source.unwrap_or_default().to_owned(),
            fields: Vec::new(),
            made_from: None,
        }],
        overridden: Vec::new(),
        removed_by: None,
    };
    let spec = &rendered.config.spec();
    let provenance = &rendered.provenance;
    let arguments = spec.kernel_arguments.iter().enumerate();
    let arguments =
        arguments.map(|(i, name)| single("kernelArguments", name, provenance.source_of_kernel_argument(i)));
    let extensions = spec.extensions.iter().enumerate();
    arguments
        .chain(extensions.map(|(i, name)| single("extensions", name, provenance.source_of_extension(i))))
        .collect()
}

fn spec_fields(rendered: &Rendered) -> Vec<Explanation> {
    let spec = &rendered.config.spec();
    let fields = [
        (SpecField::Fips, spec.fips.to_string()),
        (SpecField::KernelType, spec.kernel_type.clone()),
        (SpecField::OsImageUrl, spec.os_image_url.clone()),
        (
            SpecField::ExtensionsImage,
            spec.base_os_extensions_container_image.clone(),
        ),
    ];
    fields
        .into_iter()
        .filter_map(|(field, value)| {
            let sources = rendered.provenance.sources_of_field(field);
            let (winner, losers) = sources.split_last()?;
            let part = |name: &&str| ConfigPart {
                machine_config: (*name).to_owned(),
                fields: Vec::new(),
                made_from: None,
            };
            Some(Explanation {
                section: field.path(),
                name: value,
                from: vec![part(winner)],
                overridden: losers.iter().rev().map(part).collect(),
                removed_by: None,
            })
        })
        .collect()
}
