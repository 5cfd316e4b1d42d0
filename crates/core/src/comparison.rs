//! Two configs of one pool side by side: what changes on its machines, what that costs, and what makes it impossible.

use mco_api::MachineConfig;
use mco_ignition::Config;
use serde::Serialize;

use crate::diff::{self, ConfigDiff, Kind, Side};
use crate::disruption::{self, Cost, Level, REGISTRIES_CONF, RegistriesChange};
use crate::problem::{InvalidObject, Problem};
use crate::reconcilable;
use crate::render::Rendered;
use crate::rules::Rules;
use crate::validate;

const READABLE_BY_ALL: i64 = 0o004;

/// One side. The default is a machine without any config.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    pub name: String,
    pub config: MachineConfig,
    pub ignition: Config,
}

impl Entry {
    pub fn new(config: MachineConfig) -> Result<Self, InvalidObject> {
        let ignition = validate::check_applicable(&config)?;
        Ok(Self {
            name: config.metadata.name.clone().unwrap_or_default(),
            config,
            ignition,
        })
    }

    /// The decoded text of a file, if it is there and is text.
    pub fn text_of(&self, path: &str) -> Option<String> {
        let mut files = self.ignition.storage.files.iter();
        let file = files.find(|file| file.path == path)?;
        String::from_utf8(diff::file_bytes(file)?).ok()
    }

    /// A unit and its drop-ins, one after the other; empty if it is not there.
    fn text_of_unit(&self, name: &str) -> String {
        let mut units = self.ignition.systemd.units.iter();
        let Some(unit) = units.find(|unit| unit.name == name) else {
            return String::new();
        };
        let dropins = unit.dropins.iter().map(|dropin| {
            let contents = dropin.contents.as_deref().unwrap_or_default();
            format!("# drop-in {}\n{contents}", dropin.name)
        });
        let contents = unit.contents.clone().into_iter();
        contents.chain(dropins).collect::<Vec<_>>().join("\n")
    }

    /// Whether everybody on a machine may read a file, or it is not there.
    pub fn is_public(&self, path: &str) -> bool {
        let mut files = self.ignition.storage.files.iter();
        let file = files.find(|file| file.path == path);
        file.is_none_or(|file| diff::mode_bits(file) & READABLE_BY_ALL != 0)
    }

    fn side(&self) -> Side<'_> {
        Side {
            spec: &self.config.spec,
            ignition: &self.ignition,
        }
    }

    fn reconcilable(&self) -> reconcilable::Side<'_> {
        reconcilable::Side {
            ignition: &self.ignition,
            fips: self.config.spec.fips,
        }
    }

    fn is_nothing(&self) -> bool {
        self.name.is_empty()
    }
}

impl From<Rendered> for Entry {
    fn from(rendered: Rendered) -> Self {
        Self {
            name: rendered.name().to_owned(),
            config: rendered.config,
            ignition: rendered.ignition,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    pub old: Option<String>,
    pub new: Option<String>,
    pub changes: ConfigDiff,
    pub cost: Cost,
    pub level: Level,
    /// Why a running node could not take this change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<Problem>,
}

/// Compares two sides under a cluster's rules.
pub fn compare(old: &Entry, new: &Entry, rules: &Rules) -> Comparison {
    let changes = diff::diff(old.side(), new.side());
    let cost = disruption::cost(&changes, &rules.policy, &registries(old, new));
    let obstacles = if old.is_nothing() || new.is_nothing() {
        Vec::new()
    } else {
        reconcilable::obstacles(old.reconcilable(), new.reconcilable(), rules.overrides)
    };
    let name = |entry: &Entry| (!entry.is_nothing()).then(|| entry.name.clone());
    Comparison {
        old: name(old),
        new: name(new),
        level: cost.level(),
        changes,
        cost,
        obstacles,
    }
}

impl Comparison {
    /// The text files whose contents change, with both texts; what is not there is empty.
    pub fn texts<'c>(
        &'c self,
        old: &'c Entry,
        new: &'c Entry,
    ) -> impl Iterator<Item = (&'c str, String, String)> {
        let with_contents = self.changes.files.iter().filter(|file| file.contents.is_some());
        with_contents.filter_map(move |file| {
            let absent = |kind: Kind| (file.kind == kind).then(String::new);
            let before = old.text_of(&file.path).or_else(|| absent(Kind::Added))?;
            let after = new.text_of(&file.path).or_else(|| absent(Kind::Removed))?;
            Some((file.path.as_str(), before, after))
        })
    }
}

impl Comparison {
    /// The units whose text or drop-ins change, with both texts; what is not there is empty.
    pub fn unit_texts<'c>(
        &'c self,
        old: &'c Entry,
        new: &'c Entry,
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

fn registries(old: &Entry, new: &Entry) -> RegistriesChange {
    let text = |entry: &Entry| entry.text_of(REGISTRIES_CONF).unwrap_or_default();
    disruption::compare_registries(&text(old), &text(new))
}
