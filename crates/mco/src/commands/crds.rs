//! `mco crds`

use crate::cli::Crds;
use crate::output::{self, CommandOutcome};

pub fn run(arguments: &Crds) -> anyhow::Result<CommandOutcome> {
    match &arguments.output {
        Some(format) => output::print_as(format, &mco_api::crds())?,
        None => output::print(&mco_api::crds_yaml()?)?,
    }
    Ok(CommandOutcome::Done)
}
