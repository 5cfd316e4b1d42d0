//! The MachineConfigs that generators made, as they must be. Renders read them from here and not from the API server, so
//! that an edit of one of them never reaches a machine; the keeper puts the API server's copy back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use mco_api::MachineConfig;
use mco_core::config::parsed_config::SourceConfig;
use mco_core::generators::generated::{self, Generator};
use mco_core::pipeline::GeneratedConfig;
use parking_lot::RwLock;
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::contents;
use crate::error::{Error, is_already_there, is_not_found};
use crate::foundation::Foundation;
use crate::queue::Again;
use crate::restore::restore;

pub(crate) type Share = BTreeMap<String, Arc<SourceConfig>>;

#[derive(Debug, Default)]
pub(crate) struct Owned {
    made: RwLock<BTreeMap<Generator, Made>>,
    /// Being written, and not yet part of a share as they are written: the API server may show them before their generator
    /// has finished.
    coming: RwLock<BTreeSet<String>>,
}

/// What a generator made, and from what.
#[derive(Debug)]
struct Made {
    share: Share,
    from: Arc<Foundation>,
}

impl Made {
    fn is_from(&self, foundation: &Arc<Foundation>) -> bool {
        Arc::ptr_eq(&self.from, foundation)
    }
}

/// What a new share changed.
#[derive(Debug, PartialEq)]
struct News {
    /// Configs that are not what they were.
    changed: Vec<Arc<SourceConfig>>,
    /// Whether now every generator has made what it makes of the same foundation, and whether that is new.
    whole: Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    NotYet,
    Now,
    Still,
}

/// What becomes of a config that the API server has or had.
#[derive(Debug, Clone, PartialEq)]
enum Fate {
    /// It must be so.
    Kept(Arc<SourceConfig>),
    /// Its generator no longer makes it.
    Removed,
    /// Not ours, or not for now.
    LeftAlone,
}

impl Owned {
    /// All that was made, once every generator has said what it makes of this foundation. Before that a render would lack
    /// something, or mix what is new with what is old, and start a rollout that the next one has to undo.
    pub fn whole(&self, foundation: &Arc<Foundation>) -> Option<Share> {
        let made = self.made.read();
        is_whole(&made, foundation).then(|| all(&made))
    }

    pub fn get(&self, name: &str) -> Option<Arc<SourceConfig>> {
        let made = self.made.read();
        made.values().find_map(|made| made.share.get(name)).cloned()
    }

    fn has(&self, generator: Generator) -> bool {
        self.made.read().contains_key(&generator)
    }

    pub fn share_of(&self, generator: Generator) -> Option<Share> {
        self.made.read().get(&generator).map(|made| made.share.clone())
    }

    fn fate(&self, name: &str, keeper: Option<Generator>) -> Fate {
        // Asked first: what is coming leaves this set only after it has become part of a share.
        if self.coming.read().contains(name) {
            return Fate::LeftAlone;
        }
        match self.get(name) {
            Some(config) => Fate::Kept(config),
            None if keeper.is_some_and(|generator| self.has(generator)) => Fate::Removed,
            None => Fate::LeftAlone,
        }
    }

    /// Until this share is published, what is new in it is nobody's edit. What it leaves as it was stays kept.
    fn announce(&self, share: &Share) {
        let known = all(&self.made.read());
        let new = share
            .iter()
            .filter(|(name, config)| known.get(name.as_str()) != Some(*config));
        self.coming.write().extend(new.map(|(name, _)| name.clone()));
    }

    /// Takes a generator's whole share in place of its last one.
    fn publish(&self, generator: Generator, share: Share, from: &Arc<Foundation>) -> News {
        let mut made = self.made.write();
        let was_whole = is_whole(&made, from);
        let before = made.get(&generator).map(|made| &made.share);
        let mut changed: Vec<Arc<SourceConfig>> = Vec::new();
        for (name, config) in &share {
            if before.and_then(|before| before.get(name)) != Some(config) {
                changed.push(Arc::clone(config));
            }
        }
        for (name, config) in before.into_iter().flatten() {
            if !share.contains_key(name) {
                changed.push(Arc::clone(config));
            }
        }
        let mut coming = self.coming.write();
        for name in share.keys() {
            coming.remove(name);
        }
        let new = Made {
            share,
            from: Arc::clone(from),
        };
        made.insert(generator, new);
        let whole = match (was_whole, is_whole(&made, from)) {
            (_, false) => Whole::NotYet,
            (false, true) => Whole::Now,
            (true, true) => Whole::Still,
        };
        News { changed, whole }
    }
}

fn is_whole(made: &BTreeMap<Generator, Made>, foundation: &Arc<Foundation>) -> bool {
    Generator::ALL
        .iter()
        .all(|generator| made.get(generator).is_some_and(|made| made.is_from(foundation)))
}

