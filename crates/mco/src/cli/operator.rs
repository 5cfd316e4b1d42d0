//! The options of `mco operator`, `mco controller` and `mco install`.

mod bootstrap;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;
use super::metrics::Metrics;
use crate::connection::Connection;
use crate::leader::Election;

pub use bootstrap::Bootstrap;

/// Look after a cluster: definitions, access, certificates, pools, workloads, and the ClusterOperator that tells how it is.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mco operator
  mco operator --kubeconfig admin.kubeconfig --apiserver-url https://k8s.example.com:6443
  mco operator --deploy --image registry.example.com/mco:1 --webhook-listen '[::]:9443'

Without --deploy everything is prepared but nothing is run in the cluster: start mco controller, mco server and mco daemon
yourself. Of several operators one leads; the others wait for it to end. SIGTERM stops it within five seconds."
)]
pub struct Operator {
    #[command(subcommand)]
    pub command: Option<OperatorCommand>,
    /// Also run the controller, the servers and the daemons in the cluster, from --image.
    #[arg(long, requires = "image")]
    pub deploy: bool,
    /// The image with this program.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Have the controller use the templates of this image, in /etc/mcc/templates, instead of its own.
    #[arg(long, value_name = "IMAGE", requires = "deploy")]
    pub templates_image: Option<String>,
    /// The release that the cluster is said to run; by default the ClusterVersion's, else the version of this program.
    #[arg(long, value_name = "VERSION", env = "RELEASE_VERSION")]
    pub release_version: Option<String>,
    /// How machines reach the API server, for clusters that do not say so themselves.
    #[arg(long, value_name = "URL")]
    pub apiserver_url: Option<String>,
    /// Where machines fetch their first configuration; by default the API server's host.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub config_server: Option<String>,
    /// Listen here for the API server's questions about objects that are written.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub webhook_listen: Option<SocketAddr>,
    /// How the API server reaches that address; by default through the operator's Service.
    #[arg(long, value_name = "URL", requires = "webhook_listen")]
    pub webhook_url: Option<String>,
    /// Tell /metrics here, over plain HTTP.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Tell metrics there over TLS only, with a certificate that the operator makes, and only to those whose bearer token the
    /// cluster knows and whom it lets get /metrics.
    #[arg(long, requires = "metrics_listen")]
    pub guard_metrics: bool,
    #[command(flatten)]
    pub election: Election,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    Bootstrap(Box<Bootstrap>),
}

/// Render configurations, roll them out, drain nodes, and tell how far each pool is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco controller
  mco controller --kubeconfig admin.kubeconfig --metrics-listen 127.0.0.1:9001
  mco controller --metrics-listen '[::]:9001' --metrics-cert tls.crt --metrics-key tls.key
  mco controller --templates templates/

It waits for the ControllerConfig that mco operator writes. Of several controllers one leads; the others take over when it
ends. SIGTERM stops it within five seconds; what it was doing is carried on by the next.")]
pub struct Controller {
    #[command(flatten)]
    pub metrics: Metrics,
    /// Directory of base templates, instead of the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    #[command(flatten)]
    pub election: Election,
    #[command(flatten)]
    pub connection: Connection,
}

/// Print all that an installation on a Kubernetes cluster consists of, ready for kubectl apply.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco install --image registry.example.com/mco:1 | kubectl apply --server-side -f -
  mco install --image registry.example.com/mco:1 --alerts > mco.yaml

The definitions come first, then the namespace, accounts with no more rights than they need, network policies, and what runs:
the operator and the controller on the control plane, the servers beside it, a daemon on every machine. The operator puts
right what is changed later. Alerts need the Prometheus operator's definitions and the dashboard
OpenShift's console, so they are printed only when asked for.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct Install {
    /// The image with this program.
    #[arg(long, value_name = "IMAGE", default_value = concat!("localhost/mco:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Have the controller use the templates of this image, in /etc/mcc/templates, instead of its own.
    #[arg(long, value_name = "IMAGE")]
    pub templates_image: Option<String>,
    /// How machines reach the API server; by default found out by the operator.
    #[arg(long, value_name = "URL")]
    pub apiserver_url: Option<String>,
    /// Print alerts as well, as PrometheusRule and ServiceMonitors, and what lets OpenShift's Prometheus find what to scrape.
    #[arg(long)]
    pub alerts: bool,
    /// Print a dashboard for OpenShift's console as well, as a ConfigMap in namespace openshift-config-managed.
    #[arg(long)]
    pub dashboard: bool,
    /// Print what `kubectl delete -f -` takes away again, in the order that works; definitions are left.
    #[arg(long)]
    pub removal: bool,
    /// Leave the CustomResourceDefinitions out.
    #[arg(long)]
    pub without_crds: bool,
    /// Print this format instead of YAML documents.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}
