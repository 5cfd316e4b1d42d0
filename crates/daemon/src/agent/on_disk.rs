//! The config that the disk says the node has.

use crate::config::NodeConfig;

/// Which config and image the disk says the node has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnDisk {
    pub config: Option<String>,
    pub image: Option<String>,
}

impl OnDisk {
    pub fn new(config: Option<&NodeConfig>) -> Self {
        Self {
            config: config.map(|config| config.name().to_owned()),
            image: config.and_then(|config| config.built_image.clone()),
        }
    }
}
