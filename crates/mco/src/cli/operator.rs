//! Options of `mco operator`, `mco controller` and `mco install`.

mod bootstrap;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use mco_api::ClusterBase;
use mco_operator::IgnitionTokens;
use mco_operator::profile::{Placement, PodToleration, ProfileOptions};

use super::metrics::MetricsArguments;
use super::{OutputFormat, output};
use crate::connection::Connection;
use crate::leader::Election;

pub use bootstrap::Bootstrap;

/// Manage a cluster's CRDs, RBAC, certificates, pools and workloads, and report through its ClusterOperator.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mco operator
  mco operator --kubeconfig admin.kubeconfig \\
      --apiserver-url https://k8s.example.com:6443
  mco operator --deploy --image registry.example.com/mco:1 \\
      --webhook-listen '[::]:9443'

Without --deploy everything is prepared but no workload runs in the cluster:
start mco controller, mco server and mco daemon yourself. One of several
operators is elected leader. SIGTERM stops it within five seconds."
)]
pub struct OperatorArguments {
    #[command(subcommand)]
    pub command: Option<OperatorCommand>,
    /// Also run the controller, the servers and the daemons in the cluster, from --image.
    #[arg(long)]
    pub deploy: bool,
    /// The image with this program. In a pod, the default is the image of the Deployment machine-config-operator.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Have the controller use the templates of this image, in /etc/mcc/templates, instead of its own.
    #[arg(long, value_name = "IMAGE", requires = "deploy")]
    pub templates_image: Option<String>,
    /// The image in which OS images are built, with this program and buildah; without it none is built.
    #[arg(long, value_name = "IMAGE", requires = "deploy")]
    pub builder_image: Option<String>,
    /// How many succeeded builds of OS images are kept per MachineOSConfig in addition to those in use, with their images;
    /// by default 5.
    #[arg(long, value_name = "NUMBER", requires = "deploy")]
    pub keep_builds: Option<usize>,
    /// The release version to report; by default the ClusterVersion's, else the version of this program.
    #[arg(long, value_name = "VERSION", env = "RELEASE_VERSION")]
    pub release_version: Option<String>,
    /// API server address for machines, if the cluster does not publish one.
    #[arg(long, value_name = "URL")]
    pub apiserver_url: Option<String>,
    /// Address from which machines fetch their first configuration; by default the API server's host.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub config_server: Option<String>,
    /// Whether machines need a token of their pool to fetch their first configuration. With required, the operator
    /// issues the tokens and adds them to the user data Secrets of new machines.
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = IgnitionTokensArgument::Required)]
    pub ignition_tokens: IgnitionTokensArgument,
    /// Address for the validating admission webhook.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub webhook_listen: Option<SocketAddr>,
    /// How the API server reaches that address; by default through the operator's Service.
    #[arg(long, value_name = "URL", requires = "webhook_listen")]
    pub webhook_url: Option<String>,
    /// Serve /metrics on this address, over plain HTTP.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Serve metrics over TLS only, with a certificate that the operator issues, to clients whose bearer token the
    /// cluster authenticates and authorizes to get /metrics.
    #[arg(long, requires = "metrics_listen")]
    pub guard_metrics: bool,
    #[command(flatten)]
    pub profile: ProfileArguments,
    #[command(flatten)]
    pub election: Election,
    #[command(flatten)]
    pub connection: Connection,
}

/// What is installed on a cluster other than OpenShift.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What is installed")]
pub struct ProfileArguments {
    /// What nodes get beside the users' MachineConfigs: none (nothing), kubeadm, k3s or rke2 (drop-ins for the kubelet and
    /// the container runtime of that distribution), machine (the whole tree, for machines that boot from the config
    /// server) or openshift. By default detected: openshift where a release manages the cluster, else the base that is
    /// stored in the cluster, else none.
    #[arg(long, value_name = "BASE")]
    pub base: Option<ClusterBase>,
    /// Install the kinds of config.openshift.io and operator.openshift.io: ClusterOperator, Image and mirror sets. Other
    /// operators conclude from these groups that the cluster is OpenShift.
    #[arg(long)]
    pub with_openshift_kinds: bool,
    /// Run the config servers, from which new machines get their first configuration with a token of their pool.
    #[arg(long)]
    pub with_server: bool,
    /// Apply network policies, and admission policies that prevent changes to them.
    #[arg(long)]
    pub with_network_policies: bool,
    /// Run operator and controller on nodes with this label. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub node_selector: Vec<(String, String)>,
    /// Let operator and controller run on nodes with this taint. May be repeated.
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]")]
    pub toleration: Vec<PodToleration>,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is written as key=value".to_owned()),
    }
}

