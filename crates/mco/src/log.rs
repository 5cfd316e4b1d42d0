//! The log of a component. Its level can change at runtime.

use std::sync::OnceLock;

use mco_api::machine_configuration::LogLevel;
use mco_operator::LogLevels;
use mco_operator::manifests::LOG_LEVEL_VARIABLE;
use tokio::sync::watch;
use tracing::info;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::cli::{LogArguments, LogFormat};

/// The prefix of all our log targets.
const OURS: &str = "mco";

/// The level from which the requests of client commands are printed; kubectl's is the same.
const REQUESTS: u8 = 6;

/// The options `-v` and `--log-format` of this process.
static OPTIONS: OnceLock<LogArguments> = OnceLock::new();

/// Sets the options of this process, once, before a log starts.
pub fn set_options(options: LogArguments) {
    // Fails only if they are set already.
    let _ = OPTIONS.set(options);
}

fn options() -> LogArguments {
    OPTIONS.get().copied().unwrap_or_default()
}

/// Returns whether client commands print their requests.
pub fn shows_requests() -> bool {
    options().verbosity.is_some_and(|level| level >= REQUESTS)
}

/// Returns the level of a number, as the operator of OpenShift maps its levels to those of klog.
fn level(verbosity: u8) -> LogLevel {
    match verbosity {
        0..4 => LogLevel::Normal,
        4..6 => LogLevel::Debug,
        6..8 => LogLevel::Trace,
        8.. => LogLevel::TraceAll,
    }
}

/// A started log.
pub struct Log {
    filter: reload::Handle<Targets, Registry>,
}

impl Log {
    /// Starts the log of a component, with the level of `-v` or else of its environment variable.
    pub fn start<Writer>(writer: Writer) -> Self
    where
        Writer: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let options = options();
        let level = options.verbosity.map_or_else(
            || LogLevel::named(&std::env::var(LOG_LEVEL_VARIABLE).unwrap_or_default()),
            level,
        );
        let (filter, handle) = reload::Layer::new(filter(level));
        let lines = fmt::layer()
            .with_ansi(false)
            .with_target(false)
            .with_writer(writer);
        let subscriber = registry().with(filter);
        match options.log_format {
            LogFormat::Text => subscriber.with(lines).init(),
            LogFormat::Json => subscriber.with(lines.json().flatten_event(true)).init(),
        }
        Self { filter: handle }
    }

    /// Follows the log level of the cluster until it ends, unless `-v` sets it.
    pub async fn follow(self, mut levels: watch::Receiver<LogLevels>, own: fn(LogLevels) -> LogLevel) {
        if options().verbosity.is_some() {
            return;
        }
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
    fn a_level_is_the_one_that_openshift_maps_to_the_number() {
        let levels = [0, 2, 4, 6, 8, 10].map(level);
        let expected = [
            LogLevel::Normal,
            LogLevel::Normal,
            LogLevel::Debug,
            LogLevel::Trace,
            LogLevel::TraceAll,
            LogLevel::TraceAll,
        ];
        assert_eq!(levels, expected);
    }

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
