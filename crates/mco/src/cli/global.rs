//! Options that every command has.

use clap::{Args, ValueEnum};

/// How much is logged, and in which form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArguments {
    /// Log level: 2 normal, 4 debug, 6 trace and the requests of client commands, 8 everything; -v is -v=6.
    #[arg(
        short = 'v',
        long = "v",
        id = "verbosity",
        value_name = "LEVEL",
        global = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "6"
    )]
    pub verbosity: Option<u8>,
    /// Format of a component's log.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        env = "MCO_LOG_FORMAT",
        hide_env_values = true,
        default_value_t
    )]
    pub log_format: LogFormat,
}

/// The format of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}
