//! Retries of commands that use the network, with exponential backoff.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::command::CommandError;

/// Waits between two attempts; tests record the delays instead.
pub trait Sleeper: fmt::Debug + Send + Sync {
    fn sleep(&self, delay: Duration);
}

/// Blocks the thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadSleeper;

impl Sleeper for ThreadSleeper {
    fn sleep(&self, delay: Duration) {
        std::thread::sleep(delay);
    }
}

/// How often a command is attempted, and how long to wait in between: `first`, doubled each time, up to `longest`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    pub attempts: u32,
    pub first: Duration,
    pub longest: Duration,
}

/// A registry that is restarted, or throttles, is back within a few minutes; a typing error costs only these.
pub(super) const REBASE: Backoff = Backoff {
    attempts: 5,
    first: Duration::from_secs(10),
    longest: Duration::from_mins(1),
};
pub(super) const PULL: Backoff = Backoff {
    attempts: 6,
    first: Duration::from_secs(5),
    longest: Duration::from_mins(1),
};

impl Backoff {
    /// Runs a command until it succeeds or the attempts are used up. A tool that is not installed is not retried.
    pub fn run<T>(
        &self,
        sleeper: &Arc<dyn Sleeper>,
        mut command: impl FnMut() -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let mut delay = self.first;
        for attempt in 1..self.attempts {
            match command() {
                Err(error @ (CommandError::Failed { .. } | CommandError::Unexpected { .. })) => {
                    tracing::warn!(%error, attempt, of = self.attempts, "retrying in {} s", delay.as_secs());
                }
                other => return other,
            }
            sleeper.sleep(delay);
            delay = delay.saturating_mul(2).min(self.longest);
        }
        command()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::Sleeper;

    /// Records the delays in seconds.
    #[derive(Debug, Default)]
    pub struct RecordedSleeper(Mutex<Vec<u64>>);

    impl RecordedSleeper {
        pub fn delays(&self) -> Vec<u64> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Sleeper for RecordedSleeper {
        fn sleep(&self, delay: Duration) {
            self.0.lock().unwrap().push(delay.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::RecordedSleeper;
    use super::*;

    fn failed() -> CommandError {
        CommandError::Failed {
            command: "x".to_owned(),
            code: Some(1),
            complaint: "no route to host".to_owned(),
        }
    }

    #[test]
    fn every_attempt_is_made_and_the_delays_grow_to_the_limit() {
        let recorded = Arc::new(RecordedSleeper::default());
        let sleeper: Arc<dyn Sleeper> = recorded.clone();
        let mut attempts = 0;
        let result: Result<(), _> = REBASE.run(&sleeper, || {
            attempts += 1;
            Err(failed())
        });
        assert!(result.is_err());
        assert_eq!((attempts, recorded.delays()), (5, vec![10, 20, 40, 60]));
    }

    #[test]
    fn success_and_a_missing_tool_end_the_attempts() {
        let recorded = Arc::new(RecordedSleeper::default());
        let sleeper: Arc<dyn Sleeper> = recorded.clone();
        let mut answers = vec![Ok(7), Err(failed())];
        assert_eq!(PULL.run(&sleeper, || answers.pop().unwrap()).unwrap(), 7);
        let missing = PULL.run(&sleeper, || -> Result<(), _> {
            Err(CommandError::Missing {
                program: "podman".to_owned(),
            })
        });
        assert!(missing.is_err());
        assert_eq!(recorded.delays(), [5]);
    }
}
