//! On-cluster builds of OS images: what is built, under which name, from which objects, and what a change of a pool
//! or of its MachineOSConfig means for its builds. Pure; the builder gathers the inputs and writes the results.

mod architecture;
mod containerfile;
mod credentials;
mod decision;
mod identity;
mod job;
mod objects;
mod offline;
mod rebuild;
mod reference;
mod retention;
mod status;
mod syntax;

pub use architecture::{Architecture, content_for, of_nodes};
pub use containerfile::{ComposeError, compose};
pub use credentials::{CredentialsError, canonical_credentials, empty_credentials, validate_secret};
pub use decision::{BuildStep, BuildView, ImagePresence, RegistryAnswers, RenderedView, decide};
pub use identity::{IdentityError, machine_os_build, name as build_name};
pub use job::{BUILD_COMMAND, DIGEST_COMMAND, InputPaths};
pub use objects::{BuildError, BuildInputs, BuildObjects, objects};
pub use offline::{OfflineBuild, OfflineObjects, plan as plan_offline};
pub use rebuild::{ImageInputs, RebuildReason, rebuild_reason};
pub use reference::{ImageReference, ReferenceError};
pub use retention::{RetainedBuilds, prune};
pub use status::{
    BuildState, JobView, build_state, conditions as status_conditions, job_state, may_change,
    with_state as status_with_state,
};
pub use syntax::{SyntaxProblem, check as check_syntax};
