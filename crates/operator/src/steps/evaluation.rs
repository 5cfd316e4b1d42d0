//! Checks the users' settings for deprecated values.

use kube::api::ListParams;
use mco_api::{ContainerRuntimeConfig, KubeletConfig};

use crate::cluster::{ClusterError, OperatorClient, failed};
use crate::cluster_operator::evaluations;

/// See [`evaluations::reason`].
pub(crate) async fn evaluation(cluster: &OperatorClient) -> Result<Option<String>, ClusterError> {
    let every = ListParams::default();
    let kubelets = cluster.all::<KubeletConfig>().list(&every).await;
    let kubelets = kubelets.map_err(failed("listing", || "KubeletConfigs".to_owned()))?;
    let runtimes = cluster.all::<ContainerRuntimeConfig>().list(&every).await;
    let runtimes = runtimes.map_err(failed("listing", || "ContainerRuntimeConfigs".to_owned()))?;
    Ok(evaluations::reason(&kubelets.items, &runtimes.items))
}
