//! KubeletConfigs and ContainerRuntimeConfigs: user objects that modify the generated configs of the pools they
//! select. Their MachineConfigs are named together, so that no two of them write the same one.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use mco_api::vocabulary::names;
use mco_api::{ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool};

use super::generate::name_of;
use super::{
    ClusterStage, ExistingConfigs, GenerationError, GenerationResult, GeneratorInputs, ObjectReport,
};
use crate::config::base_layout::BaseLayout;
use crate::config::node_versions::PoolNodes;
use crate::config::pools;
use crate::generators::base_refusal::BaseRefusal;
use crate::generators::container_runtime::{self, ContainerRuntimeError, STORAGE_CONF};
use crate::generators::generated::assign::{Assigned, Claim, assign};
use crate::generators::generated::condition::GenerationOutcome;
use crate::generators::generated::suffix::{Family, has_written_for};
use crate::generators::generated::{self, Generated, GeneratedConfigSpec, Generator, generator_of_name};
use crate::generators::kubelet::{self, UserKubelet};
use crate::generators::templates::base_file;

const OWN_GROUP: &str = "machineconfiguration.openshift.io/v1";

/// A kind of user object that modifies the generated configs of pools.
pub(super) trait GeneratorObject {
    const KIND: &'static str;
    const FAMILY: Family;
    const GENERATOR: Generator;
    /// The key of the MachineConfig's name in messages.
    const KEY: &'static str;
    /// The plural of the kind in messages.
    const SEVERAL: (&'static str, &'static str);
    /// A valid object.
    type Validated;
    /// The generator's inputs common to all objects.
    type Context<'c>: Copy;

    fn metadata(&self) -> &ObjectMeta;
    fn selector(&self) -> Option<&LabelSelector>;
    fn validate(&self) -> Result<Self::Validated, GenerationError>;
    fn generate(
        &self,
        validated: &Self::Validated,
        pool: &MachineConfigPool,
        context: Self::Context<'_>,
        inputs: &GeneratorInputs<'_>,
        name: String,
        owner: OwnerReference,
    ) -> Result<Generated, GenerationError>;
    /// Returns pools that inherit the object although its selector does not match them.
    fn followers<'p>(
        _all: &[&Self],
        _chosen: &[&'p MachineConfigPool],
        _pools: &'p [MachineConfigPool],
    ) -> Vec<&'p MachineConfigPool> {
        Vec::new()
    }
    fn no_pool(&self) -> String;
}

/// Generates the configs of all objects of a kind, in creation order.
pub(super) fn run<K: GeneratorObject>(
    objects: &[K],
    context: K::Context<'_>,
    inputs: &GeneratorInputs<'_>,
    existing: &impl ExistingConfigs,
    result: &mut GenerationResult,
) {
    let (deleted, objects) = in_order(objects, inputs.stage);
    let deleted = deleted
        .iter()
        .map(|object| (K::KIND, name_of(object.metadata()).to_owned()));
    result.deleted.extend(deleted);
    let selections: Vec<_> = objects
        .iter()
        .map(|object| select(*object, &objects, &inputs.objects.pools))
        .collect();
    let assigned = match inputs.stage {
        ClusterStage::Cluster => assign_names(&objects, &selections, existing),
        ClusterStage::Installation => plain_names(&objects, &selections, result),
    };
    for ((object, selection), assigned) in objects.iter().zip(selections).zip(assigned) {
        let outcome = generate_one(*object, selection, &assigned, context, inputs, existing, result);
        result.reports.push(ObjectReport {
            kind: K::KIND,
            name: name_of(object.metadata()).to_owned(),
            assigned,
            outcome,
        });
    }
}

