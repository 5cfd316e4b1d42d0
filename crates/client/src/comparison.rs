//! Comparison of two configs of one pool: what changes on its nodes, the disruption, and what is irreconcilable.

use serde::Serialize;

use mco_core::config::diff::{self, ChangeKind, ConfigDiff};
use mco_core::config::disruption::{self, Cost, DisruptionLevel, REGISTRIES_CONF, RegistriesChange};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::problem::Problem;
use mco_core::config::reconcilable;
use mco_core::config::rules::AdministratorRules;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigComparison {
    pub old: Option<String>,
    pub new: Option<String>,
    pub changes: ConfigDiff,
    pub cost: Cost,
    pub level: DisruptionLevel,
    /// Why a running node could not apply this change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<Problem>,
}

/// Compares two configs under a cluster's policies.
pub fn compare(old: &ParsedConfig, new: &ParsedConfig, rules: &AdministratorRules) -> ConfigComparison {
    let changes = diff::diff(old, new);
    let cost = disruption::cost(&changes, &rules.policy, &registries(old, new));
    let obstacles = if old.is_nothing() || new.is_nothing() {
        Vec::new()
    } else {
        reconcilable::obstacles(old, new, rules.overrides)
    };
    let name = |config: &ParsedConfig| (!config.is_nothing()).then(|| config.name().to_owned());
    ConfigComparison {
        old: name(old),
        new: name(new),
        level: cost.level(),
        changes,
        cost,
        obstacles,
    }
}

impl ConfigComparison {
    /// Returns the text files whose contents change, with both texts; a missing file is empty.
    pub fn texts<'c>(
        &'c self,
        old: &'c ParsedConfig,
        new: &'c ParsedConfig,
    ) -> impl Iterator<Item = (&'c str, String, String)> {
        let with_contents = self.changes.files.iter().filter(|file| file.contents.is_some());
        with_contents.filter_map(move |file| {
            let absent = |kind: ChangeKind| (file.kind == kind).then(String::new);
            let before = old.text_of(&file.path).or_else(|| absent(ChangeKind::Added))?;
            let after = new.text_of(&file.path).or_else(|| absent(ChangeKind::Removed))?;
            Some((file.path.as_str(), before, after))
        })
    }
}

impl ConfigComparison {
    /// Returns the units whose contents or drop-ins change, with both texts; a missing unit is empty.
    pub fn unit_texts<'c>(
        &'c self,
        old: &'c ParsedConfig,
        new: &'c ParsedConfig,
    ) -> impl Iterator<Item = (&'c str, String, String)> {
        let with_text = self
            .changes
            .units
            .iter()
            .filter(|unit| unit.contents_changed || !unit.dropins.is_empty());
        with_text.map(move |unit| {
            (
                unit.name.as_str(),
                old.text_of_unit(&unit.name),
                new.text_of_unit(&unit.name),
            )
        })
    }
}

fn registries(old: &ParsedConfig, new: &ParsedConfig) -> RegistriesChange {
    let text = |config: &ParsedConfig| config.text_of(REGISTRIES_CONF).unwrap_or_default();
    disruption::compare_registries(&text(old), &text(new))
}
