//! Boot images on Azure: images of the marketplace, by plan and generation of the hypervisor.

use serde_json::{Value, json};

use super::machine_sets::{BootImageDecision, BootImageError, update};
use super::stream::StreamArchitecture;

/// The publisher of the images without a purchase plan.
const FREE_PUBLISHER: &str = "azureopenshift";
const FREE: &str = "no-purchase-plan";
const FREE_TYPE: &str = "MarketplaceNoPlan";
const PAID_TYPE: &str = "MarketplaceWithPlan";
/// Publisher and offer of paid images, and the plan in the stream.
const PLANS: [(&str, &str, &str); 6] = [
    ("redhat", "rh-ocp-worker", "ocp"),
    ("redhat", "rh-opp-worker", "opp"),
    ("redhat", "rh-oke-worker", "oke"),
    ("redhat-limited", "rh-ocp-worker", "ocp-emea"),
    ("redhat-limited", "rh-opp-worker", "opp-emea"),
    ("redhat-limited", "rh-oke-worker", "oke-emea"),
];

/// The image of a template.
struct AzureImage<'a> {
    publisher: &'a str,
    offer: &'a str,
    sku: &'a str,
    type_: &'a str,
    /// Set for an image that the installer uploaded.
    resource_id: &'a str,
}

pub(super) fn decide<'s>(
    spec: &Value,
    architecture: &str,
    stream: impl FnOnce() -> Result<StreamArchitecture<'s>, BootImageError>,
) -> Result<BootImageDecision, BootImageError> {
    if matches!(architecture, "ppc64le" | "s390x") {
        return Ok(BootImageDecision::OutOfScope(
            "Azure has no images for its architecture",
        ));
    }
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if !text("/securityProfile/settings/securityType").is_empty() {
        return Ok(BootImageDecision::OutOfScope("its machines have a security type"));
    }
    let found = AzureImage {
        publisher: text("/image/publisher"),
        offer: text("/image/offer"),
        sku: text("/image/sku"),
        type_: text("/image/type"),
        resource_id: text("/image/resourceID"),
    };
    let plan = found.plan().ok_or(BootImageError::UnknownVariant)?;
    let Some(marketplace) = stream()?.azure() else {
        return Ok(BootImageDecision::Skipped(
            "the release has no images in the marketplace".to_owned(),
        ));
    };
    let generation = if found.is_second_generation(architecture) {
        "hyperVGen2"
    } else {
        "hyperVGen1"
    };
    let image = marketplace.get(plan).and_then(|plan| plan.get(generation));
    let image = image.ok_or_else(|| BootImageError::NoVariant(format!("{plan}, {generation}")))?;
    let target = json!({
        "offer": image["offer"],
        "publisher": image["publisher"],
        "resourceID": "",
        "sku": image["sku"],
        "version": image["version"],
        "type": if plan == FREE { FREE_TYPE } else { PAID_TYPE },
    });
    let is_same = ["offer", "publisher", "sku", "version", "type", "resourceID"]
        .iter()
        .all(|member| text(&format!("/image/{member}")) == target[*member].as_str().unwrap_or_default());
    if is_same {
        return Ok(BootImageDecision::Current);
    }
    let mut wanted = spec.clone();
    wanted["image"] = target;
    update(spec, wanted)
}

impl AzureImage<'_> {
    /// Returns the plan in the stream. An uploaded image is replaced by one without a plan.
    fn plan(&self) -> Option<&'static str> {
        if !self.resource_id.is_empty() || self.publisher == FREE_PUBLISHER {
            return Some(FREE);
        }
        let mut plans = PLANS.iter();
        let plan = plans.find(|(publisher, offer, _)| (self.publisher, self.offer) == (*publisher, *offer));
        plan.map(|(_, _, plan)| *plan)
    }

    fn is_second_generation(&self, architecture: &str) -> bool {
        if !self.resource_id.is_empty() {
            self.resource_id.contains("gen2")
        } else if self.type_ == FREE_TYPE {
            self.sku.contains("v2") || architecture == "aarch64"
        } else {
            !self.sku.contains("gen1")
        }
    }
}
