//! Drafts of MachineConfigs: parts are removed, restored and moved until their merge equals a former config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::MachineConfig;
use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::labels;
use mco_core::config::diff::ConfigDiff;
use mco_core::config::extensions::KernelType;
use mco_core::config::merge::{is_user_provided, to_value};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::render::Rendered;
use mco_core::config::validate;
use mco_core::pipeline::bootstrap::BootstrapCluster;
use mco_ignition::Config;
use mco_ignition::model::{Directory, File, Link, PasswdGroup, PasswdUser, Unit};

use super::{SourceEdit, UndoError};

/// The drafts of one pool's MachineConfigs, in merge order.
#[derive(Debug)]
pub struct Drafts {
    users: Vec<Draft>,
    generated: Vec<(String, Config)>,
    /// Parts of the former config that no MachineConfig has any more.
    homeless: Draft,
}

#[derive(Debug)]
struct Draft {
    config: MachineConfig,
    ignition: Config,
    touched: bool,
}

/// The action for an OS image that a user has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftImages {
    /// Remove it, so that the cluster's default applies.
    Release,
    /// Set the former one.
    Choose,
}

/// A list in an Ignition config whose entries have a key.
struct DraftSection<T> {
    title: &'static str,
    list: fn(&mut Config) -> &mut Vec<T>,
    key: fn(&T) -> &str,
    /// Removes from an entry what a merge would add to the former one.
    prune: fn(&mut T, &T),
}

impl Drafts {
    pub fn new(cluster: &BootstrapCluster, rendered: &Rendered, pool: &str, missing_source: &str) -> Self {
        let by_name: BTreeMap<&str, &MachineConfig> = cluster
            .inventory
            .configs
            .iter()
            .filter_map(|config| Some((config.metadata.name.as_deref()?, config)))
            .collect();
        let mut drafts = Self {
            users: Vec::new(),
            generated: Vec::new(),
            homeless: Draft::new(empty(missing_source, pool)),
        };
        for name in rendered.provenance.sources() {
            let Some(config) = by_name.get(name.as_str()) else {
                continue;
            };
            let draft = Draft::new((*config).clone());
            if is_user_provided(config) {
                drafts.users.push(draft);
            } else {
                drafts.generated.push((name.clone(), draft.ignition));
            }
        }
        drafts
    }

    /// Changes the drafts so that their merge equals the former config, as far as that is possible.
    pub fn restore(
        &mut self,
        now: &Rendered,
        former: &ParsedConfig,
        images: DraftImages,
    ) -> Result<(), UndoError> {
        let (present, past) = (&now.config.ignition, &former.ignition);
        self.restore_section(&FILES, present, past)?;
        self.restore_section(&DIRECTORIES, present, past)?;
        self.restore_section(&LINKS, present, past)?;
        self.restore_section(&UNITS, present, past)?;
        self.restore_section(&USERS, present, past)?;
        self.restore_section(&GROUPS, present, past)?;
        self.restore_spec(now.config.spec(), former.spec(), images);
        self.assign_to_configs(past);
        Ok(())
    }

    pub fn into_edits(self) -> Vec<SourceEdit> {
        let changed = self.users.into_iter().filter(|draft| draft.touched);
        let mut edits: Vec<SourceEdit> = changed
            .map(|draft| {
                if draft.is_empty() {
                    SourceEdit::Delete(Box::new(draft.config))
                } else {
                    SourceEdit::Replace(Box::new(draft.finished()))
                }
            })
            .collect();
        if self.homeless.touched {
            edits.push(SourceEdit::Create(Box::new(self.homeless.finished())));
        }
        edits
    }

    fn restore_section<T: Clone + PartialEq>(
        &mut self,
        section: &DraftSection<T>,
        now: &Config,
        former: &Config,
    ) -> Result<(), UndoError> {
        let (now, former) = (section.entries(now), section.entries(former));
        let keys: BTreeSet<&str> = now.iter().chain(&former).map(section.key).collect();
        for key in keys {
            let find = |list: &[T]| list.iter().find(|entry| (section.key)(entry) == key).cloned();
            let wanted = find(&former);
            if wanted != find(&now) {
                self.restore_entry(section, key, wanted)?;
            }
        }
        Ok(())
    }

    fn restore_entry<T: Clone + PartialEq>(
        &mut self,
        section: &DraftSection<T>,
        key: &str,
        wanted: Option<T>,
    ) -> Result<(), UndoError> {
        let holds = |config: &Config| {
            section
                .entries(config)
                .iter()
                .any(|entry| (section.key)(entry) == key)
        };
        let generator = self.generated.iter().rev().find(|(_, config)| holds(config));
        let last = self.users.iter().rposition(|draft| holds(&draft.ignition));
        let only_generated = last.is_none() || wanted.is_none();
        if let Some((name, _)) = generator.filter(|_| only_generated) {
            return Err(UndoError::Generated {
                what: format!("{} {key}", section.title),
                source_name: name.clone(),
            });
        }
        let Some(wanted) = wanted else {
            for draft in self.users.iter_mut().filter(|draft| holds(&draft.ignition)) {
                (section.list)(&mut draft.ignition).retain(|entry| (section.key)(entry) != key);
                draft.touched = true;
            }
            return Ok(());
        };
        for (index, draft) in self.users.iter_mut().enumerate() {
            let list = (section.list)(&mut draft.ignition);
            for entry in list.iter_mut().filter(|entry| (section.key)(entry) == key) {
                let before = entry.clone();
                if Some(index) == last {
                    *entry = wanted.clone();
                } else {
                    (section.prune)(entry, &wanted);
                }
                draft.touched |= *entry != before;
            }
        }
        if last.is_none() {
            (section.list)(&mut self.homeless.ignition).push(wanted);
            self.homeless.touched = true;
        }
        Ok(())
    }

