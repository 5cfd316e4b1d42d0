//! The log of a component. Its level can change at runtime.

use mco_api::machine_configuration::LogLevel;
use mco_operator::LogLevels;
use mco_operator::manifests::LOG_LEVEL_VARIABLE;
use tokio::sync::watch;
use tracing::info;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// The prefix of all our log targets.
const OURS: &str = "mco";

/// A started log.
pub struct Log {
    filter: reload::Handle<Targets, Registry>,
}

impl Log {
    /// Starts the log of a component, with the level of its environment variable.
    pub fn start<Writer>(writer: Writer) -> Self
    where
        Writer: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let level = std::env::var(LOG_LEVEL_VARIABLE).unwrap_or_default();
        let (filter, handle) = reload::Layer::new(filter(LogLevel::named(&level)));
        let lines = fmt::layer()
            .with_ansi(false)
            .with_target(false)
            .with_writer(writer);
        registry().with(filter).with(lines).init();
        Self { filter: handle }
    }

    /// Follows the log level of the cluster until it ends.
    pub async fn follow(self, mut levels: watch::Receiver<LogLevels>, own: fn(LogLevels) -> LogLevel) {
        while levels.changed().await.is_ok() {
            let level = own(*levels.borrow_and_update());
            info!("the log level is {}", level.name());
            // Fails only if the subscriber is gone.
            let _ = self.filter.reload(filter(level));
        }
    }
}

/// The target of the kube client's warnings about responses that it cannot decode. They contain the whole body, which
/// can be a Secret. The caller gets the error without it.
const KUBE_CLIENT: &str = "kube_client::client";

/// Returns the log filter of a level. Libraries log less than we do at every level, because their traces can contain
/// secrets.
fn filter(level: LogLevel) -> Targets {
    let (ours, others) = match level {
        LogLevel::Normal => (LevelFilter::INFO, LevelFilter::INFO),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::INFO),
        LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::INFO),
        LogLevel::TraceAll => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    Targets::new()
        .with_default(others)
        .with_target(OURS, ours)
        .with_target(KUBE_CLIENT, LevelFilter::ERROR)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_filter_depends_on_the_level_and_on_the_target() {
        for (level, own_debug, own_trace, others_debug) in [
            (LogLevel::Normal, false, false, false),
            (LogLevel::Debug, true, false, false),
            (LogLevel::Trace, true, true, false),
            (LogLevel::TraceAll, true, true, true),
        ] {
            let reported = filter(level);
            let (own, other) = ("mco_controllers::rollout", "hyper::client");
            assert!(reported.would_enable(own, &Level::INFO) && reported.would_enable(other, &Level::INFO));
            assert_eq!(reported.would_enable(own, &Level::DEBUG), own_debug, "{level:?}");
            assert_eq!(reported.would_enable(own, &Level::TRACE), own_trace, "{level:?}");
            assert_eq!(
                reported.would_enable(other, &Level::DEBUG),
                others_debug,
                "{level:?}"
            );
            assert!(!reported.would_enable(other, &Level::TRACE), "{level:?}");
            assert!(
                !reported.would_enable("kube_client::client", &Level::WARN),
                "{level:?}"
            );
        }
    }
}
