//! Options of `mco get`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{OutputFormat, output};

/// Show the operating systems of a release, from local files and without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oc adm release extract --to release/ registry.example.com/release:4.21.0
  mco get osimagestream --release-dir release/
  mco get default-node-image --release-dir release/
  mco get os-image-pullspec --imagestream release/image-references \\
      --osimagestream-name rhel-10

Nothing is fetched. The inputs are the image references of the release, an
ImageStream, and the labels of its images, if --image-labels is set. An image's
labels decide which stream it belongs to:
  io.openshift.os.streamclass=STREAM
      with containers.bootc=1 an operating system,
      with io.openshift.os.extensions=true its extensions
Images without labels are classified by their name in the release
(rhel-coreos-10, rhel-coreos-10-extensions) and by the version of the operating
system in them.")]
pub struct Get {
    #[command(subcommand)]
    pub wanted: GetTarget,
}

#[derive(Debug, Subcommand)]
pub enum GetTarget {
    #[command(name = "osimagestream")]
    OsImageStream(OsImageStreamQuery),
    DefaultNodeImage(DefaultNodeImage),
    OsImagePullspec(OsImagePullspec),
}

/// Print the OSImageStream that a cluster of this release has.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco get osimagestream --imagestream image-references
  mco get osimagestream --release-dir release/ -o yaml \\
      --output-file osimagestream.yaml")]
pub struct OsImageStreamQuery {
    #[command(flatten)]
    pub release: ReleaseFiles,
    /// The format; by default the extension of the output file, else JSON.
    #[arg(short, long, visible_alias = "output-format", value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
    /// Write to this file instead of printing.
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
}

/// Print the operating system image of pools that do not select a stream.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco get default-node-image --imagestream image-references")]
pub struct DefaultNodeImage {
    #[command(flatten)]
    pub release: ReleaseFiles,
}

/// Print the operating system image of one stream.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco get os-image-pullspec --imagestream image-references \\
      --osimagestream-name rhel-10")]
pub struct OsImagePullspec {
    #[command(flatten)]
    pub release: ReleaseFiles,
    /// Name of the stream.
    #[arg(long, value_name = "NAME")]
    pub osimagestream_name: String,
}

/// The local files that describe a release.
#[derive(Debug, Args)]
pub struct ReleaseFiles {
    /// The image references of the release: an ImageStream as JSON or YAML; - for standard input.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "release_dir",
        conflicts_with = "release_dir"
    )]
    pub imagestream: Option<PathBuf>,
    /// Directory with the extracted release image, or only its manifests.
    #[arg(long, value_name = "DIR")]
    pub release_dir: Option<PathBuf>,
    /// Labels of an image, as printed by skopeo inspect, podman image inspect or oc image info -o json. Can be
    /// repeated.
    #[arg(long, value_name = "FILE")]
    pub image_labels: Vec<PathBuf>,
}
