//! The origins of generated MachineConfigs, so that provenance can be traced past the MachineConfig to the user's
//! object or the template.

use std::collections::BTreeMap;

use mco_ignition::MergedItem;

/// The origins of generated MachineConfigs, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    configs: BTreeMap<String, ConfigOrigin>,
}

/// The origin of one generated MachineConfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigOrigin {
    /// The origin of the whole config, such as `KubeletConfig "large-pods"` or `templates worker/01-worker-kubelet`.
    pub made_from: String,
    /// The origins of individual items that differ from the whole.
    pub items: BTreeMap<MergedItem, String>,
}

impl Origins {
    pub fn insert(&mut self, config: &str, origin: ConfigOrigin) {
        self.configs.insert(config.to_owned(), origin);
    }

    pub fn of_config(&self, config: &str) -> Option<&ConfigOrigin> {
        self.configs.get(config)
    }

    /// Returns the origin of an item of a MachineConfig; `None` if the MachineConfig is user-provided.
    pub fn of_item(&self, config: &str, item: &MergedItem) -> Option<&str> {
        let origin = self.configs.get(config)?;
        Some(origin.items.get(item).unwrap_or(&origin.made_from))
    }

    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }
}
