//! The MachineConfigs that generators produced. Renders read them from here and not from the API server, so that an
//! edit of one of them never reaches a node; its reconciler restores the API server's copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Api;
use kube::api::DeleteParams;
use mco_api::MachineConfig;
use mco_core::config::parsed_config::SourceConfig;
use mco_core::generators::generated::{self, Generator};
use mco_core::generators::templates::TemplateConfig;
use mco_core::pipeline::{BaseConfigs, GeneratedConfig};
use mco_runtime::patch::unless_gone;
use mco_runtime::{FieldManager, Requeue, is_already_exists, object_name};
use parking_lot::RwLock;
use tracing::{info, warn};

use crate::context::Context;
use crate::error::Error;
use crate::restore::restore;
use crate::source_cache;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-generators");

/// Generated MachineConfigs by name.
pub(crate) type GeneratedConfigs = BTreeMap<String, Arc<SourceConfig>>;

#[derive(Debug, Default)]
pub(crate) struct GeneratedConfigStore {
    outputs: RwLock<BTreeMap<Generator, GeneratorOutput>>,
    /// Configs that are being written and are not yet part of an output: the watch may report them before their
    /// generator has finished.
    publishing: RwLock<BTreeSet<String>>,
}

/// What a generator produced, and from which base.
#[derive(Debug)]
struct GeneratorOutput {
    configs: GeneratedConfigs,
    base: Arc<BaseConfigs>,
}

impl GeneratorOutput {
    fn is_from(&self, base: &Arc<BaseConfigs>) -> bool {
        Arc::ptr_eq(&self.base, base)
    }
}

/// What a new output changed.
#[derive(Debug, PartialEq)]
struct PublishChanges {
    /// Configs that were added, changed or removed.
    changed: Vec<Arc<SourceConfig>>,
    completeness: Completeness,
}

/// Whether every generator has published for the same base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completeness {
    Incomplete,
    /// This output was the last one missing.
    Completed,
    /// It was complete before.
    Unchanged,
}

/// What to do about a MachineConfig that the API server has or had.
#[derive(Debug, Clone, PartialEq)]
enum Enforcement {
    /// Write it as it was generated.
    Restore(Arc<SourceConfig>),
    /// Delete it, because its generator no longer produces it.
    Delete,
    /// Not a generated config, or one that is being written.
    Ignore,
}

impl GeneratedConfigStore {
    /// Returns all generated configs, once every generator has published for this base. Before that a render would lack
    /// configs or mix new and old ones, and start a rollout that the next render has to undo.
    pub fn complete(&self, base: &Arc<BaseConfigs>) -> Option<GeneratedConfigs> {
        let outputs = self.outputs.read();
        is_complete(&outputs, base).then(|| all(&outputs))
    }

    pub fn get(&self, name: &str) -> Option<Arc<SourceConfig>> {
        let outputs = self.outputs.read();
        outputs
            .values()
            .find_map(|output| output.configs.get(name))
            .cloned()
    }

    fn has_output_of(&self, generator: Generator) -> bool {
        self.outputs.read().contains_key(&generator)
    }

    pub fn of_generator(&self, generator: Generator) -> Option<GeneratedConfigs> {
        let outputs = self.outputs.read();
        outputs.get(&generator).map(|output| output.configs.clone())
    }

    fn enforcement(&self, name: &str, generator: Option<Generator>) -> Enforcement {
        // Checked first: a config leaves this set only after it has become part of an output.
        if self.publishing.read().contains(name) {
            return Enforcement::Ignore;
        }
        match self.get(name) {
            Some(config) => Enforcement::Restore(config),
            None if generator.is_some_and(|generator| self.has_output_of(generator)) => Enforcement::Delete,
            None => Enforcement::Ignore,
        }
    }

