//! Options of `mco token`.

use clap::{Args, Subcommand};
use jiff::SignedDuration;

use super::{DataDirectoryArgument, ListOutputArguments};

/// Manage the tokens with which machines join a running mco up.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco token create
  mco token create --pool infra --ttl 1h --once
  mco token list
  mco token revoke 1a2b3c4d

Run it on the host of the mco up, as the same user and with the same
--data-dir. A cluster that mco install has set up has tokens of another kind:
the operator issues them, see mco pointer.")]
pub struct TokenArguments {
    #[command(subcommand)]
    pub action: TokenAction,
}

#[derive(Debug, Subcommand)]
pub enum TokenAction {
    Create(TokenCreate),
    List(TokenList),
    Revoke(TokenRevoke),
}

/// Create a token, and print the command with which a machine joins.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco token create
  mco token create --pool infra --ttl 1h
  mco token create --once --node-names 'lab-*'

Only the hash of the token is stored. Any number of machines can join with it
until it expires or is revoked, unless --once, --max-uses or --node-names limit
it.")]
pub struct TokenCreate {
    /// The pool of the machines that join with the token.
    #[arg(long, value_name = "POOL", default_value = "worker")]
    pub pool: String,
    /// Lifetime of the token, for example 30m or 24h.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub ttl: SignedDuration,
    /// Let one machine join with the token, and no more; the same as --max-uses 1.
    #[arg(long, conflicts_with = "max_uses")]
    pub once: bool,
    /// Let this many machines join with the token; any number by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_uses: Option<u32>,
    /// Let machines join only with these Node names, in which * matches anything.
    #[arg(long, value_name = "PATTERN")]
    pub node_names: Option<String>,
    /// A name or address at which other machines reach this one, if it is not one of its own.
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    #[command(flatten)]
    pub data: DataDirectoryArgument,
}

/// List the tokens with their uses and limits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco token list
  mco token list -o json")]
pub struct TokenList {
    #[command(flatten)]
    pub output: ListOutputArguments,
    #[command(flatten)]
    pub data: DataDirectoryArgument,
}

/// Revoke a token. Machines that joined with it keep their access.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco token revoke 1a2b3c4d

The name is the part of the token before the dot; mco token list shows it.")]
pub struct TokenRevoke {
    /// The name of the token.
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub data: DataDirectoryArgument,
}
