//! Updates the boot images of machine templates, as [`mco_core::generators::boot_images`] decides, so that new machines
//! start with an OS close to the cluster's. Does nothing while the cluster is being updated.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::{Api, Resource};
use mco_api::MachineConfiguration;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::machine_set::{ControlPlaneMachineSet, MachineSet, MachineSetSpec};
use mco_api::machine_configuration::MACHINE_CONFIGURATION_NAME;
use mco_api::vocabulary::annotations;
use mco_api::vocabulary::names::{self, CLUSTER_VERSION, config_map};
use mco_core::generators::boot_images::installed_version;
use mco_core::generators::boot_images::machine_sets::{
    self, BootImageDecision, BootImageInputs, BootImageUpdate, MachineSetKind, MachineSetView,
};
use mco_core::generators::boot_images::managed::{self, CONTROL_PLANE_GATE};
use mco_core::generators::boot_images::report::{self, BootImageCounts, BootImageReport};
use mco_core::generators::user_data;
use mco_runtime::{FieldManager, Requeue, object_name, patch};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::context::Context;
use crate::error::Error;
use crate::feature_gates;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-boot-images");
const USER_DATA: &str = "userData";
const STREAM: &str = "stream";
const RELEASE: &str = "releaseVersion";
const COMPLETED: &str = "Completed";
const MULTI: &str = "Multi";
/// How often the same image is written to a template; another writer that reverts it has to be turned off.
const MOST_WRITES: u32 = 3;

/// The image that was last written to each template, and how often.
#[derive(Debug, Default)]
pub(crate) struct WrittenImages(Mutex<BTreeMap<(MachineSetKind, String), (Value, u32)>>);

impl WrittenImages {
    fn is_loop(&self, kind: MachineSetKind, name: &str, image: &Value) -> bool {
        let written = self.0.lock();
        let found = written.get(&(kind, name.to_owned()));
        found.is_some_and(|(last, times)| last == image && *times >= MOST_WRITES)
    }

    fn record(&self, kind: MachineSetKind, name: &str, image: &Value) {
        let mut written = self.0.lock();
        let entry = written.entry((kind, name.to_owned())).or_default();
        if entry.0 == *image {
            entry.1 += 1;
        } else {
            *entry = (image.clone(), 1);
        }
    }

    /// Begins again once no template of a kind is enrolled.
    fn clear(&self, kind: MachineSetKind) {
        self.0.lock().retain(|(of, _), _| *of != kind);
    }
}

/// One enrolled template.
struct Template {
    kind: MachineSetKind,
    metadata: ObjectMeta,
    spec: MachineSetSpec,
}

impl Template {
    fn name(&self) -> &str {
        object_name(&self.metadata)
    }
}

/// The objects that decide about every template.
struct BootImageSources {
    settings: Arc<MachineConfiguration>,
    platform: String,
    /// Of the MachineSets, then of the control plane.
    templates: Vec<Template>,
    stream: Result<Value, String>,
    release: String,
    installed: String,
    is_multi_architecture: bool,
}

/// Updates all enrolled templates. `reason` is the event that caused it, which the conditions name.
pub(crate) async fn reconcile(ctx: Arc<Context>, reason: String) -> Result<Requeue, Error> {
    let Some(sources) = gather(&ctx)? else {
        return Ok(Requeue::OnChange);
    };
    let mut report = BootImageReport::default();
    let mut updates = Vec::new();
    for template in &sources.templates {
        let decided = match &sources.stream {
            Ok(stream) => decide(&sources, stream, template),
            Err(why) => Err(why.clone()),
        };
        let counts = counts_of(&mut report, template.kind);
        counts.total += 1;
        match decided {
            Ok(BootImageDecision::Update(update)) => updates.push((template, update)),
            Ok(decision) => count(counts, template, &decision),
            Err(why) => counts.errors.push(failure(template, &why)),
        }
    }
    if !updates.is_empty() {
        write_status(&ctx, &sources, &report, &reason).await?;
    }
    for (template, update) in updates {
        let updated = apply(&ctx, template, &update).await;
        let counts = counts_of(&mut report, template.kind);
        match updated {
            Ok(()) => counts.processed += 1,
            Err(problem) => counts.errors.push(failure(template, &problem)),
        }
    }
    write_status(&ctx, &sources, &report, &reason).await?;
    match report
        .machine_sets
        .errors
        .first()
        .or(report.control_plane.errors.first())
    {
        Some(why) => Err(Error::Invalid(why.clone())),
        None => Ok(Requeue::OnChange),
    }
}

