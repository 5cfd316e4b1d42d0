//! `mco builder`

mod plan;

use crate::cli::{BuilderArguments, BuilderCommand};
use crate::output::CommandOutcome;

pub fn run(arguments: BuilderArguments) -> anyhow::Result<CommandOutcome> {
    match arguments.command {
        BuilderCommand::Plan(arguments) => plan::run(&arguments),
    }
}
