//! CPU-bound work away from the threads that serve requests and watches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;
use tracing::error;

static INLINE: AtomicBool = AtomicBool::new(false);

/// Makes all later [`run_blocking`] of this process work on the caller's thread, for deterministic simulations.
pub fn run_blocking_inline() {
    INLINE.store(true, Ordering::Relaxed);
}

/// Work that panicked or was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{work} of {object} panicked; the log contains the cause")]
pub struct BlockingWorkFailed {
    work: &'static str,
    object: String,
}

/// Runs CPU-bound work on a thread for blocking work and returns its result. A panic is counted as one of `component`
/// and logged with the object.
pub async fn run_blocking<T: Send + 'static>(
    component: &'static str,
    object: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingWorkFailed> {
    let object = object.into();
    mco_telemetry::export_panics_of(component);
    let outcome = if INLINE.load(Ordering::Relaxed) {
        catch_unwind(AssertUnwindSafe(work)).map_err(|_| true)
    } else {
        let outcome = tokio::task::spawn_blocking(work).await;
        outcome.map_err(|ended| ended.is_panic())
    };
    match outcome {
        Ok(result) => Ok(result),
        Err(is_panic) => {
            if is_panic {
                mco_telemetry::count_panic(component);
                error!(component, object, "CPU-bound work panicked");
            }
            Err(BlockingWorkFailed {
                work: component,
                object,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_blocking_work_is_counted_and_names_its_object() {
        assert_eq!(run_blocking("blocking-test", "a", || 7).await, Ok(7));
        let failed = run_blocking("blocking-test", "pool \"worker\"", || -> u8 { panic!("broken") }).await;
        assert_eq!(
            failed.unwrap_err().to_string(),
            "blocking-test of pool \"worker\" panicked; the log contains the cause"
        );
        assert_eq!(mco_telemetry::panics_of("blocking-test"), 1);
    }
}
