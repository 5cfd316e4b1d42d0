//! Validates the model against the rules of the spec.
//!
//! Older versions are validated here too, on the model they were parsed into: where their rules differ, a rule checks
//! the version of the config. Nothing is fetched, so a remote source is only checked for its syntax.

mod disks;
mod duplicates;
mod luks;
mod nodes;
mod resources;
pub(crate) mod rule;
mod unit_text;
mod units;
pub(crate) mod url;

use crate::finding::{Finding, FindingReport};
use crate::model::{Config, Ignition, Passwd};
use crate::place::Place;
use crate::version::SpecVersion;

pub(crate) use nodes::simplified;
use rule::ValidationRule;

/// Applies every rule of spec 3.5 to a config.
pub fn validate(config: &Config) -> FindingReport {
    validate_as(config, SpecVersion::NEWEST)
}

/// Applies the rules of the version a config was written in.
pub(crate) fn validate_as(config: &Config, version: SpecVersion) -> FindingReport {
    let mut check = Checker {
        version,
        place: Place::default(),
        report: FindingReport::default(),
    };
    check.field("ignition", |check| ignition(&config.ignition, check));
    check.field("kernelArguments", |check| {
        duplicates::kernel_arguments(&config.kernel_arguments, check);
    });
    check.field("passwd", |check| passwd(&config.passwd, check));
    check.field("storage", |check| {
        disks::disks(&config.storage, check);
        luks::luks(&config.storage.luks, check);
        nodes::nodes(&config.storage, check);
    });
    nodes::conflicts_with_units(config, &mut check);
    check.field("systemd", |check| units::units(&config.systemd.units, check));
    check.report
}

fn ignition(section: &Ignition, check: &mut Checker) {
    check.field("config", |check| {
        check.field("merge", |check| duplicates::by_key(&section.config.merge, check));
        check.each("merge", &section.config.merge, resources::required_resource);
        check.field("replace", |check| {
            resources::replacement(&section.config.replace, check);
        });
    });
    check.field("proxy", |check| resources::proxy(&section.proxy, check));
    check.field("security", |check| {
        check.field("tls", |check| {
            let authorities = &section.security.tls.certificate_authorities;
            check.field("certificateAuthorities", |check| {
                duplicates::by_key(authorities, check);
            });
            check.each(
                "certificateAuthorities",
                authorities,
                resources::required_certificate,
            );
        });
    });
}

fn passwd(section: &Passwd, check: &mut Checker) {
    check.field("groups", |check| duplicates::by_key(&section.groups, check));
    check.field("users", |check| duplicates::by_key(&section.users, check));
    check.each("users", &section.users, |user, check| {
        check.field("groups", |check| duplicates::strings(&user.groups, check));
        check.field("sshAuthorizedKeys", |check| {
            duplicates::strings(&user.ssh_authorized_keys, check);
        });
    });
}

/// Walks a config and collects findings.
struct Checker {
    version: SpecVersion,
    place: Place,
    report: FindingReport,
}

impl Checker {
    fn at_least(&self, version: SpecVersion) -> bool {
        self.version >= version
    }

    fn field(&mut self, name: &str, step: impl FnOnce(&mut Self)) {
        let mark = self.place.enter_field(name);
        step(self);
        self.place.leave(mark);
    }

    fn element(&mut self, index: usize, step: impl FnOnce(&mut Self)) {
        let mark = self.place.enter_element(index);
        step(self);
        self.place.leave(mark);
    }

    fn each<T>(&mut self, name: &str, list: &[T], mut step: impl FnMut(&T, &mut Self)) {
        self.field(name, |check| {
            for (index, entry) in list.iter().enumerate() {
                check.element(index, |check| step(entry, check));
            }
        });
    }

    fn error(&mut self, rule: ValidationRule) {
        let finding = Finding::new(self.place.as_str(), rule.message).with_hint(rule.hint);
        self.report.errors.push(finding);
    }

    fn warn(&mut self, rule: ValidationRule) {
        let finding = Finding::new(self.place.as_str(), rule.message).with_hint(rule.hint);
        self.report.warnings.push(finding);
    }

    fn error_at(&mut self, name: &str, rule: ValidationRule) {
        self.field(name, |check| check.error(rule));
    }

    fn warn_at(&mut self, name: &str, rule: ValidationRule) {
        self.field(name, |check| check.warn(rule));
    }
}
