//! `mco pointer`

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use mco_ignition::SpecVersion;
use mco_server::negotiate::SERVED;
use mco_server::pointer::{self, PointerConfig};
use mco_server::tokens::{self, PoolTokens, TokenRecord};

use crate::cli;
use crate::output::{self, CommandOutcome};

pub fn run(arguments: &cli::PointerArguments) -> anyhow::Result<CommandOutcome> {
    let authorities = match &arguments.ca {
        Some(path) => fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => Vec::new(),
    };
    let version = version(&arguments.spec_version)?;
    let token = match (&arguments.tokens, &arguments.token_file) {
        (Some(_), _) => Some(tokens::generate()?),
        (None, Some(path)) => Some(existing(path)?),
        (None, None) => None,
    };
    let pointer = pointer::pointer(&PointerConfig {
        pool: &arguments.pool,
        server: &arguments.server,
        authorities: &authorities,
        token: token.as_deref(),
        version,
    })?;
    // Recorded last, so that a failure leaves no record of an unusable token.
    if let (Some(store), Some(token)) = (&arguments.tokens, &token) {
        let now = Timestamp::now();
        let record = TokenRecord::new(&arguments.pool, token, expiry(now, &arguments.token_lifetime)?);
        PoolTokens::add_to(store, record, now)?;
    }
    output::print(&format!("{pointer:#}\n"))?;
    Ok(CommandOutcome::Done)
}

fn version(text: &str) -> anyhow::Result<SpecVersion> {
    let known = SERVED.into_iter().find(|version| version.as_str() == text);
    known.with_context(|| {
        let all: Vec<_> = SERVED.into_iter().map(SpecVersion::as_str).collect();
        format!("--spec-version: {text:?} is not one of {}", all.join(", "))
    })
}

fn existing(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("{} does not hold a token", path.display());
    }
    Ok(token.to_owned())
}

fn expiry(now: Timestamp, lifetime: &str) -> anyhow::Result<Timestamp> {
    let wrong = || format!("--token-lifetime: {lifetime:?} is not a time such as 30m, 24h or 7d");
    let duration = match lifetime
        .strip_suffix('d')
        .and_then(|days| days.parse::<i64>().ok())
    {
        Some(days) => SignedDuration::from_hours(days.checked_mul(24).with_context(wrong)?),
        None => lifetime.parse::<SignedDuration>().with_context(wrong)?,
    };
    if duration <= SignedDuration::ZERO {
        bail!("{}", wrong());
    }
    now.checked_add(duration).with_context(wrong)
}
