//! Condition types and statuses, and how a list of conditions is read and changed.

pub mod pool;

/// The statuses a condition can have.
pub mod status {
    pub const TRUE: &str = "True";
    pub const FALSE: &str = "False";
    pub const UNKNOWN: &str = "Unknown";
}

/// Types of a ControllerConfig's conditions.
pub mod controller_config {
    pub const TEMPLATE_CONTROLLER_RUNNING: &str = "TemplateControllerRunning";
    pub const TEMPLATE_CONTROLLER_COMPLETED: &str = "TemplateControllerCompleted";
    pub const TEMPLATE_CONTROLLER_FAILING: &str = "TemplateControllerFailing";
}