impl ProfileArguments {
    pub fn options(&self) -> ProfileOptions {
        ProfileOptions {
            base: self.base,
            openshift_kinds: self.with_openshift_kinds,
            server: self.with_server,
            network_policies: self.with_network_policies,
            placement: Placement {
                node_selector: self.node_selector.iter().cloned().collect(),
                tolerations: self.toleration.clone(),
            },
        }
    }
}

/// Whether machines need a token for their first configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IgnitionTokensArgument {
    /// A machine without a token of its pool gets no configuration.
    Required,
    /// Every client that reaches the server gets configurations and the credential for new nodes.
    Optional,
}

impl From<IgnitionTokensArgument> for IgnitionTokens {
    fn from(argument: IgnitionTokensArgument) -> Self {
        match argument {
            IgnitionTokensArgument::Required => Self::Required,
            IgnitionTokensArgument::Optional => Self::Optional,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    Bootstrap(Box<Bootstrap>),
}

/// Render configurations, roll them out, drain nodes, and report pool status.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco controller
  mco controller --kubeconfig admin.kubeconfig --metrics-listen 127.0.0.1:9001
  mco controller --metrics-listen '[::]:9001' --metrics-cert tls.crt \\
      --metrics-key tls.key
  mco controller --templates templates/

It waits for the ControllerConfig that mco operator writes. One of several
controllers is elected leader. SIGTERM stops it within five seconds; the next
leader resumes its work.")]
pub struct Controller {
    #[command(flatten)]
    pub metrics: MetricsArguments,
    /// Directory of base templates, instead of the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// A private network that remote contents of MachineConfigs may be fetched from, such as 10.0.0.0/8; can be
    /// repeated.
    #[arg(long = "contents-network", value_name = "CIDR")]
    pub contents_networks: Vec<mco_http::fetch::Network>,
    #[command(flatten)]
    pub election: Election,
    #[command(flatten)]
    pub connection: Connection,
}

/// Print the manifests of an installation on a Kubernetes cluster, ready for kubectl apply.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco install --image registry.example.com/mco:1 | kubectl apply \\
      --server-side -f -
  mco install --image registry.example.com/mco:1 --base kubeadm \\
      | kubectl apply --server-side -f -
  mco install --image registry.example.com/mco:1 --alerts > mco.yaml
  mco install --image registry.example.com/mco:1 --check
  mco install --image registry.example.com/mco:1 --base none --helm chart/
  mco install --image registry.example.com/mco:1 --kustomize base/

CRDs come first, then the namespace, and the operator with its permissions. The
operator applies the rest and reverts later changes to it: a service account
per component, admission policies, the controller, a daemon on every node, and
what the options below add; --with-operands prints that too, for review. To
change an option or to upgrade, apply the output again. Installing changes
nothing on any node: that begins with a MachineConfigPool that selects it.
Alerts need the Prometheus operator's CRDs and the dashboards need OpenShift's
console, so they are printed only on request.

Without --base, the cluster of your kubeconfig is asked whether it is
OpenShift; if it does not answer, the output is for a cluster that is not.
Print it for an OpenShift cluster elsewhere with --base openshift.

--check prints no manifests: it reports whether the cluster meets the
requirements (version of Kubernetes, admission API, your permissions, kubelet
and container runtime of every node), and which objects would be created or
changed, from dry runs of the API server. It changes nothing. Exit codes with
--check: 0 the installation is up to date, 1 a requirement is not met or the
check failed, 3 objects would be created or changed.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct InstallArguments {
    /// The image with this program, which the nodes can pull; scripts/build-image of the source builds it.
    #[arg(long, value_name = "IMAGE", required_unless_present = "removal")]
    pub image: Option<String>,
    /// Have the controller use the templates of this image, in /etc/mcc/templates, instead of its own.
    #[arg(long, value_name = "IMAGE")]
    pub templates_image: Option<String>,
    /// The image in which OS images are built, with this program and buildah; without it none is built.
    #[arg(long, value_name = "IMAGE")]
    pub builder_image: Option<String>,
    /// How many succeeded builds of OS images are kept per MachineOSConfig in addition to those in use, with their images;
    /// by default 5.
    #[arg(long, value_name = "NUMBER")]
    pub keep_builds: Option<usize>,
    /// How machines reach the API server; by default detected by the operator.
    #[arg(long, value_name = "URL")]
    pub apiserver_url: Option<String>,
    /// Whether machines need a token of their pool to fetch their first configuration. Choose optional for a cluster
    /// whose machines are created with user data that has no token, such as one switched from another implementation.
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = IgnitionTokensArgument::Required)]
    pub ignition_tokens: IgnitionTokensArgument,
    /// Also print alerts, as PrometheusRule and ServiceMonitors, and the RBAC that OpenShift's Prometheus needs to
    /// scrape.
    #[arg(long)]
    pub alerts: bool,
    /// Also print dashboards for OpenShift's console, as ConfigMaps in namespace openshift-config-managed.
    #[arg(long)]
    pub dashboard: bool,
    /// Report whether the cluster meets the requirements and what would change; print no manifests.
    #[arg(long, conflicts_with_all = ["removal", "with_operands"])]
    pub check: bool,
    /// Print what `kubectl delete -f -` has to delete for an uninstall, in a working order; CRDs are kept. Prefer mco
    /// uninstall, which also cleans up nodes and finalizers.
    #[arg(long)]
    pub removal: bool,
    /// Also print what the operator applies, for review.
    #[arg(long, conflicts_with = "removal")]
    pub with_operands: bool,
    /// Leave out the CustomResourceDefinitions.
    #[arg(long)]
    pub without_crds: bool,
    /// Write a Helm chart with these manifests to a new directory instead of printing them.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kustomize", "check", "removal", "with_operands"])]
    pub helm: Option<PathBuf>,
    /// Write a base of kustomize to a new directory instead of printing.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["check", "removal", "with_operands"])]
    pub kustomize: Option<PathBuf>,
    /// Print this format instead of YAML documents, or with --check instead of text.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
    #[command(flatten)]
    pub profile: ProfileArguments,
    #[command(flatten)]
    pub connection: Connection,
}