/// Splits off objects that are being deleted. The others are in creation order; objects without a creation timestamp
/// come last.
fn in_order<K: GeneratorObject>(objects: &[K], stage: ClusterStage) -> (Vec<&K>, Vec<&K>) {
    let (deleted, mut objects): (Vec<&K>, Vec<&K>) = objects
        .iter()
        .partition(|object| object.metadata().deletion_timestamp.is_some());
    if stage == ClusterStage::Cluster {
        objects.sort_by_key(|object| {
            let created = object.metadata().creation_timestamp.as_ref().map(|time| time.0);
            (created.is_none(), created, object.metadata().name.clone())
        });
    }
    (deleted, objects)
}

/// An object that applies to no pool, and the reason.
struct Unusable<'p> {
    error: GenerationError,
    /// Pools that keep their existing config of it.
    keeping: Vec<&'p MachineConfigPool>,
}

type SelectedPools<'p> = Result<Vec<&'p MachineConfigPool>, Unusable<'p>>;

fn select<'p, K: GeneratorObject>(
    object: &K,
    all: &[&K],
    pools: &'p [MachineConfigPool],
) -> SelectedPools<'p> {
    let mut selected = pools::selected(pools, object.selector()).map_err(|error| Unusable {
        error: GenerationError::Selector(error),
        // With an invalid selector it is undetermined whether it still selects its former pools.
        keeping: pools
            .iter()
            .filter(|pool| has_written_for(K::FAMILY, name_of(&pool.metadata), object.metadata()))
            .collect(),
    })?;
    if selected.is_empty() {
        return Err(Unusable {
            error: GenerationError::NoPool(object.no_pool()),
            keeping: Vec::new(),
        });
    }
    selected.extend(K::followers(all, &selected, pools));
    Ok(selected)
}

fn pool_names<'p>(selection: &SelectedPools<'p>) -> Vec<&'p str> {
    let (Ok(pools) | Err(Unusable { keeping: pools, .. })) = selection;
    pools.iter().map(|pool| name_of(&pool.metadata)).collect()
}

