//! A machine that has joined a control plane of `mco up`: who it is there, how it came in, and what a kubelet would do for it.
//!
//! Nothing here knows MachineConfigs beyond the first one a new machine takes from its pool; the agent does the rest.

mod exchange;
mod pin;
mod presence;
mod provision;
mod record;
mod run;

pub use exchange::{JoinError, join};
pub use pin::{Fingerprint, Invitation, InvitationError};
pub use provision::{ProvisionError, provision};
pub use record::{Membership, RecordError, kubeconfig};
pub use run::{MemberError, run};
