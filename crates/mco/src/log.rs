//! The log of a component, and how much it tells. Levels can change while it runs.

use mco_api::machine_configuration::LogLevel;
use mco_operator::LogLevels;
use mco_operator::manifests::LOG_LEVEL_VARIABLE;
use tokio::sync::watch;
use tracing::info;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// What all targets of ours begin with.
const OURS: &str = "mco";

/// A log that has begun.
pub struct Log {
    filter: reload::Handle<Targets, Registry>,
}

impl Log {
    /// Starts the log of a component, at the level that its environment names.
    pub fn start<Writer>(writer: Writer) -> Self
    where
        Writer: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let level = std::env::var(LOG_LEVEL_VARIABLE).unwrap_or_default();
        let (filter, handle) = reload::Layer::new(told(LogLevel::named(&level)));
        let lines = fmt::layer()
            .with_ansi(false)
            .with_target(false)
            .with_writer(writer);
        registry().with(filter).with(lines).init();
        Self { filter: handle }
    }

    /// Logs as much as the cluster says, for ever.
    pub async fn follow(self, mut levels: watch::Receiver<LogLevels>, own: fn(LogLevels) -> LogLevel) {
        while levels.changed().await.is_ok() {
            let level = own(*levels.borrow_and_update());
            info!("the log level is {}", level.name());
            // Fails only if the log is gone, and then nobody misses it.
            let _ = self.filter.reload(told(level));
        }
    }
}

/// Libraries tell less than we do at every level: their traces can contain what they carry, secrets among it.
fn told(level: LogLevel) -> Targets {
    let (ours, others) = match level {
        LogLevel::Normal => (LevelFilter::INFO, LevelFilter::INFO),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::INFO),
        LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::INFO),
        LogLevel::TraceAll => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    Targets::new().with_default(others).with_target(OURS, ours)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn what_is_told_depends_on_the_level_and_on_who_tells() {
        for (level, own_debug, own_trace, others_debug) in [
            (LogLevel::Normal, false, false, false),
            (LogLevel::Debug, true, false, false),
            (LogLevel::Trace, true, true, false),
            (LogLevel::TraceAll, true, true, true),
        ] {
            let told = told(level);
            let (own, other) = ("mco_controllers::rollout", "hyper::client");
            assert!(told.would_enable(own, &Level::INFO) && told.would_enable(other, &Level::INFO));
            assert_eq!(told.would_enable(own, &Level::DEBUG), own_debug, "{level:?}");
            assert_eq!(told.would_enable(own, &Level::TRACE), own_trace, "{level:?}");
            assert_eq!(told.would_enable(other, &Level::DEBUG), others_debug, "{level:?}");
            assert!(!told.would_enable(other, &Level::TRACE), "{level:?}");
        }
    }
}
