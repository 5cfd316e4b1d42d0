//! Status messages about pinned images.

use std::collections::BTreeSet;

use kube::api::Api;
use mco_api::MachineConfigNode;
use mco_core::rollout::pinned_images_on_node::{ImageSet, Keeping, SetReport, SetState};

use super::report::{self, StatusWrite};
use crate::images::ImagesError;

/// Reports the state of pinned images in one node's `MachineConfigNode`.
pub(super) struct PinnedImageStatus {
    all: Api<MachineConfigNode>,
    node: String,
}

impl PinnedImageStatus {
    pub fn new(client: kube::Client, node: String) -> Self {
        Self {
            all: Api::all(client),
            node,
        }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    pub async fn kept(&self, wanted: &[ImageSet]) -> StatusWrite {
        let message = match wanted.len() {
            0 => "No images to pin".to_owned(),
            1 => "All images of the set are pulled and pinned".to_owned(),
            count => format!("All images of {count} sets are pulled and pinned"),
        };
        let reports = reports(wanted, |_| SetState::Kept);
        self.report(&Keeping::Done { message }, &reports).await
    }

    pub async fn prefetching(
        &self,
        wanted: &[ImageSet],
        present: &BTreeSet<String>,
        missing: usize,
    ) -> StatusWrite {
        let all = missing + present.len();
        let message = format!("Pre-pulling {missing} of {all} images");
        let reports = reports(wanted, |set| awaited(set, present));
        self.report(&Keeping::Prefetching { message }, &reports).await
    }

    pub async fn awaiting_node(&self, wanted: &[ImageSet], present: &BTreeSet<String>) -> StatusWrite {
        let message = "Waiting for the node to be Ready before pulling images".to_owned();
        let reports = reports(wanted, |set| awaited(set, present));
        self.report(&Keeping::Prefetching { message }, &reports).await
    }

    /// Reports a failure that concerns no image in particular.
    pub async fn failed_altogether(&self, wanted: &[ImageSet], error: &ImagesError) -> StatusWrite {
        let text = error.to_string();
        tracing::warn!(node = self.node, error = text, "could not pin images");
        let failed = |_: &ImageSet| SetState::Failed { error: text.clone() };
        let keeping = Keeping::Failed {
            message: text.clone(),
        };
        self.report(&keeping, &reports(wanted, failed)).await
    }

    /// Reports the sets with missing images as failed; `why` returns the cause for the first missing image of each.
    pub async fn failed(
        &self,
        wanted: &[ImageSet],
        present: &BTreeSet<String>,
        why: impl Fn(&str) -> String,
    ) -> StatusWrite {
        let reports = reports(wanted, |set| failed(set, present, &why));
        let failures: Vec<String> = reports
            .iter()
            .filter_map(|report| match &report.state {
                SetState::Failed { error } => Some(format!("PinnedImageSet {}: {error}", report.name)),
                SetState::Kept | SetState::Awaited => None,
            })
            .collect();
        let message = failures.join("; ");
        tracing::warn!(node = self.node, error = message, "could not pin images");
        self.report(&Keeping::Failed { message }, &reports).await
    }

    async fn report(&self, keeping: &Keeping, sets: &[SetReport]) -> StatusWrite {
        report::write_status(&self.all, &self.node, keeping, sets).await
    }
}

fn reports(sets: &[ImageSet], state: impl Fn(&ImageSet) -> SetState) -> Vec<SetReport> {
    let report = |set: &ImageSet| SetReport {
        name: set.name.clone(),
        generation: set.generation,
        state: state(set),
    };
    sets.iter().map(report).collect()
}

fn awaited(set: &ImageSet, present: &BTreeSet<String>) -> SetState {
    if set.images.is_subset(present) {
        SetState::Kept
    } else {
        SetState::Awaited
    }
}

/// Returns the first missing image with its cause, and the number of further ones.
fn failed(set: &ImageSet, present: &BTreeSet<String>, why: impl Fn(&str) -> String) -> SetState {
    let mut missing = set.images.difference(present);
    let Some(first) = missing.next() else {
        return SetState::Kept;
    };
    let more = match missing.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    SetState::Failed {
        error: format!("image {first}: {}{more}", why(first)),
    }
}
