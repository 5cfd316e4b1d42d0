//! What KubeletConfigs and ContainerRuntimeConfigs have in common: all objects of a kind are looked at together, each gets
//! its names, its MachineConfigs and its status, and one that cannot be used spoils nothing of the others.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use mco_api::foreign::node::Node as NodeSettings;
use mco_api::kubelet_config::NodeConfigCondition;
use mco_api::vocabulary::annotations;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::generated::assign::{Assigned, Claim, assign};
use mco_core::generated::condition::Outcome;
use mco_core::generated::suffix::{Family, has_written_for};
use mco_core::generated::{self, Generated};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::error::{Class, Error, is_not_found};
use crate::foundation::Foundation;
use crate::mirror::Mirror;
use crate::owned::{Published, Share};

const OWN_GROUP: &str = "machineconfiguration.openshift.io/v1";

/// A kind by which users change what is generated for pools.
pub(crate) trait UserConfig:
    Resource<Scope = ClusterResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    const FAMILY: Family;
    const SUBCONTROLLER: &'static str;
    const ACTION: &'static str;
    /// What messages call the name of the MachineConfig.
    const KEY: &'static str;
    /// What a valid object asks for.
    type Wish;

    fn selector(&self) -> Option<&LabelSelector>;
    fn check(&self) -> Result<Self::Wish, String>;
    fn generate(
        &self,
        wish: &Self::Wish,
        pool: &MachineConfigPool,
        surroundings: &Surroundings<'_>,
        name: String,
        owner: OwnerReference,
    ) -> Result<Generated, String>;
    /// Pools that follow although the selector does not match them.
    fn followers<'p>(
        _: &[Self],
        _: &[&'p MachineConfigPool],
        _: &'p [Arc<MachineConfigPool>],
    ) -> Vec<&'p MachineConfigPool> {
        Vec::new()
    }
    fn nobody_selected(&self) -> String;
    fn conditions(&self) -> (&[NodeConfigCondition], i64);
    fn reported(existing: &[NodeConfigCondition], outcome: &Outcome, now: &Time) -> Vec<NodeConfigCondition>;
}

/// What generating needs beside the object.
pub(crate) struct Surroundings<'a> {
    pub cluster: &'a Cluster,
    pub foundation: &'a Foundation,
    /// The node settings in force.
    pub node_settings: Option<&'a NodeSettings>,
}

/// What all objects of a kind come to.
pub(crate) struct Harvest<K> {
    pub share: Share,
    reports: Vec<(K, Assigned, Outcome)>,
    leaving: Vec<K>,
}

/// Looks at all objects of a kind.
pub(crate) fn harvest<K: UserConfig>(
    surroundings: &Surroundings<'_>,
    objects: &Mirror<K>,
    pools: &[Arc<MachineConfigPool>],
) -> Harvest<K> {
    let mut objects = objects.sorted();
    objects.sort_by_key(|object| object.meta().creation_timestamp.as_ref().map(|time| time.0));
    let (leaving, objects): (Vec<K>, Vec<K>) = objects
        .into_iter()
        .partition(|object| object.meta().deletion_timestamp.is_some());
    let choices: Vec<Result<Vec<&MachineConfigPool>, Unusable<'_>>> = objects
        .iter()
        .map(|object| choose(object, &objects, pools))
        .collect();
    let claims: Vec<Claim<'_>> = objects
        .iter()
        .zip(&choices)
        .map(|(object, chosen)| Claim {
            object: object.meta(),
            pools: match chosen {
                Ok(pools) | Err(Unusable { keeping: pools, .. }) => {
                    pools.iter().map(|pool| name_of(&pool.metadata)).collect()
                }
            },
        })
        .collect();
    let cluster = surroundings.cluster;
    let exists = |name: &str| cluster.config_metadata.get(name).is_some();
    let assigned = assign(K::FAMILY, &claims, exists, |name| is_generated(K::FAMILY, name));
    drop(claims);
    let mut harvest = Harvest {
        share: BTreeMap::new(),
        reports: Vec::new(),
        leaving,
    };
    for ((object, chosen), assigned) in objects.iter().zip(choices).zip(assigned) {
        let outcome = reap(surroundings, object, chosen, &assigned, &mut harvest.share);
        harvest.reports.push((object.clone(), assigned, outcome));
    }
    harvest
}

/// Why an object is for no pool.
struct Unusable<'p> {
    why: String,
    /// Pools that keep what they have from it.
    keeping: Vec<&'p MachineConfigPool>,
}

