//! The generated MachineConfigs that already exist in a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use mco_api::MachineConfig;

use crate::generators::generated::{Generator, generator_of_name};

/// Access to MachineConfigs that were generated before: which names are taken, and what stays in force while an
/// object is invalid.
pub trait ExistingConfigs {
    /// Whether the cluster has a MachineConfig of this name.
    fn exists(&self, name: &str) -> bool;

    /// Returns a generated config as it was generated last.
    fn in_force(&self, name: &str) -> Option<Arc<MachineConfig>>;

    /// Returns all configs of a generator as they were generated last.
    fn of_generator(&self, generator: Generator) -> Vec<Arc<MachineConfig>>;
}

impl ExistingConfigs for BTreeMap<String, Arc<MachineConfig>> {
    fn exists(&self, name: &str) -> bool {
        self.contains_key(name)
    }

    fn in_force(&self, name: &str) -> Option<Arc<MachineConfig>> {
        self.get(name).cloned()
    }

    fn of_generator(&self, generator: Generator) -> Vec<Arc<MachineConfig>> {
        let own = self
            .iter()
            .filter(|(name, _)| generator_of_name(name) == Some(generator));
        own.map(|(_, config)| Arc::clone(config)).collect()
    }
}
