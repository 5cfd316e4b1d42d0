//! Keeps the cluster's OSImageStream: the streams of operating systems that its release offers to pools, as
//! [`mco_core::generators::os_streams`] finds and decides them. A cluster that says nothing about streams gets no object.

use std::sync::Arc;

use kube::api::{Patch, PostParams};
use mco_api::OSImageStream;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::vocabulary::names;
use mco_core::generators::os_streams::published::{self, Decision, Release, Sources};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::cluster::Cluster;
use crate::error::{Error, is_already_there, is_not_found};
use crate::patches;
use crate::queue::Again;

const MANAGER: &str = "machine-config-controller-os-image-stream";

/// Publishes what has changed about the streams.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(Again::OnChange);
    };
    let existing = cluster.os_streams.get(names::SINGLETON);
    let is_going = existing
        .as_ref()
        .is_some_and(|object| object.metadata.deletion_timestamp.is_some());
    if is_going || !mco_core::generators::os_streams::are_on(&foundation.feature_gates) {
        return Ok(Again::OnChange);
    }
    let Some(sources) = sources(&cluster) else {
        return Ok(Again::OnChange);
    };
    let version = cluster.releases.get(names::CLUSTER_VERSION);
    let release = release(version.as_deref());
    let us = &cluster.options.source_version;
    match published::decide(existing.as_deref(), &sources, release, us) {
        Ok(Decision::Nothing) => {}
        Ok(Decision::Publish(wanted)) => publish(&cluster, existing.as_deref(), &wanted).await?,
        Ok(Decision::Wait(why)) => warn!("the OS image streams stay as they are: {why}"),
        Err(problem) => warn!("the OS image streams stay as they are: {problem}"),
    }
    Ok(Again::OnChange)
}

/// What the cluster says about streams; none if it cannot be understood.
fn sources(cluster: &Cluster) -> Option<Sources> {
    let key = format!("{}/{}", names::NAMESPACE, names::config_map::OS_IMAGE_URL);
    let entries = cluster.os_images.get(&key);
    let entries = entries.as_ref().and_then(|entries| entries.data.as_ref());
    let sources = entries.map_or_else(|| Ok(Sources::default()), Sources::read);
    match sources {
        Ok(sources) => {
            for left_out in &sources.discovered.left_out {
                debug!(
                    "no part of an OS image stream: {}: {}",
                    left_out.what, left_out.why
                );
            }
            Some(sources)
        }
        Err(problem) => {
            warn!("the OS image streams stay as they are: ConfigMap {key}: {problem}");
            None
        }
    }
}

fn release(version: Option<&ClusterVersion>) -> Release<'_> {
    let Some(status) = version.and_then(|version| version.status.as_ref()) else {
        return Release::default();
    };
    let known = |text: &str| !text.is_empty();
    Release {
        version: Some(status.desired.version.as_str()).filter(|text| known(text)),
        image: Some(status.desired.image.as_str()).filter(|text| known(text)),
        installed: status
            .history
            .last()
            .map(|first| first.version.as_str())
            .filter(|text| known(text)),
    }
}

/// The status first: our version on the object says that its status can be believed.
async fn publish(
    cluster: &Cluster,
    existing: Option<&OSImageStream>,
    wanted: &OSImageStream,
) -> Result<(), Error> {
    let streams = cluster.api::<OSImageStream>();
    if existing.is_none() {
        match streams.create(&PostParams::default(), wanted).await {
            Ok(_) => {}
            Err(problem) if is_already_there(&problem) => return Ok(()),
            Err(problem) => return Err(Error::api("creating OSImageStream cluster")(problem)),
        }
    }
    let offered = existing.and_then(|object| object.status.as_ref());
    if offered != wanted.status.as_ref() {
        let patch = Patch::Merge(json!({"status": wanted.status}));
        let written = streams
            .patch_status(names::SINGLETON, &patches::by(MANAGER), &patch)
            .await;
        take_in(cluster, written)?;
        tell(wanted);
    }
    if let Some(existing) = existing {
        let mut annotations = existing.metadata.annotations.clone().unwrap_or_default();
        annotations.extend(wanted.metadata.annotations.clone().unwrap_or_default());
        if Some(&annotations) != existing.metadata.annotations.as_ref() {
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let written = streams
                .patch(names::SINGLETON, &patches::by(MANAGER), &patch)
                .await;
            take_in(cluster, written)?;
        }
    }
    Ok(())
}

fn take_in(cluster: &Cluster, written: kube::Result<OSImageStream>) -> Result<(), Error> {
    match written {
        Ok(written) => {
            cluster.os_streams.learn(written);
            Ok(())
        }
        // The watch tells of whoever deleted it.
        Err(problem) if is_not_found(&problem) => Ok(()),
        Err(problem) => Err(Error::api("writing OSImageStream cluster")(problem)),
    }
}

fn tell(wanted: &OSImageStream) {
    let Some(status) = &wanted.status else { return };
    let names = status.available_streams.iter().map(|stream| stream.name.as_str());
    info!(
        streams = names.collect::<Vec<_>>().join(", "),
        default = status.default_stream,
        "pools can choose other OS image streams"
    );
}