/// Returns `None` if boot images are not to be updated now.
fn gather(ctx: &Context) -> Result<Option<BootImageSources>, Error> {
    let Some(settings) = ctx.stores.machine_configurations.get(MACHINE_CONFIGURATION_NAME) else {
        return Ok(None);
    };
    let (Some(config), Some(version)) = (
        ctx.controller_config(),
        ctx.stores.cluster_versions.get(CLUSTER_VERSION),
    ) else {
        return Ok(None);
    };
    let control_plane = feature_gates::in_force(ctx).is_enabled(CONTROL_PLANE_GATE);
    let infrastructure = config.spec.infra.as_ref();
    let Some(choice) = managed::status(&settings, infrastructure, control_plane) else {
        return Ok(None);
    };
    if !is_stable(&version) {
        debug!("boot images are updated when the update of the cluster has completed");
        return Ok(None);
    }
    let mut templates = Vec::new();
    for kind in [MachineSetKind::MachineSet, MachineSetKind::ControlPlaneMachineSet] {
        let selector = managed::enrolled(Some(&choice.managed), kind).map_err(|problem| {
            Error::Invalid(format!("managedBootImages of {}: {problem}", kind.resource()))
        })?;
        let before = templates.len();
        if let Some(selector) = selector {
            let mut found = of_kind(ctx, kind);
            found.retain(|template| selector.matches(template.metadata.labels.as_ref()));
            templates.extend(found);
        }
        if templates.len() == before {
            ctx.written_images.clear(kind);
        }
    }
    let key = format!("{}/{}", names::NAMESPACE, config_map::BOOT_IMAGES);
    let images = ctx.stores.boot_images.get(&key);
    let entry = |name: &str| {
        let entries = images.as_ref()?.data.as_ref()?;
        entries.get(name).cloned()
    };
    let stream = entry(STREAM).ok_or_else(|| format!("ConfigMap {key} has no entry {STREAM}"));
    let stream = stream.and_then(|text| {
        serde_json::from_str(&text).map_err(|error| format!("ConfigMap {key}, entry {STREAM}: {error}"))
    });
    let platform = infrastructure
        .and_then(|infrastructure| infrastructure.status.as_ref()?.platform_status.as_ref())
        .map(|platform| platform.type_.clone());
    Ok(Some(BootImageSources {
        settings,
        platform: platform.unwrap_or_default(),
        templates,
        stream,
        release: entry(RELEASE).unwrap_or_default(),
        installed: installed_version(Some(&version)),
        is_multi_architecture: is_multi_architecture(&version),
    }))
}

