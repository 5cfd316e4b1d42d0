//! `mco man`

use std::fs;

use anyhow::Context;
use clap::CommandFactory as _;

use crate::cli::{Cli, Man};
use crate::output::{self, CommandOutcome};

pub fn run(arguments: &Man) -> anyhow::Result<CommandOutcome> {
    let directory = &arguments.out;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
    output::print(&format!(
        "manual pages are in {0}; read one with: man {0}/mco-plan.1\n",
        directory.display()
    ))?;
    Ok(CommandOutcome::Done)
}
