//! `mco crds`

use crate::cli::Crds;
use crate::output::{self, Outcome};

pub fn run(arguments: &Crds) -> anyhow::Result<Outcome> {
    match arguments.output {
        Some(format) => output::print_as(format, &mco_api::crds())?,
        None => output::print(&mco_api::crds_yaml()?)?,
    }
    Ok(Outcome::Done)
}
