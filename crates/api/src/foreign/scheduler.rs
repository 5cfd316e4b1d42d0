//! Scheduler: whether user workloads run on the control plane. A cluster has one, named `cluster`.

use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// Whether user workloads run on the control plane.
    Scheduler, ClusterResourceScope, "config.openshift.io" / "v1", "schedulers",
    spec: SchedulerSpec,
    unknown fields kept in extra
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerSpec {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub masters_schedulable: bool,
    #[serde(flatten)]
    pub extra: Extra,
}