fn choose<'p, K: UserConfig>(
    object: &K,
    all: &[K],
    pools: &'p [Arc<MachineConfigPool>],
) -> Result<Vec<&'p MachineConfigPool>, Unusable<'p>> {
    let every = || pools.iter().map(Arc::as_ref);
    let mut chosen = mco_core::pools::selected(every(), object.selector()).map_err(|problem| Unusable {
        why: format!("invalid label selector: {problem}"),
        // Nobody can say that it no longer means those that it meant.
        keeping: every()
            .filter(|pool| has_written_for(K::FAMILY, name_of(&pool.metadata), object.meta()))
            .collect(),
    })?;
    if chosen.is_empty() {
        return Err(Unusable {
            why: object.nobody_selected(),
            keeping: Vec::new(),
        });
    }
    chosen.extend(K::followers(all, &chosen, pools));
    Ok(chosen)
}

fn reap<K: UserConfig>(
    surroundings: &Surroundings<'_>,
    object: &K,
    chosen: Result<Vec<&MachineConfigPool>, Unusable<'_>>,
    assigned: &Assigned,
    share: &mut Share,
) -> Outcome {
    let mut problem = None;
    let wish = chosen
        .map_err(|unusable| unusable.why)
        .and_then(|chosen| object.check().map(|wish| (chosen, wish)));
    let (chosen, wish) = match wish {
        Ok((chosen, wish)) => (chosen, Some(wish)),
        Err(why) => {
            problem = Some(Outcome::error(why));
            (Vec::new(), None)
        }
    };
    for (pool_name, config) in &assigned.configs {
        let pool = chosen.iter().find(|pool| name_of(&pool.metadata) == pool_name);
        let made = match (config, pool, &wish) {
            (Err(why), _, _) => Err(Outcome::Failure {
                message: format!("could not get {} key: {why}", K::KEY),
            }),
            (Ok(name), Some(pool), Some(wish)) => {
                let owner = generated::owner(OWN_GROUP, &K::kind(&()), object.meta());
                object
                    .generate(wish, pool, surroundings, name.clone(), owner)
                    .map_err(Outcome::error)
            }
            // What is wrong was said above.
            (Ok(_), _, _) => Err(Outcome::error("not made")),
        };
        match (made, config) {
            (Ok(made), _) => {
                let now = surroundings.cluster.now();
                let metrics = &surroundings.cluster.options.metrics;
                metrics.acted(K::SUBCONTROLLER, K::ACTION, pool_name, now);
                share.insert(made.name().to_owned(), Arc::new(made.config));
            }
            (Err(why), config) => {
                problem.get_or_insert(why);
                // A pool keeps what it has until the object can be used again.
                if let Ok(name) = config {
                    share.extend(in_force(surroundings.cluster, name));
                }
            }
        }
    }
    problem.unwrap_or(Outcome::Success)
}

/// Writes down which names were given, before anything of those names is written. An object that cannot be marked keeps
/// what it has, and no other waits for it.
pub(crate) async fn remember<K: UserConfig>(
    cluster: &Cluster,
    harvest: &mut Harvest<K>,
    objects: &Mirror<K>,
) -> Result<(), Error> {
    let mut outcome = Ok(());
    for (object, assigned, reaped) in std::mem::take(&mut harvest.reports) {
        match mark(cluster, &object, &assigned, objects).await {
            Ok(()) => harvest.reports.push((object, assigned, reaped)),
            Err(problem) => {
                let recorded = object.meta().finalizers.as_deref().unwrap_or_default();
                let names = assigned.configs.iter().filter_map(|(_, name)| name.as_ref().ok());
                for name in names.filter(|name| !recorded.contains(name)) {
                    harvest.share.remove(name);
                    harvest.share.extend(in_force(cluster, name));
                }
                outcome = Err(problem);
            }
        }
    }
    outcome
}

async fn mark<K: UserConfig>(
    cluster: &Cluster,
    object: &K,
    assigned: &Assigned,
    objects: &Mirror<K>,
) -> Result<(), Error> {
    let mut metadata = serde_json::Map::new();
    if let Some(suffix) = &assigned.suffix {
        metadata.insert(
            "annotations".to_owned(),
            json!({annotations::MC_NAME_SUFFIX: suffix}),
        );
    }
    if let Some(finalizers) = &assigned.finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
        metadata.insert(
            "resourceVersion".to_owned(),
            json!(object.meta().resource_version),
        );
    }
    if !metadata.is_empty() {
        patch(cluster, objects, object, &json!({ "metadata": metadata })).await?;
    }
    Ok(())
}

/// Lets go of objects that are being deleted and tells the others what became of them. One whose own configs could not be
/// written hears that, one whose own could not be deleted stays, and one that cannot be written keeps nothing from others.
pub(crate) async fn report<K: UserConfig>(
    cluster: &Cluster,
    harvest: &Harvest<K>,
    published: &Published,
    objects: &Mirror<K>,
) -> Result<(), Error> {
    let mut reported = Ok(());
    for object in &harvest.leaving {
        reported = reported.and(let_go(cluster, object, published, objects).await);
    }
    for (object, assigned, outcome) in &harvest.reports {
        let mut names = assigned.configs.iter().filter_map(|(_, name)| name.as_ref().ok());
        let refused = names.find_map(|name| published.refused.get(name));
        let told = match (outcome, refused) {
            // Somebody was faster, which is no failure; the next look is soon.
            (Outcome::Success, Some(problem)) if problem.class() == Class::Conflict => continue,
            (Outcome::Success, Some(problem)) => &Outcome::error(problem.to_string()),
            (outcome, _) => outcome,
        };
        reported = reported.and(report_one(cluster, object, told, objects).await);
    }
    reported
}

