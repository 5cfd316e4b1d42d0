//! Options of `mco builder`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::metrics::MetricsArguments;
use super::{OutputFormat, output};
use crate::connection::Connection;
use crate::leader::Election;

/// Build the OS images of pools that have a MachineOSConfig, in the cluster.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mco builder
  mco builder --kubeconfig admin.kubeconfig \\
      --builder-image registry.example.com/mco-builder:1
  mco builder plan --manifests cluster/

Each build is a Job in which mco builder build drives buildah. The builder
image must have this program and buildah. One of several builders is elected
leader. A stop completes the cleanup of deleted MachineOSConfigs, for up to ten
seconds; the next leader resumes running builds."
)]
pub struct BuilderArguments {
    #[command(subcommand)]
    pub command: Option<BuilderCommand>,
    /// The image in which builds run, with this program and buildah; without it no build starts.
    #[arg(long, value_name = "IMAGE", env = "MCO_BUILDER_IMAGE")]
    pub builder_image: Option<String>,
    /// How many succeeded builds are kept per MachineOSConfig in addition to those in use, with their images.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub keep_builds: usize,
    /// Start an interrupted build again after this time; 0 leaves it.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub retry_interrupted: u64,
    #[command(flatten)]
    pub metrics: MetricsArguments,
    #[command(flatten)]
    pub election: Election,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Subcommand)]
pub enum BuilderCommand {
    Plan(BuilderPlan),
    #[command(hide = true)]
    Build(ImageBuildArguments),
    #[command(name = "create-digest-configmap", hide = true)]
    Digest(DigestArguments),
}

/// Show which images would be built from a directory of manifests, without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco builder plan --manifests cluster/
  mco builder plan --manifests cluster/ -o json

The directory holds MachineOSConfigs, their pools with spec.configuration,
rendered MachineConfigs and the ControllerConfig. MachineOSBuilds, Secrets,
ConfigMaps and Nodes in it are used. Without any Secret, the credentials are
left empty.

Prints for every MachineOSConfig the name of its MachineOSBuild, whether an
image must be built and why, the composed Containerfile and the objects of the
build. Exit code 1 if an image cannot be built.")]
pub struct BuilderPlan {
    /// Directory of YAML or JSON manifests, a single file, or - for standard input.
    #[arg(long, value_name = "DIR")]
    pub manifests: PathBuf,
    /// The image in which builds run.
    #[arg(long, value_name = "IMAGE")]
    pub builder_image: Option<String>,
    /// Print the plan in this format.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Build and push one image with buildah or podman, from the inputs that the builder has prepared. Runs inside a build's
/// Job.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  TAG=registry.example.com/os:1 mco builder build --inputs /var/tmp/build")]
pub struct ImageBuildArguments {
    /// Directory with all inputs; by default the mounts of the Job's pod.
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
    /// The reference to push to.
    #[arg(long, value_name = "IMAGE", env = "TAG")]
    pub tag: String,
    /// Directory for the build context and the storage of images; by default in the inputs or the home directory.
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
}

/// Publish the digest of a pushed image as a ConfigMap. Runs inside a build's Job.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco builder create-digest-configmap --configmap-name digest-worker-1 \\
      --digestfile digest --labels a=b")]
pub struct DigestArguments {
    /// The name of the ConfigMap.
    #[arg(long, value_name = "NAME", env = "DIGEST_CONFIGMAP_NAME")]
    pub configmap_name: String,
    /// The file with the digest.
    #[arg(long, value_name = "FILE", default_value = "/tmp/done/digestfile")]
    pub digestfile: PathBuf,
    /// The labels of the ConfigMap, as key=value,key=value.
    #[arg(
        long,
        value_name = "LABELS",
        env = "DIGEST_CONFIGMAP_LABELS",
        default_value = ""
    )]
    pub labels: String,
    /// The namespace of the ConfigMap.
    #[arg(long, value_name = "NAMESPACE", default_value = mco_api::vocabulary::names::NAMESPACE)]
    pub namespace: String,
    #[command(flatten)]
    pub connection: Connection,
}
