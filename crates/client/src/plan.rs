//! Previews a change to a running cluster. `mco plan` and the console's plan page call this one function.

use std::collections::BTreeMap;

use kube::Client;
use mco_core::config::manifest::{Manifest, ManifestError};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::render::RenderIdentity;
use mco_core::pipeline::bootstrap::{self, BootstrapError, BootstrapSettings};
use serde::Serialize;

use crate::cluster::{self, ReadError};
use crate::forecast::{self, AdmissionRefusal, Edit, ObjectForecast, PlanContext, PoolForecast};
use crate::image_builds::ImageContext;

/// The forecasts of all pools, and the edits that would be rejected.
#[derive(Debug, Serialize)]
pub struct PlanReport {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<AdmissionRefusal>,
    /// The forecasts of the objects that configs are generated from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectForecast>,
    pub pools: Vec<PoolForecast>,
    /// Nodes that are not part of the forecast, because they cannot be decoded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable_nodes: Vec<String>,
    /// The targets of the pools.
    #[serde(skip)]
    pub current: BTreeMap<String, ParsedConfig>,
}

impl PlanReport {
    pub fn is_change(&self) -> bool {
        self.pools.iter().any(PoolForecast::is_change)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterPlanError {
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The object does not exist. Reported, because a typing mistake must not be shown as "no change".
    #[error("there is no object named {0} to delete")]
    NothingToDelete(String),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{} cannot be used: {}", crate::text::count(.0.len(), "object"), all(.0))]
    Unusable(Vec<BootstrapError>),
}

fn all(errors: &[BootstrapError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Previews the effect of edits, with the client's permissions. Nothing is written.
pub async fn plan(
    client: &Client,
    edits: &[Edit],
    settings: &BootstrapSettings<'_>,
) -> Result<PlanReport, ClusterPlanError> {
    let mut found = cluster::read(client).await?;
    if let Some(base) = settings.base {
        found.rules = cluster::rules_on(client, base).await?;
        found.add_nodes(base)?;
    }
    ensure_exists(&found.objects, edits)?;
    let (_, mut refused) = forecast::edited(&found.objects, edits);
    refused.extend(cluster::refused_by_server(client, edits, &refused).await);
    let is_accepted = |edit: &&Edit| match edit {
        Edit::Apply(manifest) => !refused
            .iter()
            .any(|one| one.kind == manifest.kind && one.name == manifest.name),
        Edit::Delete(_) => true,
    };
    let accepted: Vec<Edit> = edits.iter().filter(is_accepted).cloned().collect();
    let (after, _) = forecast::edited(&found.objects, &accepted);
    let after = forecast::with_base(after, settings.base);
    let mut images = ImageContext::new(&found.objects, &after)?;
    if images.needs_builds() {
        cluster::read_builds(client, &mut images).await?;
    }
    // A MachineConfiguration among the edits determines the disruption of the other edits.
    let rules = forecast::rules(&after, found.rules)?;
    let after = bootstrap::changed(found.objects, after, settings).map_err(ClusterPlanError::Unusable)?;
    let situation = PlanContext {
        current: found.current,
        nodes: &found.nodes,
        pods: &found.pods,
        budgets: &found.budgets,
        rules,
        policies: &found.policies,
        images,
        time: jiff::Timestamp::now(),
    };
    let identity = RenderIdentity {
        controller_version: settings.controller_version,
        release_version: "",
    };
    Ok(PlanReport {
        refused,
        objects: forecast::objects(&after),
        pools: forecast::forecast(&after, identity, &situation),
        unreadable_nodes: found.unreadable_nodes,
        current: situation.current,
    })
}

/// Rejects the deletion of an object that does not exist.
pub fn ensure_exists(objects: &[Manifest], edits: &[Edit]) -> Result<(), ClusterPlanError> {
    for edit in edits {
        if let Edit::Delete(name) = edit
            && !objects.iter().any(|object| object.name == *name)
        {
            return Err(ClusterPlanError::NothingToDelete(name.clone()));
        }
    }
    Ok(())
}
