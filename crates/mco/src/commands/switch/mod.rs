//! `mco switch`

pub mod back;
mod check;
pub mod cluster;
mod prepare;
pub mod steps;

use crate::cli::{SwitchAction, SwitchArguments};
use crate::output::CommandOutcome;
use crate::runtime;

pub fn run(arguments: &SwitchArguments) -> anyhow::Result<CommandOutcome> {
    runtime::block_on(async {
        match &arguments.action {
            SwitchAction::Check(arguments) => Box::pin(check::run(arguments)).await,
            SwitchAction::Prepare(arguments) => Box::pin(prepare::run(arguments)).await,
            SwitchAction::Back(arguments) => Box::pin(back::run(arguments)).await,
            SwitchAction::Release(arguments) => Box::pin(back::release(arguments)).await,
        }
    })
}