    /// Until these configs are published, new and changed ones are not taken for edits. Unchanged ones stay enforced.
    fn begin_publish(&self, configs: &GeneratedConfigs) {
        let published = all(&self.outputs.read());
        let new = configs
            .iter()
            .filter(|(name, config)| published.get(name.as_str()) != Some(*config));
        self.publishing.write().extend(new.map(|(name, _)| name.clone()));
    }

    /// Replaces the output of a generator.
    fn publish(
        &self,
        generator: Generator,
        configs: GeneratedConfigs,
        base: &Arc<BaseConfigs>,
    ) -> PublishChanges {
        let mut outputs = self.outputs.write();
        let was_complete = is_complete(&outputs, base);
        let before = outputs.get(&generator).map(|output| &output.configs);
        let mut changed: Vec<Arc<SourceConfig>> = Vec::new();
        for (name, config) in &configs {
            if before.and_then(|before| before.get(name)) != Some(config) {
                changed.push(Arc::clone(config));
            }
        }
        for (name, config) in before.into_iter().flatten() {
            if !configs.contains_key(name) {
                changed.push(Arc::clone(config));
            }
        }
        let mut publishing = self.publishing.write();
        for name in configs.keys() {
            publishing.remove(name);
        }
        let output = GeneratorOutput {
            configs,
            base: Arc::clone(base),
        };
        outputs.insert(generator, output);
        let completeness = match (was_complete, is_complete(&outputs, base)) {
            (_, false) => Completeness::Incomplete,
            (false, true) => Completeness::Completed,
            (true, true) => Completeness::Unchanged,
        };
        PublishChanges {
            changed,
            completeness,
        }
    }
}

fn is_complete(outputs: &BTreeMap<Generator, GeneratorOutput>, base: &Arc<BaseConfigs>) -> bool {
    let mut generators = Generator::ALL.iter();
    generators.all(|generator| outputs.get(generator).is_some_and(|output| output.is_from(base)))
}

fn all(outputs: &BTreeMap<Generator, GeneratorOutput>) -> GeneratedConfigs {
    let configs = outputs.values().flat_map(|output| &output.configs);
    configs
        .map(|(name, config)| (name.clone(), Arc::clone(config)))
        .collect()
}

/// Returns the configs by name, parsed. Unchanged ones are not parsed again.
pub(crate) fn parse<'g>(
    ctx: &Context,
    generated: impl IntoIterator<Item = &'g GeneratedConfig>,
) -> GeneratedConfigs {
    let parsed = generated.into_iter().map(|config| {
        let published = ctx.generated.get(config.name());
        let unchanged = published.filter(|published| published.object == config.object);
        let parsed = unchanged.unwrap_or_else(|| Arc::new(SourceConfig::new(Arc::clone(&config.object))));
        (config.name().to_owned(), parsed)
    });
    parsed.collect()
}

/// The result of [`publish`].
#[derive(Debug, Default)]
pub(crate) struct PublishResult {
    /// Configs that could not be written or deleted.
    pub failed: BTreeMap<String, Error>,
}

impl PublishResult {
    /// Returns the first failure.
    pub fn outcome(self) -> Result<(), Error> {
        self.failed.into_values().next().map_or(Ok(()), Err)
    }
}

/// Writes a generator's configs where they differ, publishes them to renders, and deletes those that the generator no
/// longer produces. Renders do not wait for a config that cannot be written.
pub(crate) async fn publish(
    ctx: &Context,
    generator: Generator,
    configs: GeneratedConfigs,
    base: &Arc<BaseConfigs>,
) -> PublishResult {
    let mut result = PublishResult::default();
    ctx.generated.begin_publish(&configs);
    for (name, config) in &configs {
        if let Err(problem) = write(ctx, &config.object, Reason::Generated).await {
            result.failed.insert(name.clone(), problem);
        }
    }
    let names: BTreeSet<String> = configs.keys().cloned().collect();
    let changes = ctx.generated.publish(generator, configs, base);
    // Before anything else can fail: a retry finds nothing changed and would enqueue nothing.
    enqueue_dependents(ctx, &names, &changes);
    for metadata in ctx.stores.config_metadata.all() {
        let name = object_name(&metadata.metadata);
        // Base configs stay while their role may be added again, but not on a base that has none.
        let is_left_behind = generator == Generator::Templates
            && !base.base.has_templates()
            && TemplateConfig::is_owned(&metadata.metadata);
        if (is_left_behind || generated::generator_of(&metadata.metadata) == Some(generator))
            && !names.contains(name)
            && let Err(problem) = delete(ctx, name).await
        {
            result.failed.insert(name.to_owned(), problem);
        }
    }
    result
}

