//! A thread that watches the machine's files while the agent is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mco_host::Machine;
use tokio::sync::mpsc;

use crate::config::NodeConfig;
use crate::drift::{Monitor, Watch};
use crate::validate::{Mismatch, validate};

/// How soon the thread notices that it is no longer needed.
const PULSE: Duration = Duration::from_millis(500);
/// How often everything is compared even if nothing was seen to change, in pulses.
const FULL_COMPARISON: u32 = 20 * 60;

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct Sentry {
    pub config: String,
    stop: Arc<AtomicBool>,
}

impl Sentry {
    pub fn post(machine: Arc<Machine>, config: NodeConfig, drifted: mpsc::Sender<Vec<Mismatch>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sentry = Self {
            config: config.name().to_owned(),
            stop: Arc::clone(&stop),
        };
        std::thread::spawn(move || {
            if let Err(error) = watch(&machine, &config, &stop, &drifted) {
                tracing::warn!(%error, "files are no longer watched");
            }
        });
        sentry
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn watch(
    machine: &Machine,
    config: &NodeConfig,
    stop: &AtomicBool,
    drifted: &mpsc::Sender<Vec<Mismatch>>,
) -> Result<(), crate::drift::DriftError> {
    let mut monitor = Monitor::start(machine, config)?;
    let mut pulses = 0;
    while !stop.load(Ordering::Relaxed) && !drifted.is_closed() {
        pulses += 1;
        let found = match monitor.wait(PULSE)? {
            Watch::Drifted(found) => found,
            Watch::Quiet if pulses.is_multiple_of(FULL_COMPARISON) => validate(machine, config)?,
            Watch::Quiet | Watch::Intact => Vec::new(),
        };
        // Nobody listens any more if sending fails; the loop ends by itself.
        if !found.is_empty() && !stop.load(Ordering::Relaxed) && drifted.blocking_send(found).is_err() {
            break;
        }
    }
    Ok(())
}
