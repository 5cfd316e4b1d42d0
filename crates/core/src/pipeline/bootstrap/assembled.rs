//! Renders the pools of an assembled cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use mco_api::MachineConfigPool;

use super::BootstrapCluster;
use crate::config::parsed_config::{ParsedConfig, SourceConfig};
use crate::config::pools;
use crate::config::reconcilable::Overrides;
use crate::config::render::{RenderIdentity, Rendered};
use crate::pipeline::offline;
use crate::pipeline::{self, PoolInputs, RenderFailure, RenderedPool};

/// The render outcome of one pool.
#[derive(Debug)]
pub struct PoolOutcome {
    pub pool: MachineConfigPool,
    pub result: Result<RenderedPool, RenderFailure>,
}

impl PoolOutcome {
    pub fn name(&self) -> &str {
        self.pool.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn rendered(&self) -> Result<&Rendered, &RenderFailure> {
        self.result.as_ref().map(|pool| &pool.rendered)
    }
}

/// The current state of a running cluster, from which a rendered config must be reachable.
#[derive(Debug, Clone, Copy)]
pub struct Current<'a> {
    /// The target of each pool.
    pub configs: &'a BTreeMap<String, ParsedConfig>,
    pub overrides: Overrides,
}

impl BootstrapCluster {
    /// Renders every pool. A failure of one does not stop the others.
    pub fn render(&self, identity: RenderIdentity<'_>) -> Vec<PoolOutcome> {
        let configs = BTreeMap::new();
        let nowhere = Current {
            configs: &configs,
            overrides: Overrides::default(),
        };
        self.render_from(identity, nowhere)
    }

    /// Renders every pool of a cluster whose nodes already have configs.
    pub fn render_from(&self, identity: RenderIdentity<'_>, current: Current<'_>) -> Vec<PoolOutcome> {
        let configs = self.inventory.configs.iter();
        let sources: Vec<Arc<SourceConfig>> = configs
            .map(|config| {
                Arc::new(SourceConfig::with_contents(
                    config.clone(),
                    &self.inventory.contents,
                ))
            })
            .collect();
        let pools = self.pools();
        let worker = pools
            .iter()
            .find(|pool| pool.metadata.name.as_deref() == Some(pools::WORKER));
        let render = |pool: &MachineConfigPool| {
            pipeline::render_pool(&PoolInputs {
                pool,
                worker,
                controller_config: self.inventory.controller_config.as_ref(),
                sources: &sources,
                streams: &self.streams,
                os_image_stream: None,
                current: pool
                    .metadata
                    .name
                    .as_ref()
                    .and_then(|name| current.configs.get(name)),
                overrides: current.overrides,
                identity,
                versions: None,
            })
        };
        let outcomes = pools.iter().map(|pool| PoolOutcome {
            result: render(pool),
            pool: pool.clone(),
        });
        outcomes.collect()
    }

    /// Returns all pools by name; without any, the built-in ones that have MachineConfigs.
    fn pools(&self) -> Vec<MachineConfigPool> {
        let mut pools = self.inventory.pools.clone();
        if pools.is_empty() {
            pools = offline::built_in_pools()
                .into_iter()
                .filter(|pool| self.has_configs_for(pool))
                .collect();
        }
        pools.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pools
    }

    fn has_configs_for(&self, pool: &MachineConfigPool) -> bool {
        let selector = pools::config_selector(pool);
        selector.is_ok_and(|selector| {
            let mut configs = self.inventory.configs.iter();
            configs.any(|config| selector.matches(config.metadata.labels.as_ref()))
        })
    }

    /// Returns the pool with the rendered config as its target. With a base, its sources are all existing
    /// MachineConfigs, as other implementations list them; without one, those it was rendered from.
    pub fn with_target(&self, pool: &MachineConfigPool, rendered: &Rendered) -> MachineConfigPool {
        if self.controller_config.is_none() {
            return offline::with_target(pool, rendered);
        }
        let all = self.inventory.configs.iter();
        let names = all.filter_map(|config| config.metadata.name.as_deref());
        offline::with_target_from(pool, rendered.name(), names)
    }
}
