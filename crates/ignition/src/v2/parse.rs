//! Parses spec 2.0, 2.1 and 2.2 into the model.

use std::collections::HashSet;

use serde_json::Value;

use super::deduplicate::{Deduplicated, deduplicate};
use super::model::ConfigV2;
use super::{check, up};
use crate::finding::{Finding, FindingReport};
use crate::model;
use crate::model::RecordField as _;
use crate::parse::{ConfigReader, ParseError, Parsed, verdict};
use crate::validate::{rule, validate_as};
use crate::version::SpecVersion;

pub(crate) fn parse(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = ConfigReader::new(version);
    let config = ConfigV2::read(value, &mut reader);
    let (mut errors, mut warnings) = reader.finish();
    let mut translated = model::Config::default();
    if errors.is_empty() {
        let own = check::check(&config);
        let deduplicated = deduplicate(config);
        translated = up::config(&deduplicated.config, version);
        let mut report = validate_translation(&translated, &deduplicated, version);
        report
            .errors
            .iter_mut()
            .chain(&mut report.warnings)
            .for_each(rename);
        let known: HashSet<&str> = own.errors.iter().map(|finding| finding.path.as_str()).collect();
        report
            .errors
            .retain(|finding| !known.contains(finding.path.as_str()));
        errors.extend(own.errors);
        errors.extend(report.errors);
        warnings.extend(own.warnings);
        warnings.extend(report.warnings);
    }
    verdict(translated, version, errors, warnings)
}

/// Validates the deduplicated config, and each replaced entry by itself, which must also be valid. Paths are reported
/// as in the original.
fn validate_translation(config: &model::Config, from: &Deduplicated, version: SpecVersion) -> FindingReport {
    let mut report = validate_as(config, version);
    for finding in report.errors.iter_mut().chain(&mut report.warnings) {
        relocate(finding, "storage.files", |index| from.files.get(index).copied());
        relocate(finding, "systemd.units", |index| from.units.get(index).copied());
    }
    for (place, file) in &from.replaced_files {
        let mut file = file.clone();
        // Spec 2 could read contents from the OEM partition; nothing is lost if they were replaced anyway.
        if file.contents.source.starts_with("oem:") {
            file.contents.source.clear();
        }
        let mut alone = model::Config::default();
        alone.storage.files.push(up::file(&file, version));
        adopt(&mut report, &alone, version, "storage.files", *place);
    }
    for (place, unit) in &from.replaced_units {
        let mut alone = model::Config::default();
        alone.systemd.units.push(up::unit(unit));
        adopt(&mut report, &alone, version, "systemd.units", *place);
    }
    report
}

/// Maps a path to the terms of spec 2, where configs are appended and a file has either contents or an append flag.
fn rename(finding: &mut Finding) {
    finding.path = finding
        .path
        .replacen("ignition.config.merge[", "ignition.config.append[", 1);
    if finding.path.starts_with("storage.files[") {
        finding.path = finding.path.replacen(".append[0]", ".contents", 1);
    }
}

fn adopt(report: &mut FindingReport, alone: &model::Config, version: SpecVersion, list: &str, place: usize) {
    for mut finding in validate_as(alone, version).errors {
        // Spec 2 allowed a unit to repeat a drop-in.
        if finding.message != rule::DUPLICATE.message() {
            relocate(&mut finding, list, |_| Some(place));
            report.errors.push(finding);
        }
    }
}

/// Replaces the index of an entry of `list` in a finding's path.
fn relocate(finding: &mut Finding, list: &str, place_of: impl Fn(usize) -> Option<usize>) {
    let Some((index, rest)) = finding
        .path
        .strip_prefix(list)
        .and_then(|rest| rest.strip_prefix('['))
        .and_then(|rest| rest.split_once(']'))
    else {
        return;
    };
    if let Some(place) = index.parse().ok().and_then(place_of) {
        finding.path = format!("{list}[{place}]{rest}");
    }
}
