//! The controller runtime: watching, reconciling, writing and reporting, independent of resource types.
//!
//! | module | purpose |
//! |---|---|
//! | [`Store`] | a reflector with write-through: one watch per kind, and the responses of the component's own writes |
//! | [`with_backoff`] | the events of a watch, with a growing pause between failed attempts |
//! | [`Queue`] | a work queue with debouncing, rate limits and exponential backoff |
//! | [`Lenient`] | an object of a list or watch that is left out and reported if it cannot be decoded |
//! | [`run_worker`] | runs a reconciler over its queue, with bounded concurrency and isolation of panics |
//! | [`run_blocking`] | CPU-bound work on its own thread, with isolation of panics |
//! | [`EventRecorder`] | writes Kubernetes events in the background, without repetitions |
//! | [`patch`] | merge patches with a mandatory [`FieldManager`] |
//! | [`ErrorClass`], [`is_not_found`] | what an API error means for the next attempt |
//! | [`leader`] | leader election by Lease |
//!
//! It depends on no resource type of this project. Why it exists beside kube-runtime is recorded in
//! `docs/decisions/0006-controller-runtime.md`.

mod blocking;
mod error;
mod events;
mod jitter;
pub mod leader;
mod lenient;
pub mod patch;
mod queue;
mod reflected;
mod store;
mod watch_backoff;
mod worker;

pub use blocking::{BlockingWorkFailed, catch_panic, run_blocking, run_blocking_inline};
pub use error::{ErrorClass, describe, is_already_exists, is_conflict, is_not_found};
pub use events::{EventQueue, EventRecorder, EventType, EventWriter, Repeats};
pub use lenient::{Lenient, LenientList, UnreadableObject, list_lenient};
pub use patch::FieldManager;
pub use queue::{Debounce, Queue, Requeue};
pub use reflected::Reflected;
pub use store::{ObjectChange, Store, object_key, object_name};
pub use watch_backoff::with_backoff;
pub use worker::{ReconcileError, run_worker};