/// Remove an installation from its cluster, also if nodes are down. MachineConfigs, pools and the files on nodes stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco uninstall --dry-run
  mco uninstall
  mco uninstall --yes --no-wait
  mco uninstall --crds

Prints the steps and asks before the first one: pause the pools and wait for
updates in progress, delete the operator, the webhook and the admission
policies, then the other components, permissions and the namespace; remove our
finalizers from MachineConfigs, KubeletConfigs and ContainerRuntimeConfigs, and
our annotations, taint and cordon from nodes. Labels of nodes and cordons of
administrators stay.

Nodes that were adopted and not released are named and refused, because only
their daemons restore what was there before: release them with mco release, or
leave them as they are with --leave-adopted.

Nothing waits for a node that is not Ready: its pods are deleted without its
kubelet. With --crds the CustomResourceDefinitions are deleted too, and with
them all MachineConfigs and pools. It can be repeated after a failure. Exit
code 3 with --dry-run if there is something to do.")]
pub struct UninstallArguments {
    /// Also delete the CustomResourceDefinitions, and with them all MachineConfigs, pools and settings.
    #[arg(long)]
    pub crds: bool,
    /// Leave nodes that were adopted as they are now, instead of refusing while any is not released.
    #[arg(long)]
    pub leave_adopted: bool,
    #[command(flatten)]
    pub steps: super::SwitchSteps,
    #[command(flatten)]
    pub connection: Connection,
}