/// Returns the templates of a kind, by name.
fn of_kind(ctx: &Context, kind: MachineSetKind) -> Vec<Template> {
    let template = |metadata: &ObjectMeta, spec: &MachineSetSpec| Template {
        kind,
        metadata: metadata.clone(),
        spec: spec.clone(),
    };
    let mut all: Vec<Template> = match kind {
        MachineSetKind::MachineSet => {
            let sets = ctx.stores.machine_sets.all();
            sets.iter()
                .map(|set| template(&set.metadata, &set.spec))
                .collect()
        }
        MachineSetKind::ControlPlaneMachineSet => {
            let sets = ctx.stores.control_plane_machine_sets.all();
            sets.iter()
                .map(|set| template(&set.metadata, &set.spec))
                .collect()
        }
    };
    all.retain(|template| template.metadata.deletion_timestamp.is_none());
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// Whether the last update of the cluster has completed.
pub(crate) fn is_stable(version: &ClusterVersion) -> bool {
    let last = version.status.as_ref().and_then(|status| status.history.first());
    last.is_some_and(|entry| entry.state == COMPLETED)
}

fn is_multi_architecture(version: &ClusterVersion) -> bool {
    let desired = version.status.as_ref().map(|status| &status.desired);
    let architecture = desired.and_then(|desired| desired.extra.get("architecture"));
    architecture.and_then(Value::as_str) == Some(MULTI)
}

fn decide(
    sources: &BootImageSources,
    stream: &Value,
    template: &Template,
) -> Result<BootImageDecision, String> {
    let view = MachineSetView {
        kind: template.kind,
        metadata: &template.metadata,
        spec: &template.spec,
    };
    let inputs = BootImageInputs {
        platform: &sources.platform,
        stream,
        is_multi_architecture: sources.is_multi_architecture,
        architecture: own_architecture(),
    };
    machine_sets::decide(view, &inputs).map_err(|error| error.to_string())
}

/// Returns the architecture of this process, which runs on the control plane, by the stream's name.
fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn counts_of(report: &mut BootImageReport, kind: MachineSetKind) -> &mut BootImageCounts {
    match kind {
        MachineSetKind::MachineSet => &mut report.machine_sets,
        MachineSetKind::ControlPlaneMachineSet => &mut report.control_plane,
    }
}

fn count(counts: &mut BootImageCounts, template: &Template, decision: &BootImageDecision) {
    counts.processed += 1;
    let name = template.name();
    match decision {
        BootImageDecision::Skipped(why) => {
            counts.skipped += 1;
            info!(
                "the boot image of {} {name} is not updated: {why}",
                template.kind.resource()
            );
        }
        BootImageDecision::NotExamined(why) => {
            counts.skipped += 1;
            counts.not_examined += 1;
            info!(
                "the boot image of {} {name} is not updated: {why}",
                template.kind.resource()
            );
        }
        BootImageDecision::OutOfScope(why) => debug!("boot image of {name}: {why}"),
        BootImageDecision::Current | BootImageDecision::Update(_) => {}
    }
}

fn failure(template: &Template, why: &str) -> String {
    let kind = match template.kind {
        MachineSetKind::MachineSet => "machineset",
        MachineSetKind::ControlPlaneMachineSet => "controlplanemachineset",
    };
    format!("failed to reconcile {kind} {}, err: {why}", template.name())
}

/// Converts the pointer config of the template's machines if the new image needs it, then replaces the image.
async fn apply(ctx: &Context, template: &Template, update: &BootImageUpdate) -> Result<(), String> {
    let (kind, name) = (template.kind, template.name());
    if ctx.written_images.is_loop(kind, name, &update.provider_spec) {
        return Err(format!(
            "refusing to reconcile machineset {name}, hot loop detected. Please opt-out of boot image updates, adjust your \
             machine provisioning workflow to prevent hot loops and opt back in to resume boot image updates"
        ));
    }
    upgrade_pointer(ctx, &update.user_data_secret).await?;
    let changed = machine_sets::with_provider_spec(kind, &template.spec, &update.provider_spec);
    // The version makes a concurrent write win; the watch then starts another reconcile.
    let patch = json!({
        "metadata": {"resourceVersion": template.metadata.resource_version},
        "spec": patch::diff(&template.spec, &changed),
    });
    match kind {
        MachineSetKind::MachineSet => {
            let api = machine_api::<MachineSet>(ctx);
            let written = ctx.stores.machine_sets.patch(&api, name, MANAGER, &patch).await;
            written.map(|_| ())
        }
        MachineSetKind::ControlPlaneMachineSet => {
            let api = machine_api::<ControlPlaneMachineSet>(ctx);
            let store = &ctx.stores.control_plane_machine_sets;
            store.patch(&api, name, MANAGER, &patch).await.map(|_| ())
        }
    }
    .map_err(|problem| format!("writing it: {}", mco_runtime::describe(&problem)))?;
    ctx.written_images.record(kind, name, &update.provider_spec);
    info!("the boot image of {} {name} is updated", kind.resource());
    Ok(())
}

fn machine_api<K>(ctx: &Context) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(ctx.client.clone(), names::MACHINE_API_NAMESPACE)
}

