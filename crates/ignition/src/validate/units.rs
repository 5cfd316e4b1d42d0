//! Validates systemd units: names, texts, and whether enabling them has an effect.

use std::collections::HashMap;

use super::rule::{self, ValidationRule};
use super::unit_text::{self, UnitText};
use super::{Checker, duplicates};
use crate::model::Unit;

const UNIT_TYPES: [&str; 12] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "snapshot",
    "slice",
    "scope",
];

pub(super) fn units(units: &[Unit], check: &mut Checker) {
    check.field("units", |check| duplicates::by_key(units, check));
    // Each template is parsed once, regardless of the number of its instances.
    let templates: HashMap<&str, bool> = units
        .iter()
        .filter(|unit| unit.name.contains("@."))
        .filter_map(|unit| Some((unit.name.as_str(), unit.contents.as_deref()?)))
        .filter(|(_, contents)| !contents.is_empty())
        .filter_map(|(name, contents)| Some((name, unit_text::parse(contents).ok()?.installs)))
        .collect();
    check.each("units", units, |unit, check| {
        self::unit(unit, check);
        template(unit, &templates, check);
    });
}

fn unit(unit: &Unit, check: &mut Checker) {
    let extension = unit.name.rsplit_once('.').map(|(_, extension)| extension);
    if !extension.is_some_and(|extension| UNIT_TYPES.contains(&extension)) {
        check.error_at("name", rule::UNIT_EXTENSION);
    }
    let text = unit
        .contents
        .as_deref()
        .and_then(|contents| contents_of_unit(contents, check));
    let pointless = unit.enabled == Some(true) && text.is_some_and(|text| !text.installs);
    if pointless
        && unit
            .contents
            .as_deref()
            .is_some_and(|contents| !contents.is_empty())
    {
        let message = format!(
            "unit {:?} is enabled, but has no install section so enable does nothing",
            unit.name
        );
        check.warn_at(
            "contents",
            ValidationRule::about(message, "add an [Install] section, or remove enabled"),
        );
    }
    check.field("dropins", |check| duplicates::by_key(&unit.dropins, check));
    check.each("dropins", &unit.dropins, |dropin, check| {
        if dropin
            .name
            .rsplit_once('.')
            .is_none_or(|(_, extension)| extension != "conf")
        {
            check.error_at("name", rule::DROPIN_EXTENSION);
        }
        if let Some(contents) = &dropin.contents {
            contents_of_unit(contents, check);
        }
    });
}

/// Parses the `contents` of the unit or drop-in at the current path, and reports syntax errors.
fn contents_of_unit(contents: &str, check: &mut Checker) -> Option<UnitText> {
    match unit_text::parse(contents) {
        Ok(text) => Some(text),
        Err(error) => {
            let message = format!("invalid unit content: {error}");
            check.error_at(
                "contents",
                ValidationRule::about(message, "write [Section] lines and Name=value lines only"),
            );
            None
        }
    }
}

/// Validates an enabled instance, whose `[Install]` section is that of its template.
fn template(unit: &Unit, templates: &HashMap<&str, bool>, check: &mut Checker) {
    let Some((name, instance)) = unit.name.split_once('@') else {
        return;
    };
    let Some((instance, extension)) = instance.rsplit_once('.') else {
        return;
    };
    if unit.enabled != Some(true) || instance.is_empty() {
        return;
    }
    let template_name = format!("{name}@.{extension}");
    if templates.get(template_name.as_str()) == Some(&false) {
        let message = format!(
            "template unit {template_name:?} for {:?} doesn't have Install section",
            unit.name
        );
        check.warn_at(
            "contents",
            ValidationRule::about(message, "add an [Install] section to the template"),
        );
    }
}
