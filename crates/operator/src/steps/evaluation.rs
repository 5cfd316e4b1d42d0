//! Checks the users' settings for deprecated values.

use kube::api::ListParams;
use mco_api::{ContainerRuntimeConfig, KubeletConfig};
use mco_runtime::{Lenient, list_lenient};

use crate::cluster::{ClusterError, OperatorClient, failed};
use crate::cluster_operator::evaluations;

/// See [`evaluations::reason`].
pub(crate) async fn evaluation(cluster: &OperatorClient) -> Result<Option<String>, ClusterError> {
    let every = ListParams::default();
    let kubelets = list_lenient(&cluster.all::<Lenient<KubeletConfig>>(), &every).await;
    let kubelets = kubelets.map_err(failed("listing", || "KubeletConfigs".to_owned()))?;
    let runtimes = list_lenient(&cluster.all::<Lenient<ContainerRuntimeConfig>>(), &every).await;
    let runtimes = runtimes.map_err(failed("listing", || "ContainerRuntimeConfigs".to_owned()))?;
    Ok(evaluations::reason(&kubelets.logged(), &runtimes.logged()))
}
