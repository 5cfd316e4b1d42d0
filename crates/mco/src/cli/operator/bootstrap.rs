//! Options of `mco operator bootstrap`. The names are those that installers use.

use std::path::PathBuf;

use clap::Args;

const INSTALLER: &str = "What the installer has";
const IMAGES: &str = "Images";

/// Write the manifests of a bootstrap machine, from those of an installer and without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco operator bootstrap --manifests installer/ \\
      --machine-config-operator-image registry.example.com/mco:1 \\
      --dest-dir bootstrap/
  mco operator bootstrap --manifests installer/ \\
      --image-references image-references --root-ca root-ca.crt \\
      --dest-dir bootstrap/
  mco render --manifests bootstrap/bootstrap/manifests --out rendered/

Writes
  DEST/bootstrap/manifests/
      the ControllerConfig, the pools and, with --manifests, every object that
      configurations are rendered from: the input of mco render
  DEST/bootstrap/machineconfigoperator-bootstrap-pod.yaml
      the static pod that renders them and serves the result to new machines
  DEST/manifests/
      what the cluster needs to render the same configurations; apply before
      mco install

Without --manifests the installer's usual files below /assets/manifests are
read and nothing is copied: the installer adds its own manifests to the written
ones.")]
pub struct Bootstrap {
    /// The directory to write to.
    #[arg(long, value_name = "DIR")]
    pub dest_dir: PathBuf,
    /// Directory with the installer's manifests.
    #[arg(long, value_name = "DIR", help_heading = INSTALLER)]
    pub manifests: Option<PathBuf>,
    /// The CA that signs the config server's certificate, as PEM.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub root_ca: Option<PathBuf>,
    /// The CAs with which kubelets verify client certificates, as PEM.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub kube_ca: Option<PathBuf>,
    /// The cloud provider's CAs, as PEM.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub cloud_provider_ca_file: Option<PathBuf>,
    /// Manifest of the Secret with the registry credentials; by default the one among the manifests.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub pull_secret: Option<PathBuf>,
    /// Manifest of the Infrastructure.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub infra_config_file: Option<PathBuf>,
    /// Manifest of the Network.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub network_config_file: Option<PathBuf>,
    /// Manifest of the Proxy.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub proxy_config_file: Option<PathBuf>,
    /// Manifest of the DNS.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub dns_config_file: Option<PathBuf>,
    /// Manifest of the ConfigMap with the trust bundle that the Proxy references.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub additional_trust_bundle_config_file: Option<PathBuf>,
    /// Manifest of the ConfigMap with the cloud provider's configuration.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub cloud_config_file: Option<PathBuf>,
    /// Ignored; accepted for compatibility with installers.
    #[arg(long, value_name = "FILE", hide = true)]
    pub config_file: Option<PathBuf>,

    /// Version of the installed release; by default the name of --image-references.
    #[arg(long, value_name = "VERSION")]
    pub payload_version: Option<String>,
    /// The installed release image.
    #[arg(long, value_name = "IMAGE", default_value = "", hide_default_value = true, help_heading = IMAGES)]
    pub release_image: String,
    /// The image references of the release, an ImageStream; without one, set the images with the options below.
    #[arg(long, value_name = "FILE", help_heading = IMAGES)]
    pub image_references: Option<PathBuf>,
    #[command(flatten)]
    pub images: ImageOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = IMAGES)]
#[expect(clippy::struct_field_names, reason = "the options are named so")]
pub struct ImageOptions {
    /// The image with this program.
    #[arg(long, value_name = "IMAGE", required_unless_present = "image_references")]
    pub machine_config_operator_image: Option<String>,
    /// The operating system image.
    #[arg(long, value_name = "IMAGE")]
    pub baseos_image: Option<String>,
    /// The operating system's extensions image.
    #[arg(long, value_name = "IMAGE")]
    pub baseos_extensions_image: Option<String>,
    /// The operating system image in the format of old releases.
    #[arg(long, value_name = "IMAGE")]
    pub machine_config_oscontent_image: Option<String>,
    /// The pause image.
    #[arg(long, value_name = "IMAGE")]
    pub infra_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "Keepalived")]
    pub keepalived_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "CoreDNS")]
    pub coredns_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "HAProxy")]
    pub haproxy_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "Bare metal images")]
    pub baremetal_runtimecfg_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "Metrics proxy image")]
    pub kube_rbac_proxy_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "Image registry image")]
    pub docker_registry_image: Option<String>,
    #[arg(long, value_name = "IMAGE", hide = true)]
    pub oauth_proxy_image: Option<String>,
}