fn all(made: &BTreeMap<Generator, Made>) -> Share {
    let shares = made.values().flat_map(|made| &made.share);
    shares
        .map(|(name, config)| (name.clone(), Arc::clone(config)))
        .collect()
}

/// The configs by name, parsed. What did not change is not parsed again.
pub(crate) fn share<'g>(
    cluster: &Cluster,
    generated: impl IntoIterator<Item = &'g GeneratedConfig>,
) -> Share {
    let parsed = generated.into_iter().map(|config| {
        let known = cluster.owned.get(config.name());
        let known = known.filter(|known| known.object == config.object);
        let parsed = known.unwrap_or_else(|| Arc::new(SourceConfig::new(Arc::clone(&config.object))));
        (config.name().to_owned(), parsed)
    });
    parsed.collect()
}

/// How publishing went.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Configs that could not be written or deleted.
    pub refused: BTreeMap<String, Error>,
}

impl Published {
    pub fn outcome(self) -> Result<(), Error> {
        self.refused.into_values().next().map_or(Ok(()), Err)
    }
}

/// Writes a generator's configs where they differ, lets renders see them, and deletes those that it no longer makes.
/// Whatever fails, renders do not wait for it.
pub(crate) async fn publish(
    cluster: &Cluster,
    generator: Generator,
    share: Share,
    from: &Arc<Foundation>,
) -> Published {
    let mut published = Published::default();
    cluster.owned.announce(&share);
    for (name, config) in &share {
        if let Err(problem) = write(cluster, &config.object, Reason::Generated).await {
            published.refused.insert(name.clone(), problem);
        }
    }
    let names: BTreeSet<String> = share.keys().cloned().collect();
    let news = cluster.owned.publish(generator, share, from);
    // Before anything more can fail: whoever tries again finds nothing changed and wakes nobody.
    wake(cluster, &names, &news);
    for metadata in cluster.config_metadata.all() {
        let name = metadata.metadata.name.as_deref().unwrap_or_default();
        if generated::generator_of(&metadata.metadata) == Some(generator)
            && !names.contains(name)
            && let Err(problem) = delete(cluster, name).await
        {
            published.refused.insert(name.to_owned(), problem);
        }
    }
    published
}

fn wake(cluster: &Cluster, names: &BTreeSet<String>, news: &News) {
    // What somebody did to one of them while it was coming, or before it was known to be ours, was not noticed.
    let is_unknown = |name: &&String| cluster.config_metadata.get(name).is_none();
    let changed = news.changed.iter();
    let changed_names = changed.map(|config| config.name());
    for name in names
        .iter()
        .filter(is_unknown)
        .map(String::as_str)
        .chain(changed_names)
    {
        cluster.queues.keeper.wake(name);
    }
    match news.whole {
        // Whoever is the last wakes them.
        Whole::NotYet => {}
        Whole::Now => cluster.wake_all_renders(),
        Whole::Still => {
            for config in &news.changed {
                cluster.wake_renders_selecting(config.object.metadata.labels.as_ref());
            }
        }
    }
}

/// Looks at one config that the API server has or had, and puts it back if it is a generator's.
pub(crate) async fn keep(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    let metadata = cluster.config_metadata.get(&name);
    let keeper = metadata.and_then(|metadata| generated::generator_of(&metadata.metadata));
    match cluster.owned.fate(&name, keeper) {
        Fate::Kept(config) => write(&cluster, &config.object, Reason::Edited).await?,
        Fate::Removed => delete(&cluster, &name).await?,
        Fate::LeftAlone => {}
    }
    Ok(Again::OnChange)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Generated,
    Edited,
}

async fn write(cluster: &Cluster, config: &MachineConfig, reason: Reason) -> Result<(), Error> {
    let configs: Api<MachineConfig> = Api::all(cluster.client.clone());
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if cluster.config_metadata.get(name).is_none() {
        match configs.create(&PostParams::default(), config).await {
            Ok(_) => {
                info!(config = name, "created");
                return Ok(());
            }
            Err(problem) if is_already_there(&problem) => {}
            Err(problem) => return Err(Error::api(format!("creating MachineConfig {name}"))(problem)),
        }
    }
    let attempt = || format!("restoring MachineConfig {name}");
    let actual = match cluster.current_content(name) {
        Some(known) => known,
        None => match configs.get_opt(name).await.map_err(Error::api(attempt()))? {
            Some(config) => Arc::new(config),
            // Its deletion will be noticed, and it will be created then.
            None => return Ok(()),
        },
    };
    if actual.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let Some(written) = restore(&configs, &actual, config).await? else {
        return Ok(());
    };
    contents::learn(cluster, written);
    match reason {
        Reason::Generated => info!(config = name, "updated"),
        Reason::Edited => warn!(
            config = name,
            "somebody changed this MachineConfig, which a controller makes; it is as it was again, and nothing is rolled out"
        ),
    }
    Ok(())
}

