//! Options of `mco builder`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::OutputFormat;

/// Build the OS images of pools that have a MachineOSConfig, in the cluster.
#[derive(Debug, Args)]
pub struct BuilderArguments {
    #[command(subcommand)]
    pub command: BuilderCommand,
}

#[derive(Debug, Subcommand)]
pub enum BuilderCommand {
    Plan(BuilderPlan),
}

/// Show which images would be built from a directory of manifests, without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco builder plan --manifests cluster/
  mco builder plan --manifests cluster/ -o json

The directory holds MachineOSConfigs, their pools with spec.configuration, rendered
MachineConfigs and the ControllerConfig. MachineOSBuilds, Secrets, ConfigMaps and
Nodes in it are used. Without any Secret, the credentials are left empty.

Prints for every MachineOSConfig the name of its MachineOSBuild, whether an image
must be built and why, the composed Containerfile and the objects of the build.
Exit code 1 if an image cannot be built.")]
pub struct BuilderPlan {
    /// Directory of YAML or JSON manifests, a single file, or - for standard input.
    #[arg(long, value_name = "DIR")]
    pub manifests: PathBuf,
    /// The image in which builds run; by default the release's.
    #[arg(long, value_name = "IMAGE")]
    pub builder_image: Option<String>,
    /// Print the plan in this format.
    #[arg(short, long, value_enum)]
    pub output: Option<OutputFormat>,
}
