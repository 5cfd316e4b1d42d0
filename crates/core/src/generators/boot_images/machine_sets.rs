//! Boot image updates: which machine templates get the boot image of the cluster's release, and what changes in each.
//!
//! An image that is not the vendor's own is the administrator's choice and is not replaced.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::azure;
use super::stream::StreamArchitecture;

/// The stream of templates without another choice, whose images are updated.
const SUPPORTED_STREAM: &str = "rhel-9";
const STREAM_LABEL: &str = "machineconfiguration.openshift.io/osstream";
const OS_LABEL: &str = "machine.openshift.io/os-id";
const WINDOWS: &str = "Windows";
/// Labels that the autoscaler expects on nodes of a template, separated by commas.
const AUTOSCALER_LABELS: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";
const ARCHITECTURE_LABEL: &str = "kubernetes.io/arch=";
/// The images of the vendor on GCP.
const GCP_IMAGES: &str = "projects/rhcos-cloud/global/images";
/// Where a ControlPlaneMachineSet has the template of its machines.
const CONTROL_PLANE_TEMPLATE: &str = "machines_v1beta1_machine_openshift_io";

/// The kinds of machine templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineSetKind {
    MachineSet,
    ControlPlaneMachineSet,
}

impl MachineSetKind {
    /// Returns the resource by which a MachineConfiguration selects templates of this kind.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MachineSet => "machinesets",
            Self::ControlPlaneMachineSet => "controlplanemachinesets",
        }
    }

    /// Returns the members of the spec that lead to the machine's own template.
    fn template(self) -> &'static [&'static str] {
        match self {
            Self::MachineSet => &["template"],
            Self::ControlPlaneMachineSet => &["template", CONTROL_PLANE_TEMPLATE],
        }
    }
}

/// A machine template.
#[derive(Debug, Clone, Copy)]
pub struct MachineSetView<'a> {
    pub kind: MachineSetKind,
    pub metadata: &'a ObjectMeta,
    pub spec: &'a Map<String, Value>,
}