pub(crate) async fn delete(cluster: &Cluster, name: &str) -> Result<(), Error> {
    let configs: Api<MachineConfig> = Api::all(cluster.client.clone());
    match configs.delete(name, &DeleteParams::default()).await {
        Ok(_) => info!(config = name, "deleted; nothing asks for it any more"),
        Err(problem) if is_not_found(&problem) => {}
        Err(problem) => return Err(Error::api(format!("deleting MachineConfig {name}"))(problem)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foundation() -> Arc<Foundation> {
        Arc::new(Foundation::default())
    }

    fn share_of(names: &[&str]) -> Share {
        let config = |name: &&str| {
            let mut config = MachineConfig::default();
            config.metadata.name = Some((*name).to_owned());
            ((*name).to_owned(), Arc::new(SourceConfig::new(config)))
        };
        names.iter().map(config).collect()
    }

    #[test]
    fn a_config_that_is_still_being_written_is_not_taken_for_one_that_nobody_makes() {
        let (owned, from) = (Owned::default(), foundation());
        let keeper = Some(Generator::Registries);
        let (first, second) = ("99-master-generated-registries", "99-worker-generated-registries");
        assert_eq!(
            owned.fate(first, keeper),
            Fate::LeftAlone,
            "nobody has said anything yet"
        );
        owned.publish(Generator::Registries, Share::new(), &from);
        assert_eq!(owned.fate(first, keeper), Fate::Removed);
        assert_eq!(owned.fate("50-mine", None), Fate::LeftAlone);

        let share = share_of(&[first, second]);
        owned.announce(&share);
        assert_eq!(
            owned.fate(first, keeper),
            Fate::LeftAlone,
            "seen before its generator has finished"
        );
        owned.publish(Generator::Registries, share.clone(), &from);
        assert_eq!(owned.fate(first, keeper), Fate::Kept(Arc::clone(&share[first])));
        owned.publish(Generator::Registries, share_of(&[second]), &from);
        assert_eq!(owned.fate(first, keeper), Fate::Removed);
    }

    #[test]
    fn a_config_that_its_generator_is_changing_is_not_put_back_and_its_neighbour_is_kept() {
        let (owned, from) = (Owned::default(), foundation());
        let keeper = Some(Generator::Kubelet);
        let (changing, staying) = ("97-worker-generated-kubelet", "98-worker-generated-kubelet");
        let before = share_of(&[changing, staying]);
        owned.publish(Generator::Kubelet, before.clone(), &from);
        let mut after = before.clone();
        let mut changed = MachineConfig::clone(&before[changing].object);
        changed.spec.kernel_arguments = vec!["new=1".to_owned()];
        after.insert(changing.to_owned(), Arc::new(SourceConfig::new(changed)));
        owned.announce(&after);
        assert_eq!(owned.fate(changing, keeper), Fate::LeftAlone);
        assert_eq!(
            owned.fate(staying, keeper),
            Fate::Kept(Arc::clone(&before[staying])),
            "an edit of it is undone meanwhile"
        );
        let changes = owned.publish(Generator::Kubelet, after.clone(), &from);
        assert_eq!(changes.changed, [Arc::clone(&after[changing])]);
        assert_eq!(
            owned.fate(changing, keeper),
            Fate::Kept(Arc::clone(&after[changing]))
        );
    }

    #[test]
    fn a_render_sees_nothing_until_every_generator_has_followed_the_same_foundation() {
        let owned = Owned::default();
        let (first, second) = (foundation(), foundation());
        let [last, others @ ..] = Generator::ALL;
        let publish = |generator: Generator, from: &Arc<Foundation>| {
            let name = format!("{generator:?}");
            owned.publish(generator, share_of(&[&name]), from).whole
        };
        for generator in others {
            assert_eq!(publish(generator, &first), Whole::NotYet);
            assert_eq!(owned.whole(&first), None);
        }
        assert_eq!(publish(last, &first), Whole::Now);
        assert_eq!(
            owned.whole(&first).map(|all| all.len()),
            Some(Generator::ALL.len())
        );
        assert_eq!(publish(last, &first), Whole::Still);

        assert_eq!(publish(last, &second), Whole::NotYet);
        assert_eq!((owned.whole(&first), owned.whole(&second)), (None, None));
        for generator in others {
            assert_eq!(owned.whole(&second), None);
            publish(generator, &second);
        }
        assert!(owned.whole(&second).is_some(), "even if nothing has changed");
        assert_eq!(publish(last, &second), Whole::Still);
    }
}
