//! A diff between two configs as a list of short lines, one per changed item.
//!
//! File contents appear only as sizes and hashes.

use std::fmt;

use mco_core::config::diff::{ChangeKind, ConfigDiff, ContentsSummary, FileChange, UnitChange, UserChange};
use serde::Serialize;

use crate::text::count;

/// One changed item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeLine {
    pub kind: ChangeKind,
    /// `file`, `unit`, `user`, `section`; empty for a field of the spec, which is its own name.
    pub what: &'static str,
    /// The path, name or field.
    pub name: String,
    /// The changes of the item; may be empty.
    pub details: String,
}

impl fmt::Display for ChangeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, details, .. } = self;
        match (self.what, details.as_str()) {
            ("", details) => write!(f, "{} {name}: {details}", self.kind.sign()),
            (what, "") => write!(f, "{} {what} {name}", self.kind.sign()),
            (what, details) => write!(f, "{} {what} {name} ({details})", self.kind.sign()),
        }
    }
}

/// Returns a line per changed item, sorted by kind of item.
pub fn lines(changes: &ConfigDiff) -> Vec<ChangeLine> {
    let mut lines = Vec::new();
    lines.extend(changes.files.iter().map(|file| ChangeLine {
        kind: file.kind,
        what: "file",
        name: file.path.clone(),
        details: file_details(file),
    }));
    lines.extend(changes.units.iter().map(|unit| ChangeLine {
        kind: unit.kind,
        what: "unit",
        name: unit.name.clone(),
        details: unit_details(unit),
    }));
    lines.extend(changes.users.iter().map(|user| ChangeLine {
        kind: user.kind,
        what: "user",
        name: user.name.clone(),
        details: user_details(user),
    }));
    lines.extend(changes.first_boot_sections.iter().map(|section| ChangeLine {
        kind: ChangeKind::Changed,
        what: "section",
        name: (*section).to_owned(),
        details: "takes effect at first boot only".to_owned(),
    }));
    lines.extend(spec_fields(changes));
    lines
}

fn spec_fields(changes: &ConfigDiff) -> impl Iterator<Item = ChangeLine> {
    let list = |list: &[String]| format!("[{}]", list.join(" "));
    let text = |text: &str| format!("{text:?}");
    let fields = [
        (
            "kernelArguments",
            changes
                .kernel_arguments
                .as_ref()
                .map(|c| (list(&c.old), list(&c.new))),
        ),
        (
            "extensions",
            changes.extensions.as_ref().map(|c| (list(&c.old), list(&c.new))),
        ),
        (
            "kernelType",
            changes.kernel_type.as_ref().map(|c| (text(c.old), text(c.new))),
        ),
        (
            "fips",
            changes
                .fips
                .as_ref()
                .map(|c| (text(&c.old.to_string()), text(&c.new.to_string()))),
        ),
        (
            "osImageURL",
            changes.os_image.as_ref().map(|c| (text(&c.old), text(&c.new))),
        ),
        (
            "baseOSExtensionsContainerImage",
            changes
                .extensions_image
                .as_ref()
                .map(|c| (text(&c.old), text(&c.new))),
        ),
    ];
    fields.into_iter().filter_map(|(name, change)| {
        let (old, new) = change?;
        Some(ChangeLine {
            kind: ChangeKind::Changed,
            what: "",
            name: name.to_owned(),
            details: format!("{old} -> {new}"),
        })
    })
}

fn file_details(file: &FileChange) -> String {
    let mut details = Vec::new();
    if file.secret {
        // Neither sizes nor hashes: those of a short secret can be guessed.
        if file.contents.is_some() {
            details.push(match file.kind {
                ChangeKind::Changed => "secret changed".to_owned(),
                ChangeKind::Added | ChangeKind::Removed => "value of a Secret".to_owned(),
            });
        }
    } else if let Some(change) = &file.contents {
        let summary = |contents: &ContentsSummary| {
            let hash: String = contents.sha256.chars().take(12).collect();
            format!("{} bytes sha256:{hash}", contents.size)
        };
        details.push(match (&change.old, &change.new) {
            (Some(old), Some(new)) => format!("{} -> {}", summary(old), summary(new)),
            (None, Some(one)) | (Some(one), None) => summary(one),
            (None, None) => String::new(),
        });
    }
    for (name, change) in [("mode", &file.mode), ("owner", &file.owner)] {
        match change.as_ref().map(|change| (&change.old, &change.new)) {
            Some((Some(old), Some(new))) => details.push(format!("{name} {old} -> {new}")),
            Some((None, Some(new))) => details.push(format!("{name} {new}")),
            _ => {}
        }
    }
    details.join(", ")
}

fn unit_details(unit: &UnitChange) -> String {
    let mut details = Vec::new();
    if unit.contents_changed {
        details.push("contents".to_owned());
    }
    let flag = |value: Option<bool>| value.map_or_else(|| "unset".to_owned(), |value| value.to_string());
    for (name, change) in [("enabled", &unit.enabled), ("mask", &unit.mask)] {
        if let Some(change) = change {
            details.push(format!("{name} {} -> {}", flag(change.old), flag(change.new)));
        }
    }
    let dropins = unit.dropins.iter();
    details.extend(dropins.map(|dropin| format!("{} drop-in {}", dropin.kind.sign(), dropin.name)));
    details.join(", ")
}

fn user_details(user: &UserChange) -> String {
    let mut details = Vec::new();
    if user.keys_added + user.keys_removed > 0 {
        details.push(format!(
            "{} added, {} removed",
            count(user.keys_added, "key"),
            user.keys_removed
        ));
    }
    if user.password_changed {
        details.push("password changed".to_owned());
    }
    if user.other_fields_changed {
        details.push("other fields changed".to_owned());
    }
    details.join(", ")
}