async fn let_go<K: UserConfig>(
    cluster: &Cluster,
    object: &K,
    published: &Published,
    objects: &Mirror<K>,
) -> Result<(), Error> {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    let kept: Vec<&String> = finalizers
        .iter()
        .filter(|name| !is_generated(K::FAMILY, name) || published.refused.contains_key(*name))
        .collect();
    if kept.len() == finalizers.len() {
        return Ok(());
    }
    let metadata = json!({"finalizers": kept, "resourceVersion": object.meta().resource_version});
    patch(cluster, objects, object, &json!({ "metadata": metadata })).await?;
    info!(object = %described::<K>(object.meta()), "being deleted, and so is what was made from it");
    Ok(())
}

async fn report_one<K: UserConfig>(
    cluster: &Cluster,
    object: &K,
    outcome: &Outcome,
    objects: &Mirror<K>,
) -> Result<(), Error> {
    let (existing, observed) = object.conditions();
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = K::reported(existing, outcome, &cluster.time());
    let same = |a: &NodeConfigCondition, b: &NodeConfigCondition| {
        (&a.type_, &a.status, &a.message) == (&b.type_, &b.status, &b.message)
    };
    let unchanged = observed == generation
        && conditions.len() == existing.len()
        && conditions.iter().zip(existing).all(|(a, b)| same(a, b));
    if unchanged {
        return Ok(());
    }
    match outcome {
        Outcome::Success => info!(object = %described::<K>(object.meta()), "in force"),
        Outcome::Failure { message } => warn!(object = %described::<K>(object.meta()), "{message}"),
    }
    let name = name_of(object.meta());
    let status = json!({"status": {"observedGeneration": generation, "conditions": conditions}});
    let written = cluster
        .api::<K>()
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await;
    match written {
        Ok(written) => objects.learn(written),
        Err(problem) if is_not_found(&problem) => {}
        Err(problem) => {
            let attempt = format!("writing the status of {}", described::<K>(object.meta()));
            return Err(Error::api(attempt)(problem));
        }
    }
    Ok(())
}

async fn patch<K: UserConfig>(
    cluster: &Cluster,
    objects: &Mirror<K>,
    object: &K,
    patch: &Value,
) -> Result<(), Error> {
    let api: Api<K> = cluster.api();
    let name = name_of(object.meta());
    match api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(written) => objects.learn(written),
        Err(problem) if is_not_found(&problem) => {}
        Err(problem) => {
            let attempt = format!("marking {}", described::<K>(object.meta()));
            return Err(Error::api(attempt)(problem));
        }
    }
    Ok(())
}

/// Whether a finalizer is the name of a MachineConfig of this family.
fn is_generated(family: Family, finalizer: &str) -> bool {
    let metadata = ObjectMeta {
        name: Some(finalizer.to_owned()),
        annotations: Some(
            [(
                annotations::GENERATED_BY_CONTROLLER_VERSION.to_owned(),
                "any".to_owned(),
            )]
            .into(),
        ),
        ..ObjectMeta::default()
    };
    let expected = match family {
        Family::Kubelet => generated::Generator::Kubelet,
        Family::ContainerRuntime => generated::Generator::ContainerRuntime,
    };
    generated::keeper(&metadata) == Some(expected)
}

fn described<K: UserConfig>(metadata: &ObjectMeta) -> String {
    format!("{} {:?}", K::kind(&()), name_of(metadata))
}

pub(crate) fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// A config of a generator as it is in force, for when it cannot be made: as it was made last, whatever somebody has made
/// of it since, or as we found it.
pub(crate) fn in_force(cluster: &Cluster, name: &str) -> Option<(String, Arc<MachineConfig>)> {
    let config = cluster
        .owned
        .get(name)
        .or_else(|| cluster.current_content(name))?;
    Some((name.to_owned(), config))
}

/// The configs of a generator as the API server has them, for when they cannot be made.
pub(crate) fn existing(cluster: &Cluster, wanted: impl Fn(&str) -> bool) -> Share {
    let mut share = Share::new();
    for metadata in cluster.config_metadata.all() {
        let name = name_of(&metadata.metadata);
        if wanted(name)
            && let Some(config) = cluster.current_content(name)
        {
            share.insert(name.to_owned(), config);
        }
    }
    share
}
