//! What generated MachineConfigs were made from, so that an explanation can go one step further back than the
//! MachineConfig: to the user's object or to the template.

use std::collections::BTreeMap;

use mco_ignition::Item;

/// The origins of many generated MachineConfigs, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    configs: BTreeMap<String, ConfigOrigin>,
}

/// What one generated MachineConfig was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigOrigin {
    /// As a whole, as in `KubeletConfig "large-pods"` or `templates worker/01-worker-kubelet`.
    pub made_from: String,
    /// Part by part, where the whole says too little.
    pub items: BTreeMap<Item, String>,
}

impl Origins {
    pub fn insert(&mut self, config: &str, origin: ConfigOrigin) {
        self.configs.insert(config.to_owned(), origin);
    }

    pub fn of_config(&self, config: &str) -> Option<&ConfigOrigin> {
        self.configs.get(config)
    }

    /// What this part of this MachineConfig was made from; none if a person wrote the MachineConfig.
    pub fn of_item(&self, config: &str, item: &Item) -> Option<&str> {
        let origin = self.configs.get(config)?;
        Some(origin.items.get(item).unwrap_or(&origin.made_from))
    }

    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }
}
