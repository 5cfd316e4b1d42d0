//! A machine that has joined a control plane of `mco up`: its identity, the join request, and the parts of a kubelet it
//! needs.
//!
//! Nothing here depends on MachineConfigs beyond the first one that a new machine gets from its pool; the agent does
//! the rest.

mod exchange;
mod pin;
mod presence;
mod provision;
mod record;
mod run;

pub use exchange::{JoinError, join};
pub use pin::{CaFingerprint, Invitation, InvitationError};
pub use provision::{ProvisionError, provision};
pub use record::{MemberRecord, RecordError, kubeconfig};
pub use run::{MemberError, run};
