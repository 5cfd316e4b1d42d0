//! MachineSet and ControlPlaneMachineSet: templates from which machines of a cloud are created. The provider's part is
//! not typed.

use serde_json::{Map, Value};

use crate::resource::resource;

/// The spec of a machine template.
pub type MachineSetSpec = Map<String, Value>;

resource! {
    /// A template of machines, and how many of them exist.
    MachineSet, NamespaceResourceScope, "machine.openshift.io" / "v1beta1", "machinesets",
    spec: MachineSetSpec,
    unknown fields kept in extra
}

resource! {
    /// The template of the machines of the control plane.
    ControlPlaneMachineSet, NamespaceResourceScope, "machine.openshift.io" / "v1", "controlplanemachinesets",
    spec: MachineSetSpec,
    unknown fields kept in extra
}