    fn restore_spec(&mut self, now: &MachineConfigSpec, former: &MachineConfigSpec, images: DraftImages) {
        self.restore_words(&now.kernel_arguments, &former.kernel_arguments, |spec| {
            &mut spec.kernel_arguments
        });
        self.restore_words(&now.extensions, &former.extensions, |spec| &mut spec.extensions);
        let wanted = KernelType::canonical(&former.kernel_type);
        if KernelType::canonical(&now.kernel_type) != wanted {
            let mut found = wanted == KernelType::Default;
            for draft in &mut self.users {
                let own = KernelType::canonical(&draft.config.spec.kernel_type);
                found |= own == wanted;
                if own != wanted && own != KernelType::Default {
                    draft.config.spec.kernel_type.clear();
                    draft.touched = true;
                }
            }
            if !found {
                wanted
                    .as_str()
                    .clone_into(&mut self.homeless.config.spec.kernel_type);
                self.homeless.touched = true;
            }
        }
        self.restore_image(&now.os_image_url, &former.os_image_url, images, |spec| {
            &mut spec.os_image_url
        });
        self.restore_image(
            &now.base_os_extensions_container_image,
            &former.base_os_extensions_container_image,
            images,
            |spec| &mut spec.base_os_extensions_container_image,
        );
    }

    /// Removes entries that the former list did not have, and returns the missing ones.
    fn restore_words(
        &mut self,
        now: &[String],
        former: &[String],
        list: fn(&mut MachineConfigSpec) -> &mut Vec<String>,
    ) {
        if now == former {
            return;
        }
        for draft in &mut self.users {
            let words = list(&mut draft.config.spec);
            let before = words.len();
            words.retain(|word| former.contains(word));
            draft.touched |= words.len() != before;
        }
        let missing: Vec<String> = former
            .iter()
            .filter(|word| !now.contains(word))
            .cloned()
            .collect();
        if !missing.is_empty() {
            list(&mut self.homeless.config.spec).extend(missing);
            self.homeless.touched = true;
        }
    }

    fn restore_image(
        &mut self,
        now: &str,
        former: &str,
        images: DraftImages,
        image: fn(&mut MachineConfigSpec) -> &mut String,
    ) {
        if now == former {
            return;
        }
        for draft in &mut self.users {
            let own = image(&mut draft.config.spec);
            if own.is_empty() {
                continue;
            }
            match images {
                DraftImages::Release => own.clear(),
                DraftImages::Choose => former.clone_into(own),
            }
            draft.touched = true;
        }
    }

    /// Assigns parts without a MachineConfig: most likely they come from the one that has changed, if there is only
    /// one; else they get a new one.
    fn assign_to_configs(&mut self, former: &Config) {
        let mut touched = self.users.iter_mut().filter(|draft| draft.touched);
        if let (Some(home), None, true) = (touched.next(), touched.next(), self.homeless.touched) {
            home.take(&mut self.homeless);
        }
        for draft in self.users.iter_mut().filter(|draft| draft.touched) {
            draft.sort_like(former);
        }
        self.homeless.sort_like(former);
    }
}

impl Draft {
    fn new(config: MachineConfig) -> Self {
        let config = Arc::new(config);
        let parsed = validate::check(&config).ok();
        Self {
            ignition: parsed.map(|parsed| parsed.ignition).unwrap_or_default(),
            config: Arc::unwrap_or_clone(config),
            touched: false,
        }
    }

    fn take(&mut self, other: &mut Self) {
        let (from, to) = (&mut other.ignition, &mut self.ignition);
        to.storage.files.append(&mut from.storage.files);
        to.storage.directories.append(&mut from.storage.directories);
        to.storage.links.append(&mut from.storage.links);
        to.systemd.units.append(&mut from.systemd.units);
        to.passwd.users.append(&mut from.passwd.users);
        to.passwd.groups.append(&mut from.passwd.groups);
        let (from, to) = (&mut other.config.spec, &mut self.config.spec);
        to.kernel_arguments.append(&mut from.kernel_arguments);
        to.extensions.append(&mut from.extensions);
        if !from.kernel_type.is_empty() {
            to.kernel_type = std::mem::take(&mut from.kernel_type);
        }
        other.touched = false;
    }

