//! The options of `mco get`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;

/// Ask which operating systems a release has, from local files and without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oc adm release extract --to release/ registry.example.com/release:4.21.0
  mco get osimagestream --release-dir release/
  mco get default-node-image --release-dir release/
  mco get os-image-pullspec --imagestream release/image-references --osimagestream-name rhel-10

Nothing is fetched. Read are the release's own list of its images, an ImageStream, and what the
images say about themselves, if you give it with --image-labels. An image's labels decide which
stream it belongs to:
  io.openshift.os.streamclass=STREAM  with containers.bootc=1 an operating system,
                                      with io.openshift.os.extensions=true its extensions
Of images without labels the release's own words count: the name it gives them
(rhel-coreos-10, rhel-coreos-10-extensions) and the version of the operating system in them.")]
pub struct Get {
    #[command(subcommand)]
    pub wanted: Wanted,
}

#[derive(Debug, Subcommand)]
pub enum Wanted {
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
  mco get osimagestream --release-dir release/ -o yaml --output-file osimagestream.yaml")]
pub struct OsImageStreamQuery {
    #[command(flatten)]
    pub release: ReleaseFiles,
    /// The format; by default what the name of the output file ends with, else JSON.
    #[arg(short, long, visible_alias = "output-format", value_enum)]
    pub output: Option<Format>,
    /// Write to this file instead of printing.
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
}

/// Print the operating system image of every pool that does not choose a stream.
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
  mco get os-image-pullspec --imagestream image-references --osimagestream-name rhel-10")]
pub struct OsImagePullspec {
    #[command(flatten)]
    pub release: ReleaseFiles,
    /// Name of the stream.
    #[arg(long, value_name = "STREAM")]
    pub osimagestream_name: String,
}

/// Where a release is described.
#[derive(Debug, Args)]
pub struct ReleaseFiles {
    /// The release's list of its images: an ImageStream as JSON or YAML; - for standard input.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "release_dir",
        conflicts_with = "release_dir"
    )]
    pub imagestream: Option<PathBuf>,
    /// A directory that the release image was extracted to, or only its manifests.
    #[arg(long, value_name = "DIR")]
    pub release_dir: Option<PathBuf>,
    /// What an image says about itself, as skopeo inspect, podman image inspect or oc image info -o json print it. Can be
    /// given several times.
    #[arg(long, value_name = "FILE")]
    pub image_labels: Vec<PathBuf>,
}