fn assign_names<K: GeneratorObject>(
    objects: &[&K],
    selections: &[SelectedPools<'_>],
    existing: &impl ExistingConfigs,
) -> Vec<Assigned> {
    let claims: Vec<Claim<'_>> = objects
        .iter()
        .zip(selections)
        .map(|(object, selection)| Claim {
            object: object.metadata(),
            pools: pool_names(selection),
        })
        .collect();
    let is_own = |name: &str| generator_of_name(name) == Some(K::GENERATOR);
    assign(K::FAMILY, &claims, |name| existing.exists(name), is_own)
}

/// Returns the names at installation, when only one object may select a pool.
fn plain_names<K: GeneratorObject>(
    objects: &[&K],
    selections: &[SelectedPools<'_>],
    result: &mut GenerationResult,
) -> Vec<Assigned> {
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    let mut all = Vec::new();
    for (object, selection) in objects.iter().zip(selections) {
        let own = name_of(object.metadata());
        let mut configs = Vec::new();
        for pool in pool_names(selection) {
            if let Some(first) = taken.insert(pool, own) {
                let (several, kind) = K::SEVERAL;
                let error = GenerationError::Multiple {
                    several,
                    kind,
                    pool: pool.to_owned(),
                    first: first.to_owned(),
                    second: own.to_owned(),
                };
                result.fail(&described::<K>(object.metadata()), error);
            } else {
                configs.push((pool.to_owned(), Ok(K::FAMILY.name(pool, None))));
            }
        }
        all.push(Assigned {
            configs,
            suffix: None,
            finalizers: None,
        });
    }
    all
}

fn generate_one<K: GeneratorObject>(
    object: &K,
    selection: SelectedPools<'_>,
    assigned: &Assigned,
    context: K::Context<'_>,
    inputs: &GeneratorInputs<'_>,
    existing: &impl ExistingConfigs,
    result: &mut GenerationResult,
) -> GenerationOutcome {
    let mut errors = Vec::new();
    if inputs.stage == ClusterStage::Installation && selection.is_err() {
        // An installation rejects an invalid object even if it selects no pool.
        errors.extend(object.validate().err());
    }
    let usable = selection
        .map_err(|unusable| unusable.error)
        .and_then(|pools| object.validate().map(|validated| (pools, validated)))
        .map_err(|error| errors.push(error))
        .ok();
    for (pool_name, config) in &assigned.configs {
        let name = match config {
            Ok(name) => name,
            Err(source) => {
                errors.push(GenerationError::Name {
                    key: K::KEY,
                    source: source.clone(),
                });
                continue;
            }
        };
        let pool = usable.as_ref().and_then(|(pools, validated)| {
            let mut pools = pools.iter();
            let pool = pools.find(|pool| name_of(&pool.metadata) == pool_name)?;
            Some((pool, validated))
        });
        let generated = pool.map(|(pool, validated)| {
            let owner = generated::owner(OWN_GROUP, K::KIND, object.metadata());
            object.generate(validated, pool, context, inputs, name.clone(), owner)
        });
        match generated {
            Some(Ok(generated)) => result.push(generated),
            // A pool keeps its existing config of the object until that is valid again.
            None => result.keep(kept(object, name, existing)),
            Some(Err(error)) => {
                errors.push(error);
                result.keep(kept(object, name, existing));
            }
        }
    }
    let outcome = errors.first().map_or(GenerationOutcome::Success, outcome_of);
    for error in errors {
        result.fail(&described::<K>(object.metadata()), error);
    }
    outcome
}

/// Returns the config of this name that stays in force, if it was generated from the object: a deleted object may
/// have had the name before.
fn kept<K: GeneratorObject>(
    object: &K,
    name: &str,
    existing: &impl ExistingConfigs,
) -> Option<Arc<MachineConfig>> {
    let config = existing.in_force(name)?;
    is_generated_from(&config, K::KIND, name_of(object.metadata())).then_some(config)
}

/// Whether a config was generated from this object, or has no record of its origin.
pub fn is_generated_from(config: &MachineConfig, kind: &str, name: &str) -> bool {
    let owners = config.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true)).peekable();
    controllers.peek().is_none() || controllers.any(|owner| owner.kind == kind && owner.name == name)
}

fn outcome_of(error: &GenerationError) -> GenerationOutcome {
    match error {
        GenerationError::Name { .. } => GenerationOutcome::Failure {
            message: error.to_string(),
        },
        _ => GenerationOutcome::error(error),
    }
}

fn described<K: GeneratorObject>(metadata: &ObjectMeta) -> String {
    format!("{} {:?}", K::KIND, name_of(metadata))
}

/// Returns the layout and the nodes of a pool on an additive base, `None` on a base with templates, and an error where
/// objects of this kind have no effect.
fn additive<'a>(
    pool: &'a MachineConfigPool,
    inputs: &GeneratorInputs<'a>,
    kind: &'static str,
) -> Result<Option<(BaseLayout, PoolNodes<'a>)>, BaseRefusal> {
    let base = inputs.base.base;
    if base.has_templates() {
        return Ok(None);
    }
    let layout = BaseLayout::of(base).ok_or(BaseRefusal::NoBase { kind })?;
    let objects = inputs.objects;
    Ok(Some((
        layout,
        PoolNodes::of(base, pool, &objects.pools, &objects.nodes),
    )))
}