    /// Sorts entries like the former config: their order is part of a rendered config's name.
    fn sort_like(&mut self, former: &Config) {
        FILES.sort_like(&mut self.ignition, former);
        DIRECTORIES.sort_like(&mut self.ignition, former);
        LINKS.sort_like(&mut self.ignition, former);
        UNITS.sort_like(&mut self.ignition, former);
        USERS.sort_like(&mut self.ignition, former);
        GROUPS.sort_like(&mut self.ignition, former);
    }

    fn is_empty(&self) -> bool {
        let spec = MachineConfigSpec {
            config: None,
            kernel_type: String::new(),
            ..self.config.spec.clone()
        };
        self.ignition == Config::default()
            && spec == MachineConfigSpec::default()
            && KernelType::canonical(&self.config.spec.kernel_type) == KernelType::Default
    }

    fn finished(mut self) -> MachineConfig {
        if self.config.spec.config.is_some() || self.ignition != Config::default() {
            self.config.spec.config = Some(to_value(&self.ignition));
        }
        self.config
    }
}

impl<T: Clone> DraftSection<T> {
    fn entries(&self, config: &Config) -> Vec<T> {
        (self.list)(&mut config.clone()).clone()
    }

    fn sort_like(&self, config: &mut Config, former: &Config) {
        let former = self.entries(former);
        let place = |entry: &T| {
            former
                .iter()
                .position(|other| (self.key)(other) == (self.key)(entry))
        };
        (self.list)(config).sort_by_key(|entry| place(entry).unwrap_or(usize::MAX));
    }
}

const FILES: DraftSection<File> = DraftSection {
    title: "file",
    list: |config| &mut config.storage.files,
    key: |file| &file.path,
    prune: |_, _| {},
};
const DIRECTORIES: DraftSection<Directory> = DraftSection {
    title: "directory",
    list: |config| &mut config.storage.directories,
    key: |directory| &directory.path,
    prune: |_, _| {},
};
const LINKS: DraftSection<Link> = DraftSection {
    title: "link",
    list: |config| &mut config.storage.links,
    key: |link| &link.path,
    prune: |_, _| {},
};
const UNITS: DraftSection<Unit> = DraftSection {
    title: "unit",
    list: |config| &mut config.systemd.units,
    key: |unit| &unit.name,
    prune: |unit, former| {
        unit.dropins
            .retain(|dropin| former.dropins.iter().any(|other| other.name == dropin.name));
    },
};
const USERS: DraftSection<PasswdUser> = DraftSection {
    title: "user",
    list: |config| &mut config.passwd.users,
    key: |user| &user.name,
    prune: |user, former| {
        user.ssh_authorized_keys
            .retain(|key| former.ssh_authorized_keys.contains(key));
    },
};
const GROUPS: DraftSection<PasswdGroup> = DraftSection {
    title: "group",
    list: |config| &mut config.passwd.groups,
    key: |group| &group.name,
    prune: |_, _| {},
};

fn empty(name: &str, pool: &str) -> MachineConfig {
    MachineConfig {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(labels::ROLE.to_owned(), pool.to_owned())])),
            ..ObjectMeta::default()
        },
        ..MachineConfig::default()
    }
}

/// Whether a rendered config contains everything in a MachineConfig.
pub fn is_part_of(config: &MachineConfig, rendered: &ParsedConfig) -> bool {
    let Ok(parsed) = validate::check(&Arc::new(config.clone())) else {
        return false;
    };
    let own = parsed.ignition;
    let whole = &rendered.ignition;
    let files = own.storage.files.iter().all(|file| {
        let file = File {
            overwrite: file.overwrite.or(Some(true)),
            ..file.clone()
        };
        whole.storage.files.contains(&file)
    });
    let units = own
        .systemd
        .units
        .iter()
        .all(|unit| whole.systemd.units.contains(unit));
    let users = own.passwd.users.iter().all(|user| {
        let known = whole.passwd.users.iter().find(|other| other.name == user.name);
        known.is_some_and(|known| {
            user.ssh_authorized_keys
                .iter()
                .all(|key| known.ssh_authorized_keys.contains(key))
                && (user.password_hash.is_none() || user.password_hash == known.password_hash)
        })
    });
    let (spec, sum) = (&config.spec, rendered.spec());
    let words = |own: &[String], sum: &[String]| own.iter().all(|word| sum.contains(word));
    let value = |own: &str, sum: &str| own.is_empty() || own == sum;
    files
        && units
        && users
        && words(&spec.kernel_arguments, &sum.kernel_arguments)
        && words(&spec.extensions, &sum.extensions)
        && value(&spec.os_image_url, &sum.os_image_url)
        && matches!(
            KernelType::canonical(&spec.kernel_type),
            kernel if kernel == KernelType::Default || kernel == KernelType::canonical(&sum.kernel_type)
        )
}

/// Returns the names of everything that differs.
pub fn names_of(changes: &ConfigDiff) -> Vec<String> {
    let mut names: Vec<String> = changes.names().map(str::to_owned).collect();
    names.extend(
        changes
            .first_boot_sections
            .iter()
            .map(|section| (*section).to_owned()),
    );
    names
}
