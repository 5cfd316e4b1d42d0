//! The feature gates in force.

use mco_api::vocabulary::names;
use mco_core::config::feature_gates::FeatureGates;
use mco_core::rollout::image_mode_status::ImageModeStatus;

use crate::context::Context;

/// Returns the feature gates of the cluster's release; none while it is not known which they are, which the template
/// controller reports.
pub(crate) fn in_force(ctx: &Context) -> FeatureGates {
    let object = ctx.stores.feature_gates.get(names::SINGLETON);
    let (Some(object), Some(config)) = (object, ctx.controller_config()) else {
        return FeatureGates::default();
    };
    FeatureGates::in_force(Some(&object), &config, ctx.options.release_version.as_deref()).unwrap_or_default()
}

pub(crate) fn image_mode_status(ctx: &Context) -> ImageModeStatus {
    ImageModeStatus::of_gates(&in_force(ctx))
}
