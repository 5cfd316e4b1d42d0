//! The kubelet's configuration of every pool: from the cluster's node settings (97), its feature gates (98) and the users'
//! KubeletConfigs (99).

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use mco_api::kubelet_config::NodeConfigCondition;
use mco_api::vocabulary::names;
use mco_api::{KubeletConfig, MachineConfigPool};
use mco_core::generated::condition::{self, Outcome};
use mco_core::generated::suffix::Family;
use mco_core::generated::{Generated, Generator};
use mco_core::kubelet::{self, Base, KubeletError, UserKubelet};
use tracing::error;

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::error::Error;
use crate::foundation::Foundation;
use crate::owned::{self, Share};
use crate::queue::Again;
use crate::user_configs::{self, Surroundings, UserConfig, existing, name_of};

const SUBCONTROLLER: &str = "machine-config-controller-kubelet-config";

/// Makes the kubelet configuration of all pools again.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(Again::OnChange);
    };
    if !cluster.sources_are_known() {
        return Ok(Again::After(SOURCES_POLL));
    }
    let pools = cluster.pools.all();
    let surroundings = Surroundings {
        cluster: &cluster,
        foundation: &foundation,
    };
    let mut harvest = user_configs::harvest(&surroundings, &cluster.kubelet_configs, &pools);
    for pool in &pools {
        harvest.share.extend(of_cluster(&cluster, &foundation, pool));
    }
    user_configs::remember(&cluster, &harvest, &cluster.kubelet_configs).await?;
    owned::publish(&cluster, Generator::Kubelet, std::mem::take(&mut harvest.share)).await?;
    user_configs::report(&cluster, &harvest, &cluster.kubelet_configs).await?;
    Ok(Again::OnChange)
}

/// What a pool gets without any KubeletConfig.
fn of_cluster(cluster: &Cluster, foundation: &Foundation, pool: &MachineConfigPool) -> Share {
    let settings = cluster.node_settings.get(names::SINGLETON);
    let base = || {
        Base::of_pool(
            pool,
            &foundation.templates,
            &foundation.feature_gates,
            settings.as_deref(),
            &cluster.options.source_version,
        )
    };
    let role = name_of(&pool.metadata);
    let made = [
        (
            "Sync FeatureSet",
            names::generated_feature_kubelet(role),
            base().and_then(kubelet::for_feature_gates),
        ),
        (
            "Sync NodeConfig",
            names::generated_node_kubelet(role),
            kubelet::kernel_arguments(settings.as_deref(), &[])
                .and_then(|arguments| kubelet::for_node(base()?, arguments)),
        ),
    ];
    let mut share = Share::new();
    for (action, name, made) in made {
        match made {
            Ok(generated) => {
                cluster
                    .options
                    .metrics
                    .acted(SUBCONTROLLER, action, role, cluster.now());
                share.insert(name, Arc::new(generated.config));
            }
            Err(problem) => {
                error!(pool = role, config = %name, "cannot be made, so it stays as it is: {problem}");
                share.extend(existing(cluster, |known| known == name));
            }
        }
    }
    share
}

impl UserConfig for KubeletConfig {
    const FAMILY: Family = Family::Kubelet;
    const SUBCONTROLLER: &'static str = SUBCONTROLLER;
    const ACTION: &'static str = "Sync Kubelet Config";
    const KEY: &'static str = "kubelet config";
    type Wish = UserKubelet;

    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.machine_config_pool_selector.as_ref()
    }

    fn check(&self) -> Result<UserKubelet, String> {
        kubelet::validate(self).map_err(|problem| problem.to_string())
    }

    fn generate(
        &self,
        wish: &UserKubelet,
        pool: &MachineConfigPool,
        surroundings: &Surroundings<'_>,
        name: String,
        owner: OwnerReference,
    ) -> Result<Generated, String> {
        let settings = surroundings.cluster.node_settings.get(names::SINGLETON);
        let made = kubelet::check_for_pool(wish, pool).and_then(|()| {
            let base = Base::of_pool(
                pool,
                &surroundings.foundation.templates,
                &surroundings.foundation.feature_gates,
                settings.as_deref(),
                &surroundings.cluster.options.source_version,
            )?;
            kubelet::for_kubelet_config(base, self, wish, name, Some(owner))
        });
        made.map_err(|problem: KubeletError| problem.to_string())
    }

    fn followers<'p>(
        all: &[Self],
        chosen: &[&'p MachineConfigPool],
        pools: &'p [Arc<MachineConfigPool>],
    ) -> Vec<&'p MachineConfigPool> {
        let for_workers = chosen
            .iter()
            .any(|pool| name_of(&pool.metadata) == names::pool::WORKER);
        if for_workers {
            kubelet::inheriting(pools.iter().map(Arc::as_ref), all)
        } else {
            Vec::new()
        }
    }

    fn nobody_selected(&self) -> String {
        "could not find any MachineConfigPool set for KubeletConfig".to_owned()
    }

    fn conditions(&self) -> (&[NodeConfigCondition], i64) {
        let status = self.status.as_ref();
        status.map_or((&[], 0), |status| {
            (&status.conditions, status.observed_generation)
        })
    }

    fn reported(existing: &[NodeConfigCondition], outcome: &Outcome, now: &Time) -> Vec<NodeConfigCondition> {
        condition::of_kubelet_config(existing, outcome, now)
    }
}