/// Converts the pointer config in a Secret to a version that new boot images support. Machines of other templates that
/// use the same Secret are not affected: images since 4.6 support it.
async fn upgrade_pointer(ctx: &Context, name: &str) -> Result<(), String> {
    let secrets = machine_api::<Secret>(ctx);
    let secret = secrets.get(name).await;
    let secret =
        secret.map_err(|problem| format!("reading Secret {name}: {}", mco_runtime::describe(&problem)))?;
    let found = secret.data.as_ref().and_then(|data| data.get(USER_DATA));
    let found = found.ok_or_else(|| format!("Secret {name} has no {USER_DATA}"))?;
    let upgraded = user_data::upgraded(&found.0)
        .map_err(|problem| format!("converting the Ignition config in Secret {name}: {problem}"))?;
    let Some(upgraded) = upgraded else {
        return Ok(());
    };
    let patch = json!({
        "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "annotations": {
                annotations::STUB_UPGRADED_TO: user_data::UPGRADED_TO.to_string(),
                annotations::STUB_UPGRADED_AT: ctx.time(),
            },
        },
        "data": {USER_DATA: ByteString(upgraded)},
    });
    let written = patch::merge(&secrets, name, MANAGER, &patch).await;
    written.map_err(|problem| format!("writing Secret {name}: {}", mco_runtime::describe(&problem)))?;
    info!(
        "converted the Ignition config in Secret {name} to {}",
        user_data::UPGRADED_TO
    );
    Ok(())
}

/// Writes the conditions, and the version that all templates have at least.
async fn write_status(
    ctx: &Context,
    sources: &BootImageSources,
    report: &BootImageReport,
    reason: &str,
) -> Result<(), Error> {
    let name = MACHINE_CONFIGURATION_NAME;
    let store = &ctx.stores.machine_configurations;
    let settings = store.get(name).unwrap_or_else(|| Arc::clone(&sources.settings));
    let before = settings.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.conditions = report::conditions(&before.conditions, report, reason, &ctx.time());
    let is_finished = report.machine_sets.total == report.machine_sets.processed;
    let record = report::skew_record(
        before.boot_image_skew_enforcement_status.as_ref(),
        &report.machine_sets,
        &sources.release,
        &sources.installed,
    );
    if let (true, Some(record), Some(enforced)) = (
        is_finished,
        record,
        after.boot_image_skew_enforcement_status.as_mut(),
    ) {
        enforced.automatic = Some(record);
    }
    if after == before {
        return Ok(());
    }
    let patch = json!({"status": patch::diff(&before, &after)});
    let written = store.patch_status(&ctx.api(), name, MANAGER, &patch).await;
    if written
        .map_err(Error::api("writing the status of the MachineConfiguration"))?
        .is_none()
    {
        warn!("MachineConfiguration {name} does not exist any more");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_another_writer_reverts_is_not_written_for_ever() {
        let written = WrittenImages::default();
        let (kind, image) = (MachineSetKind::MachineSet, json!({"image": "new"}));
        for _ in 0..MOST_WRITES {
            assert!(!written.is_loop(kind, "a", &image));
            written.record(kind, "a", &image);
        }
        assert!(written.is_loop(kind, "a", &image));
        assert!(
            !written.is_loop(kind, "a", &json!({"image": "newer"})),
            "another image is no loop"
        );
        assert!(!written.is_loop(MachineSetKind::ControlPlaneMachineSet, "a", &image));
        written.clear(kind);
        assert!(
            !written.is_loop(kind, "a", &image),
            "the administrator has opted out and in again"
        );
    }
}