/// What decides about the image of a template.
#[derive(Debug, Clone, Copy)]
pub struct BootImageInputs<'a> {
    /// The platform of the Infrastructure.
    pub platform: &'a str,
    /// The metadata of the release's boot images.
    pub stream: &'a Value,
    /// Nodes of several architectures are possible.
    pub is_multi_architecture: bool,
    /// The architecture of the control plane, in the stream's terms.
    pub architecture: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootImageDecision {
    /// Not managed, and not counted as left out.
    OutOfScope(&'static str),
    /// Left out: its image may be older than the release's.
    Skipped(String),
    /// Left out, because its image cannot be examined. It may be the release's.
    NotExamined(&'static str),
    Current,
    Update(Box<BootImageUpdate>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootImageUpdate {
    /// The provider's part of the template.
    pub provider_spec: Value,
    /// The Secret with the pointer config of its machines, which must have a version that the new image supports.
    pub user_data_secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BootImageError {
    #[error("invalid architecture value found in annotation: {0}")]
    Architecture(String),
    #[error("kubernetes.io/arch label not found in annotation: {0}")]
    NoArchitecture(String),
    #[error("providerSpec field was empty")]
    NoProviderSpec,
    #[error("the boot images of the release have no architecture {0}")]
    NoStream(String),
    #[error("the boot images of the release have no image for {0}")]
    NoImage(&'static str),
    #[error("could not determine azure marketplace variant, cannot update boot images")]
    UnknownVariant,
    #[error("no Azure marketplace images available for {0}")]
    NoVariant(String),
    #[error("providerSpec.userDataSecret names no Secret")]
    NoUserData,
}

/// Decides about the boot image of one template.
pub fn decide(
    set: MachineSetView<'_>,
    inputs: &BootImageInputs<'_>,
) -> Result<BootImageDecision, BootImageError> {
    let decision = decide_counted(set, inputs)?;
    Ok(match decision {
        // The control plane's template never counts as left out.
        BootImageDecision::Skipped(_) | BootImageDecision::NotExamined(_)
            if set.kind == MachineSetKind::ControlPlaneMachineSet =>
        {
            BootImageDecision::OutOfScope("its image is not the vendor's")
        }
        other => other,
    })
}

fn decide_counted(
    set: MachineSetView<'_>,
    inputs: &BootImageInputs<'_>,
) -> Result<BootImageDecision, BootImageError> {
    let owner = set.metadata.owner_references.iter().flatten().next();
    if let Some(owner) = owner {
        let owner = format!("{}/{}", owner.kind, owner.name);
        return Ok(BootImageDecision::Skipped(format!("it belongs to {owner}")));
    }
    let label = |key: &str| set.metadata.labels.as_ref()?.get(key).map(String::as_str);
    if label(STREAM_LABEL).is_some_and(|stream| stream != SUPPORTED_STREAM) {
        return Ok(BootImageDecision::OutOfScope("it has another OS stream"));
    }
    let template = set.kind.template().iter().try_fold(set.spec, |value, member| {
        value.get(*member).and_then(Value::as_object)
    });
    let template = template.ok_or(BootImageError::NoProviderSpec)?;
    let at = |pointer: &str| {
        template
            .get("metadata")
            .and_then(|metadata| metadata.pointer(pointer))
    };
    let os = at("/labels")
        .and_then(|labels| labels.get(OS_LABEL))
        .and_then(Value::as_str);
    if os == Some(WINDOWS) {
        return Ok(BootImageDecision::OutOfScope("its machines run Windows"));
    }
    let Some(architecture) = architecture(set, inputs)? else {
        let why = "the cluster has several architectures, and its annotation names none";
        return Ok(BootImageDecision::Skipped(why.to_owned()));
    };
    let spec = template
        .get("spec")
        .and_then(|spec| spec.pointer("/providerSpec/value"));
    let spec = spec
        .filter(|spec| spec.is_object())
        .ok_or(BootImageError::NoProviderSpec)?;
    let of_architecture = || {
        StreamArchitecture::of(inputs.stream, architecture)
            .ok_or_else(|| BootImageError::NoStream(architecture.to_owned()))
    };
    match inputs.platform {
        "GCP" => gcp(spec, of_architecture()?),
        "Azure" => azure::decide(spec, architecture, of_architecture),
        "AWS" => Ok(aws(spec, of_architecture()?)),
        "VSphere" => Ok(BootImageDecision::NotExamined(
            "templates of virtual machines are not replaced",
        )),
        _ => Ok(BootImageDecision::OutOfScope(
            "boot images of this platform are not updated",
        )),
    }
}

/// Returns the architecture of a template's machines; `None` if it has to name one and does not.
fn architecture<'a>(
    set: MachineSetView<'_>,
    inputs: &BootImageInputs<'a>,
) -> Result<Option<&'a str>, BootImageError> {
    // All machines of the control plane are alike.
    if set.kind == MachineSetKind::ControlPlaneMachineSet {
        return Ok(Some(inputs.architecture));
    }
    let annotations = set.metadata.annotations.as_ref();
    let Some(labels) = annotations.and_then(|annotations| annotations.get(AUTOSCALER_LABELS)) else {
        return Ok((!inputs.is_multi_architecture).then_some(inputs.architecture));
    };
    let named = labels
        .split(',')
        .find_map(|label| label.trim().strip_prefix(ARCHITECTURE_LABEL));
    let named = named.ok_or_else(|| BootImageError::NoArchitecture(labels.clone()))?;
    match named {
        "amd64" => Ok(Some("x86_64")),
        "arm64" => Ok(Some("aarch64")),
        "s390x" => Ok(Some("s390x")),
        "ppc64le" => Ok(Some("ppc64le")),
        other => Err(BootImageError::Architecture(other.to_owned())),
    }
}

fn gcp(spec: &Value, stream: StreamArchitecture<'_>) -> Result<BootImageDecision, BootImageError> {
    let image = stream.gcp().ok_or(BootImageError::NoImage("GCP"))?;
    let mut wanted = spec.clone();
    let disks = wanted.get_mut("disks").and_then(Value::as_array_mut);
    let boot = |disk: &&mut Value| disk.get("boot").and_then(Value::as_bool) == Some(true);
    for disk in disks.into_iter().flatten().filter(boot) {
        let found = disk.get("image").and_then(Value::as_str).unwrap_or_default();
        if found == image {
            continue;
        }
        if !found.starts_with(GCP_IMAGES) {
            return Ok(BootImageDecision::Skipped(format!(
                "its image {found:?} is not the vendor's"
            )));
        }
        disk["image"] = json!(image);
    }
    update(spec, wanted)
}

/// Which AMIs are the vendor's own is known only to EC2, so only the image of this release is recognised.
fn aws(spec: &Value, stream: StreamArchitecture<'_>) -> BootImageDecision {
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str);
    let Some(id) = text("/ami/id") else {
        return BootImageDecision::Skipped("its AMI is not named by its ID".to_owned());
    };
    let current = stream.aws(text("/placement/region").unwrap_or_default());
    match current {
        Some(image) if image == id => BootImageDecision::Current,
        _ => BootImageDecision::NotExamined("who publishes its AMI is known only to EC2, which is not asked"),
    }
}

/// Returns the decision for a template with this wanted provider's part.
pub(super) fn update(spec: &Value, wanted: Value) -> Result<BootImageDecision, BootImageError> {
    if wanted == *spec {
        return Ok(BootImageDecision::Current);
    }
    let secret = spec.pointer("/userDataSecret/name").and_then(Value::as_str);
    let secret = secret
        .filter(|name| !name.is_empty())
        .ok_or(BootImageError::NoUserData)?;
    Ok(BootImageDecision::Update(Box::new(BootImageUpdate {
        provider_spec: wanted,
        user_data_secret: secret.to_owned(),
    })))
}

/// Returns the spec of a template with another provider's part.
pub fn with_provider_spec(kind: MachineSetKind, spec: &Map<String, Value>, provider_spec: &Value) -> Value {
    let mut changed = Value::Object(spec.clone());
    let mut at = &mut changed;
    for member in kind.template().iter().chain(&["spec", "providerSpec"]) {
        at = &mut at[*member];
    }
    at["value"] = provider_spec.clone();
    changed
}

#[cfg(test)]
mod tests;
