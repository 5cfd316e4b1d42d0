//! Validates encrypted devices and how they are unlocked.

use serde::de::IgnoredAny;

use super::rule;
use super::url;
use super::{Checker, disks, duplicates, resources};
use crate::model::{Clevis, Luks, Tang};
use crate::version::SpecVersion;

pub(super) fn luks(devices: &[Luks], check: &mut Checker) {
    check.field("luks", |check| duplicates::by_key(devices, check));
    check.each("luks", devices, device);
}

fn device(luks: &Luks, check: &mut Checker) {
    if luks.name.contains('/') {
        check.error_at("name", rule::LUKS_NAME);
    }
    disks::device(luks.device.as_deref().unwrap_or_default(), check);
    if luks.label.as_deref().is_some_and(|label| label.len() > 47) {
        check.error_at("label", rule::LUKS_LABEL_LONG);
    }
    check.field("keyFile", |check| resources::resource(&luks.key_file, check));
    check.field("openOptions", |check| {
        duplicates::strings(&luks.open_options, check);
    });
    check.field("clevis", |check| clevis(&luks.clevis, check));
    if luks.cex.enabled == Some(true) {
        if uses_clevis(&luks.clevis) {
            check.error_at("cex", rule::CEX_WITH_CLEVIS);
        }
        if is_given(luks.key_file.source.as_deref()) {
            check.error_at("cex", rule::CEX_WITH_KEY_FILE);
        }
    }
}

fn clevis(clevis: &Clevis, check: &mut Checker) {
    let custom = &clevis.custom;
    let pin = custom.pin.as_deref().unwrap_or_default();
    let config = custom.config.as_deref().unwrap_or_default();
    // Before 3.3 the presence of the object counts; its pin and config are then never absent.
    let (custom_counts, custom_excludes) = if check.at_least(SpecVersion::V3_3) {
        let counts = !pin.is_empty() || !config.is_empty() || custom.needs_network == Some(true);
        (counts, !pin.is_empty())
    } else {
        (!pin.is_empty() || !config.is_empty(), custom.pin.is_some())
    };
    if custom_counts {
        check.field("custom", |check| {
            match pin {
                "tpm2" | "tang" | "sss" => {}
                "" if check.at_least(SpecVersion::V3_3) => check.error_at("pin", rule::CLEVIS_PIN_MISSING),
                _ => check.error_at("pin", rule::CLEVIS_PIN_UNKNOWN),
            }
            if config.is_empty() {
                check.error_at("config", rule::CLEVIS_CONFIG_MISSING);
            }
        });
    }
    if custom_excludes && uses_simple_clevis(clevis) {
        check.error(rule::CLEVIS_CUSTOM_MIXED);
    }
    check.field("tang", |check| duplicates::by_key(&clevis.tang, check));
    check.each("tang", &clevis.tang, tang);
}

fn uses_simple_clevis(clevis: &Clevis) -> bool {
    clevis.tpm2 == Some(true)
        || !clevis.tang.is_empty()
        || clevis.threshold.is_some_and(|threshold| threshold != 0)
}

fn uses_clevis(clevis: &Clevis) -> bool {
    uses_simple_clevis(clevis) || is_given(clevis.custom.pin.as_deref())
}

fn tang(server: &Tang, check: &mut Checker) {
    match url::parse(&server.url) {
        Err(url::Unparsable) => check.error_at("url", rule::URL_UNPARSABLE),
        Ok(url) if !url.is_web() => check.error_at("url", rule::URL_SCHEME_WEB),
        Ok(_) => {}
    }
    if !is_given(server.thumbprint.as_deref()) {
        check.error_at("thumbprint", rule::TANG_THUMBPRINT);
    }
    let advertisement = server.advertisement.as_deref().filter(|text| !text.is_empty());
    if advertisement.is_some_and(|text| serde_json::from_str::<IgnoredAny>(text).is_err()) {
        check.error_at("advertisement", rule::TANG_ADVERTISEMENT);
    }
}

fn is_given(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}
