//! The kubelet's configuration of every pool: from the cluster's node settings (97), its feature gates (98) and the users'
//! KubeletConfigs (99).

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use mco_api::foreign::node::Node as NodeSettings;
use mco_api::kubelet_config::NodeConfigCondition;
use mco_api::vocabulary::{events, names};
use mco_api::{KubeletConfig, MachineConfigPool};
use mco_core::generated::condition::{self, Outcome};
use mco_core::generated::suffix::Family;
use mco_core::generated::{Generated, Generator};
use mco_core::kubelet::profile::{self, Settled};
use mco_core::kubelet::{self, Base, KubeletError, UserKubelet};
use mco_core::rollout::Event;
use tracing::{error, warn};

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::error::Error;
use crate::events::Reporter;
use crate::owned::{self, Share};
use crate::queue::Again;
use crate::user_configs::{self, Surroundings, UserConfig, in_force, name_of};

const SUBCONTROLLER: &str = "machine-config-controller-kubelet-config";

/// Makes the kubelet configuration of all pools again.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(Again::OnChange);
    };
    if !cluster.sources_are_known() {
        return Ok(Again::NotYet(Some(SOURCES_POLL)));
    }
    let pools = cluster.pools.all();
    let settings = node_settings(&cluster);
    let surroundings = Surroundings {
        cluster: &cluster,
        foundation: &foundation,
        node_settings: settings.as_ref(),
    };
    let mut harvest = user_configs::harvest(&surroundings, &cluster.kubelet_configs, &pools);
    for pool in &pools {
        harvest.share.extend(of_cluster(&surroundings, pool));
    }
    let remembered = user_configs::remember(&cluster, &mut harvest, &cluster.kubelet_configs).await;
    let share = std::mem::take(&mut harvest.share);
    let published = owned::publish(&cluster, Generator::Kubelet, share, &foundation).await;
    let reported = user_configs::report(&cluster, &harvest, &published, &cluster.kubelet_configs).await;
    let outcome = published.outcome().and(reported).and(remembered);
    outcome.map(|()| Again::OnChange)
}

/// The node settings in force. What was made last decides which change of them is none.
fn node_settings(cluster: &Cluster) -> Option<NodeSettings> {
    let asked = cluster.node_settings.get(names::SINGLETON);
    let made = [
        names::generated_node_kubelet(names::pool::WORKER),
        names::generated_feature_kubelet(names::pool::WORKER),
    ];
    let present = made
        .iter()
        .find_map(|name| cluster.owned.get(name).or_else(|| cluster.current_content(name)));
    let Settled { settings, prohibited } = profile::settle(asked.as_deref(), present.as_deref());
    if let Some(message) = prohibited {
        warn!("{message}");
        if let Some(asked) = asked {
            let event = Event::normal(events::render::ACTION_PROHIBITED, message);
            cluster.events.tell(Reporter::Kubelet, asked.as_ref(), event);
        }
    }
    settings
}

/// What a pool gets without any KubeletConfig.
fn of_cluster(surroundings: &Surroundings<'_>, pool: &MachineConfigPool) -> Share {
    let Surroundings {
        cluster,
        foundation,
        node_settings: settings,
    } = *surroundings;
    let base = || {
        Base::of_pool(
            pool,
            &foundation.templates,
            &foundation.feature_gates,
            settings,
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
            kubelet::kernel_arguments(settings, &[])
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
                share.extend(in_force(cluster, &name));
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
        let made = kubelet::check_for_pool(wish, pool).and_then(|()| {
            let base = Base::of_pool(
                pool,
                &surroundings.foundation.templates,
                &surroundings.foundation.feature_gates,
                surroundings.node_settings,
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