/// Returns the number at the end of a generated name, 0 for the name without one.
fn number_in(name: &str, plain: &str) -> u32 {
    let number = name.strip_prefix(plain).and_then(|rest| rest.strip_prefix('-'));
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

impl GeneratorObject for KubeletConfig {
    const KIND: &'static str = "KubeletConfig";
    const FAMILY: Family = Family::Kubelet;
    const GENERATOR: Generator = Generator::Kubelet;
    const KEY: &'static str = "kubelet config";
    const SEVERAL: (&'static str, &'static str) = ("KubeletConfigs", "KubeletConfig");
    type Validated = UserKubelet;
    type Context<'c> = super::kubelet::NodeSettings<'c>;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.machine_config_pool_selector.as_ref()
    }

    fn validate(&self) -> Result<UserKubelet, GenerationError> {
        Ok(kubelet::validate(self)?)
    }

    fn generate(
        &self,
        validated: &UserKubelet,
        pool: &MachineConfigPool,
        settings: Self::Context<'_>,
        inputs: &GeneratorInputs<'_>,
        name: String,
        owner: OwnerReference,
    ) -> Result<Generated, GenerationError> {
        kubelet::check_for_pool(validated, pool)?;
        if let Some((layout, nodes)) = additive(pool, inputs, Self::KIND)? {
            let number = number_in(&name, &Self::FAMILY.name(nodes.pool, None));
            let target = kubelet::DropInTarget {
                name,
                number,
                owner: Some(owner),
                version: inputs.version,
            };
            return Ok(kubelet::for_drop_in(&layout, &nodes, self, validated, target)?);
        }
        let base = super::kubelet::base_of(pool, settings, inputs)?;
        Ok(kubelet::for_kubelet_config(
            base,
            self,
            validated,
            name,
            Some(owner),
        )?)
    }

    fn followers<'p>(
        all: &[&Self],
        chosen: &[&'p MachineConfigPool],
        pools: &'p [MachineConfigPool],
    ) -> Vec<&'p MachineConfigPool> {
        let for_workers = chosen
            .iter()
            .any(|pool| name_of(&pool.metadata) == names::pool::WORKER);
        if for_workers {
            kubelet::inheriting(pools, all)
        } else {
            Vec::new()
        }
    }

    fn no_pool(&self) -> String {
        "could not find any MachineConfigPool set for KubeletConfig".to_owned()
    }
}

impl GeneratorObject for ContainerRuntimeConfig {
    const KIND: &'static str = "ContainerRuntimeConfig";
    const FAMILY: Family = Family::ContainerRuntime;
    const GENERATOR: Generator = Generator::ContainerRuntime;
    const KEY: &'static str = "ctrcfg";
    const SEVERAL: (&'static str, &'static str) = ("ContainerConfig", "ContainerConfig");
    type Validated = ();
    type Context<'c> = ();

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.machine_config_pool_selector.as_ref()
    }

    fn validate(&self) -> Result<(), GenerationError> {
        Ok(container_runtime::validate(self).map_err(ContainerRuntimeError::Invalid)?)
    }

    fn generate(
        &self,
        (): &(),
        pool: &MachineConfigPool,
        (): (),
        inputs: &GeneratorInputs<'_>,
        name: String,
        owner: OwnerReference,
    ) -> Result<Generated, GenerationError> {
        let role = name_of(&pool.metadata);
        if let Some((layout, nodes)) = additive(pool, inputs, Self::KIND)? {
            let number = number_in(&name, &Self::FAMILY.name(role, None));
            let wishes = &self.spec.container_runtime_config;
            let files = container_runtime::drop_in_files(&layout, &nodes, wishes, number)?;
            return Ok(GeneratedConfigSpec {
                name,
                role,
                files,
                version: Some(inputs.version),
                owner: Some(owner),
                made_from: described::<Self>(&self.metadata),
                ..GeneratedConfigSpec::default()
            }
            .build());
        }
        let base = container_runtime::ContainerRuntimeBase {
            role,
            storage_conf: base_file(&inputs.base.templates, role, STORAGE_CONF),
            feature_gates: &inputs.base.feature_gates,
            version: inputs.version,
        };
        Ok(container_runtime::generate(base, self, name, Some(owner))?)
    }

    fn no_pool(&self) -> String {
        format!(
            "could not find any MachineConfigPool set for ContainerRuntimeConfig {}",
            name_of(&self.metadata)
        )
    }
}