fn enqueue_dependents(ctx: &Context, names: &BTreeSet<String>, changes: &PublishChanges) {
    // An edit while a config was being published, or before it was known to be generated, was ignored.
    let is_missing = |name: &&String| ctx.stores.config_metadata.get(name).is_none();
    let missing = names.iter().filter(is_missing).map(String::as_str);
    let changed = changes.changed.iter().map(|config| config.name());
    for name in missing.chain(changed) {
        ctx.queues.enforcement.enqueue(name);
    }
    match changes.completeness {
        // The generator that completes the set enqueues them.
        Completeness::Incomplete => {}
        Completeness::Completed => ctx.enqueue_all_renders(),
        Completeness::Unchanged => {
            for config in &changes.changed {
                ctx.enqueue_renders_selecting(config.object.metadata.labels.as_ref());
            }
        }
    }
}

/// Restores or deletes one MachineConfig if it is a generator's.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let metadata = ctx.stores.config_metadata.get(&name);
    let generator = metadata.and_then(|metadata| generated::generator_of(&metadata.metadata));
    match ctx.generated.enforcement(&name, generator) {
        Enforcement::Restore(config) => write(&ctx, &config.object, Reason::Edited).await?,
        Enforcement::Delete => delete(&ctx, &name).await?,
        Enforcement::Ignore => {}
    }
    Ok(Requeue::OnChange)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Generated,
    Edited,
}

async fn write(ctx: &Context, config: &MachineConfig, reason: Reason) -> Result<(), Error> {
    let configs: Api<MachineConfig> = ctx.api();
    let name = object_name(&config.metadata);
    if ctx.stores.config_metadata.get(name).is_none() {
        match configs.create(&MANAGER.post_params(), config).await {
            Ok(_) => {
                info!(config = name, "created");
                return Ok(());
            }
            Err(problem) if is_already_exists(&problem) => {}
            Err(problem) => return Err(Error::api(format!("creating MachineConfig {name}"))(problem)),
        }
    }
    let attempt = || format!("restoring MachineConfig {name}");
    let actual = match ctx.current_source(name) {
        Some(source) => source,
        None => match configs.get_opt(name).await.map_err(Error::api(attempt()))? {
            Some(config) => Arc::new(config),
            // The watch reports the deletion, and it is created then.
            None => return Ok(()),
        },
    };
    if actual.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let Some(written) = restore(&configs, MANAGER, &actual, config).await? else {
        return Ok(());
    };
    source_cache::observe_write(ctx, written);
    match reason {
        Reason::Generated => info!(config = name, "updated"),
        Reason::Edited => warn!(
            config = name,
            "another client edited this generated MachineConfig; reverted, and not rolled out"
        ),
    }
    Ok(())
}

