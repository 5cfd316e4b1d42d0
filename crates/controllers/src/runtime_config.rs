//! The container runtime's configuration of pools, from the users' ContainerRuntimeConfigs.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use mco_api::kubelet_config::NodeConfigCondition;
use mco_api::{ContainerRuntimeConfig, MachineConfigPool};
use mco_core::container_runtime::{self, Base, STORAGE_CONF};
use mco_core::generated::condition::{self, Outcome};
use mco_core::generated::suffix::Family;
use mco_core::generated::{Generated, Generator};
use mco_core::templates::base_file;

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::error::Error;
use crate::owned;
use crate::queue::Again;
use crate::user_configs::{self, Surroundings, UserConfig, name_of};

/// Makes the runtime configuration of all pools again.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(Again::OnChange);
    };
    if !cluster.sources_are_known() {
        return Ok(Again::NotYet(Some(SOURCES_POLL)));
    }
    let surroundings = Surroundings {
        cluster: &cluster,
        foundation: &foundation,
        node_settings: None,
    };
    let mut harvest = user_configs::harvest(&surroundings, &cluster.runtime_configs, &cluster.pools.all());
    let remembered = user_configs::remember(&cluster, &mut harvest, &cluster.runtime_configs).await;
    let share = std::mem::take(&mut harvest.share);
    let published = owned::publish(&cluster, Generator::ContainerRuntime, share, &foundation).await;
    let reported = user_configs::report(&cluster, &harvest, &published, &cluster.runtime_configs).await;
    let outcome = published.outcome().and(reported).and(remembered);
    outcome.map(|()| Again::OnChange)
}

impl UserConfig for ContainerRuntimeConfig {
    const FAMILY: Family = Family::ContainerRuntime;
    const SUBCONTROLLER: &'static str = "machine-config-controller-container-runtime-config";
    const ACTION: &'static str = "Sync Container Runtime Config";
    const KEY: &'static str = "ctrcfg";
    type Wish = ();

    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.machine_config_pool_selector.as_ref()
    }

    fn check(&self) -> Result<(), String> {
        container_runtime::validate(self).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })
    }

    fn generate(
        &self,
        (): &(),
        pool: &MachineConfigPool,
        surroundings: &Surroundings<'_>,
        name: String,
        owner: OwnerReference,
    ) -> Result<Generated, String> {
        let role = name_of(&pool.metadata);
        let base = Base {
            role,
            storage_conf: base_file(&surroundings.foundation.templates, role, STORAGE_CONF),
            feature_gates: &surroundings.foundation.feature_gates,
            version: &surroundings.cluster.options.source_version,
        };
        container_runtime::generate(base, self, name, Some(owner)).map_err(|problem| problem.to_string())
    }

    fn nobody_selected(&self) -> String {
        format!(
            "could not find any MachineConfigPool set for ContainerRuntimeConfig {}",
            name_of(&self.metadata)
        )
    }

    fn conditions(&self) -> (&[NodeConfigCondition], i64) {
        let status = self.status.as_ref();
        status.map_or((&[], 0), |status| {
            (&status.conditions, status.observed_generation)
        })
    }

    fn reported(existing: &[NodeConfigCondition], outcome: &Outcome, now: &Time) -> Vec<NodeConfigCondition> {
        condition::of_container_runtime_config(existing, outcome, now)
    }
}
