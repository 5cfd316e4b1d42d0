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
    if INLINE.load(Ordering::Relaxed) {
        return catch_panic(component, object, work);
    }
    mco_telemetry::export_panics_of(component);
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result),
        Err(ended) if ended.is_panic() => Err(panicked(component, object)),
        Err(_) => Err(BlockingWorkFailed {
            work: component,
            object,
        }),
    }
}

/// Runs work on the caller's thread, which is one of its own. A panic is counted and logged as by [`run_blocking`].
pub fn catch_panic<T>(
    component: &'static str,
    object: impl Into<String>,
    work: impl FnOnce() -> T,
) -> Result<T, BlockingWorkFailed> {
    mco_telemetry::export_panics_of(component);
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| panicked(component, object.into()))
}

fn panicked(component: &'static str, object: String) -> BlockingWorkFailed {
    mco_telemetry::count_panic(component);
    error!(component, object, "blocking work panicked");
    BlockingWorkFailed {
        work: component,
        object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_on_a_thread_of_its_own_is_counted() {
        assert_eq!(catch_panic("thread-test", "a", || 7), Ok(7));
        let failed = catch_panic("thread-test", "a", || -> u8 { panic!("broken") });
        assert_eq!(
            failed.unwrap_err().to_string(),
            "thread-test of a panicked; the log contains the cause"
        );
        assert_eq!(mco_telemetry::panics_of("thread-test"), 1);
    }

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