async fn delete(ctx: &Context, name: &str) -> Result<(), Error> {
    let configs: Api<MachineConfig> = ctx.api();
    let deleted = unless_gone(configs.delete(name, &DeleteParams::default()).await)
        .map_err(Error::api(format!("deleting MachineConfig {name}")))?;
    if deleted.is_some() {
        info!(
            config = name,
            "deleted a MachineConfig that is no longer generated"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Arc<BaseConfigs> {
        Arc::new(BaseConfigs::default())
    }

    fn configs_named(names: &[&str]) -> GeneratedConfigs {
        let config = |name: &&str| {
            let mut config = MachineConfig::default();
            config.metadata.name = Some((*name).to_owned());
            ((*name).to_owned(), Arc::new(SourceConfig::new(config)))
        };
        names.iter().map(config).collect()
    }

    #[test]
    fn a_config_that_is_still_being_written_is_not_deleted() {
        let (configs, from) = (GeneratedConfigStore::default(), base());
        let generator = Some(Generator::Registries);
        let (first, second) = ("99-master-generated-registries", "99-worker-generated-registries");
        assert_eq!(
            configs.enforcement(first, generator),
            Enforcement::Ignore,
            "no generator has published yet"
        );
        configs.publish(Generator::Registries, GeneratedConfigs::new(), &from);
        assert_eq!(configs.enforcement(first, generator), Enforcement::Delete);
        assert_eq!(configs.enforcement("50-mine", None), Enforcement::Ignore);

        let output = configs_named(&[first, second]);
        configs.begin_publish(&output);
        assert_eq!(
            configs.enforcement(first, generator),
            Enforcement::Ignore,
            "the watch may report it before its generator has finished"
        );
        configs.publish(Generator::Registries, output.clone(), &from);
        assert_eq!(
            configs.enforcement(first, generator),
            Enforcement::Restore(Arc::clone(&output[first]))
        );
        configs.publish(Generator::Registries, configs_named(&[second]), &from);
        assert_eq!(configs.enforcement(first, generator), Enforcement::Delete);
    }

    #[test]
    fn a_config_that_its_generator_is_changing_is_not_restored_and_its_neighbour_is() {
        let (configs, from) = (GeneratedConfigStore::default(), base());
        let generator = Some(Generator::Kubelet);
        let (changing, staying) = ("97-worker-generated-kubelet", "98-worker-generated-kubelet");
        let before = configs_named(&[changing, staying]);
        configs.publish(Generator::Kubelet, before.clone(), &from);
        let mut after = before.clone();
        let mut changed = MachineConfig::clone(&before[changing].object);
        changed.spec.kernel_arguments = vec!["new=1".to_owned()];
        after.insert(changing.to_owned(), Arc::new(SourceConfig::new(changed)));
        configs.begin_publish(&after);
        assert_eq!(configs.enforcement(changing, generator), Enforcement::Ignore);
        assert_eq!(
            configs.enforcement(staying, generator),
            Enforcement::Restore(Arc::clone(&before[staying])),
            "an edit of it is reverted meanwhile"
        );
        let changes = configs.publish(Generator::Kubelet, after.clone(), &from);
        assert_eq!(changes.changed, [Arc::clone(&after[changing])]);
        assert_eq!(
            configs.enforcement(changing, generator),
            Enforcement::Restore(Arc::clone(&after[changing]))
        );
    }

    #[test]
    fn a_render_sees_nothing_until_every_generator_has_run_on_the_same_base() {
        let configs = GeneratedConfigStore::default();
        let (first, second) = (base(), base());
        let [last, others @ ..] = Generator::ALL;
        let publish = |generator: Generator, from: &Arc<BaseConfigs>| {
            let name = format!("{generator:?}");
            configs
                .publish(generator, configs_named(&[&name]), from)
                .completeness
        };
        for generator in others {
            assert_eq!(publish(generator, &first), Completeness::Incomplete);
            assert_eq!(configs.complete(&first), None);
        }
        assert_eq!(publish(last, &first), Completeness::Completed);
        assert_eq!(
            configs.complete(&first).map(|all| all.len()),
            Some(Generator::ALL.len())
        );
        assert_eq!(publish(last, &first), Completeness::Unchanged);

        assert_eq!(publish(last, &second), Completeness::Incomplete);
        assert_eq!(
            (configs.complete(&first), configs.complete(&second)),
            (None, None)
        );
        for generator in others {
            assert_eq!(configs.complete(&second), None);
            publish(generator, &second);
        }
        assert!(configs.complete(&second).is_some(), "even if nothing has changed");
        assert_eq!(publish(last, &second), Completeness::Unchanged);
    }
}
