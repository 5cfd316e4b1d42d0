//! The options of `mco operator bootstrap`. Their names are those that installers know.

use std::path::PathBuf;

use clap::Args;

const INSTALLER: &str = "What the installer has";
const IMAGES: &str = "Images";

/// Write the manifests that a bootstrap machine needs, from those of an installer and without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco operator bootstrap --manifests installer/ --machine-config-operator-image registry.example.com/mco:1 --dest-dir bootstrap/
  mco operator bootstrap --manifests installer/ --image-references image-references --root-ca root-ca.crt --dest-dir bootstrap/
  mco render --manifests bootstrap/bootstrap/manifests --out rendered/

Writes
  DEST/bootstrap/manifests/   the ControllerConfig, the pools and, with --manifests, every given object that
                              configurations are rendered from: what mco render takes
  DEST/bootstrap/machineconfigoperator-bootstrap-pod.yaml
                              the static pod that renders them and serves the result to new machines
  DEST/manifests/             what the cluster needs to come to the same configurations; apply it before mco install

Without --manifests the installer's usual files below /assets/manifests are read and nothing is copied: the installer puts
its own manifests beside the written ones.")]
pub struct Bootstrap {
    /// The directory to write to.
    #[arg(long, value_name = "DIR")]
    pub dest_dir: PathBuf,
    /// Directory with the installer's manifests.
    #[arg(long, value_name = "DIR", help_heading = INSTALLER)]
    pub manifests: Option<PathBuf>,
    /// The authority that signs the config server's certificate, as PEM.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub root_ca: Option<PathBuf>,
    /// The authorities that kubelets check their clients with, as PEM.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub kube_ca: Option<PathBuf>,
    /// The cloud provider's authorities, as PEM.
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
    /// Manifest of the ConfigMap with the certificates that the Proxy names.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub additional_trust_bundle_config_file: Option<PathBuf>,
    /// Manifest of the ConfigMap with the cloud provider's configuration.
    #[arg(long, value_name = "FILE", help_heading = INSTALLER)]
    pub cloud_config_file: Option<PathBuf>,
    /// Accepted for the installer's sake; nothing in it is needed.
    #[arg(long, value_name = "FILE", hide = true)]
    pub config_file: Option<PathBuf>,

    /// The release that is installed; by default the name of --image-references.
    #[arg(long, value_name = "VERSION")]
    pub payload_version: Option<String>,
    /// The release image that is installed.
    #[arg(long, value_name = "IMAGE", default_value = "", hide_default_value = true, help_heading = IMAGES)]
    pub release_image: String,
    /// The release's list of its images, an ImageStream; the images below are for those who have none.
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
    /// The operating system.
    #[arg(long, value_name = "IMAGE")]
    pub baseos_image: Option<String>,
    /// The operating system's extensions.
    #[arg(long, value_name = "IMAGE")]
    pub baseos_extensions_image: Option<String>,
    /// The operating system in the format of old releases.
    #[arg(long, value_name = "IMAGE")]
    pub machine_config_oscontent_image: Option<String>,
    /// What holds a pod's namespaces.
    #[arg(long, value_name = "IMAGE")]
    pub infra_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "Keepalived")]
    pub keepalived_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "CoreDNS")]
    pub coredns_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "HAProxy")]
    pub haproxy_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "The addresses of bare metal")]
    pub baremetal_runtimecfg_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "The proxy before metrics")]
    pub kube_rbac_proxy_image: Option<String>,
    #[arg(long, value_name = "IMAGE", help = "An image registry")]
    pub docker_registry_image: Option<String>,
    #[arg(long, value_name = "IMAGE", hide = true)]
    pub oauth_proxy_image: Option<String>,
}
