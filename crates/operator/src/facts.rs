//! What the cluster says about itself. OpenShift says most of it in objects of its own, plain Kubernetes little.
//!
//! Reads only. What it all means is decided in [`crate::controller_config`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::api::{ApiResource, ListParams};
use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::dns::DNS;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image::Image;
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::foreign::network::Network;
use mco_api::foreign::proxy::Proxy;
use mco_api::vocabulary::{labels, names};

use crate::cluster::{Cluster, ClusterError, failed};

const CA_BUNDLE: &str = "ca-bundle.crt";
const KUBE_SYSTEM: &str = "kube-system";
const KUBE_PUBLIC: &str = "kube-public";

/// Everything that goes into the ControllerConfig, as found.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub infrastructure: Option<Infrastructure>,
    pub network: Option<Network>,
    pub proxy: Option<Proxy>,
    pub dns: Option<DNS>,
    pub cluster_version: Option<ClusterVersion>,
    pub feature_gate: Option<FeatureGate>,
    /// The ControllerConfig in force.
    pub existing: Option<ControllerConfig>,
    /// Address of the DNS service of a plain cluster.
    pub dns_service: Option<String>,
    /// The API server's address in the kubeconfig that a plain cluster publishes.
    pub published_api_server: Option<String>,
    /// The images of the release, by its own names.
    pub images: BTreeMap<String, String>,
    /// The operating system images of the release.
    pub os_images: BTreeMap<String, String>,
    /// Certificates that kubelets authenticate the API server with.
    pub client_authorities: Vec<u8>,
    /// The older ones of them, which a cluster that was just installed has only.
    pub initial_client_authorities: Vec<u8>,
    /// Certificates that the installer signed the config server's certificate with.
    pub installer_authority: String,
    pub trust_bundle: Vec<u8>,
    pub cloud_config: String,
    pub cloud_authorities: Vec<u8>,
    pub registry_authorities: BTreeMap<String, Vec<u8>>,
    pub user_registry_authorities: BTreeMap<String, Vec<u8>>,
    pub has_pull_secret: bool,
    pub has_arbiters: bool,
}

impl Facts {
    /// The kinds among those we read that this cluster has, to be followed.
    pub(crate) fn kinds(&self) -> Vec<ApiResource> {
        let mut kinds = Vec::new();
        let mut add = |found: bool, kind: ApiResource| {
            if found {
                kinds.push(kind);
            }
        };
        add(
            self.infrastructure.is_some(),
            ApiResource::erase::<Infrastructure>(&()),
        );
        add(self.network.is_some(), ApiResource::erase::<Network>(&()));
        add(self.proxy.is_some(), ApiResource::erase::<Proxy>(&()));
        add(self.dns.is_some(), ApiResource::erase::<DNS>(&()));
        add(
            self.cluster_version.is_some(),
            ApiResource::erase::<ClusterVersion>(&()),
        );
        add(
            self.feature_gate.is_some(),
            ApiResource::erase::<FeatureGate>(&()),
        );
        kinds
    }
}

/// Reads everything. What does not exist is left out; what cannot be read is an error.
pub(crate) async fn gather(cluster: &Cluster) -> Result<Facts, ClusterError> {
    let infrastructure: Option<Infrastructure> = cluster.find(names::SINGLETON).await?;
    let proxy: Option<Proxy> = cluster.find(names::SINGLETON).await?;
    let image: Option<Image> = cluster.find(names::SINGLETON).await?;
    let (cloud_config, cloud_authorities) = cloud(cluster, infrastructure.as_ref()).await?;
    let trusted = proxy.as_ref().and_then(|proxy| proxy.spec.trusted_ca.as_ref());
    let trust_bundle = match trusted.filter(|reference| !reference.name.is_empty()) {
        Some(reference) => entry(cluster, names::CONFIG_NAMESPACE, &reference.name, CA_BUNDLE).await?,
        None => Vec::new(),
    };
    let registries = image
        .as_ref()
        .and_then(|image| image.spec.additional_trusted_ca.as_ref());
    let user_registry_authorities = match registries.filter(|reference| !reference.name.is_empty()) {
        Some(reference) => entries(cluster, names::CONFIG_NAMESPACE, &reference.name).await?,
        None => BTreeMap::new(),
    };
    let texts = |entries: BTreeMap<String, Vec<u8>>| {
        let texts = entries.into_iter();
        texts
            .map(|(key, value)| (key, String::from_utf8_lossy(&value).into_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    Ok(Facts {
        network: cluster.find::<Network>(names::SINGLETON).await?,
        dns: cluster.find::<DNS>(names::SINGLETON).await?,
        cluster_version: cluster.find::<ClusterVersion>(names::CLUSTER_VERSION).await?,
        feature_gate: cluster.find::<FeatureGate>(names::SINGLETON).await?,
        existing: cluster.find::<ControllerConfig>(CONTROLLER_CONFIG_NAME).await?,
        dns_service: dns_service(cluster).await?,
        published_api_server: published_api_server(cluster).await?,
        images: release_images(&texts(
            entries(cluster, names::NAMESPACE, names::config_map::IMAGES).await?,
        )),
        os_images: texts(entries(cluster, names::NAMESPACE, names::config_map::OS_IMAGE_URL).await?),
        client_authorities: client_authorities(cluster).await?,
        initial_client_authorities: entry(
            cluster,
            names::CONFIG_NAMESPACE,
            names::config_map::INITIAL_KUBE_API_SERVER_CA,
            CA_BUNDLE,
        )
        .await?,
        installer_authority: String::from_utf8_lossy(
            &entry(cluster, KUBE_SYSTEM, "root-ca", "ca.crt").await?,
        )
        .into_owned(),
        trust_bundle,
        cloud_config,
        cloud_authorities,
        registry_authorities: entries(cluster, names::CONFIG_MANAGED_NAMESPACE, "image-registry-ca").await?,
        user_registry_authorities,
        has_pull_secret: cluster
            .secret(names::CONFIG_NAMESPACE, names::secret::PULL_SECRET)
            .await?
            .is_some(),
        has_arbiters: has_arbiters(cluster).await?,
        infrastructure,
        proxy,
    })
}

async fn cloud(
    cluster: &Cluster,
    infrastructure: Option<&Infrastructure>,
) -> Result<(String, Vec<u8>), ClusterError> {
    let reference = infrastructure.and_then(|infrastructure| infrastructure.spec.cloud_config.as_ref());
    let Some(reference) = reference.filter(|reference| !reference.name.is_empty()) else {
        return Ok((String::new(), Vec::new()));
    };
    let managed = entries(cluster, names::CONFIG_MANAGED_NAMESPACE, "kube-cloud-config").await?;
    let config = match managed.get("cloud.conf") {
        Some(config) => config.clone(),
        None => entry(cluster, names::CONFIG_NAMESPACE, &reference.name, &reference.key).await?,
    };
    let authorities = managed.get("ca-bundle.pem").cloned().unwrap_or_default();
    Ok((String::from_utf8_lossy(&config).into_owned(), authorities))
}

/// A plain cluster's certificates stand where every extension of its API server looks for them.
async fn client_authorities(cluster: &Cluster) -> Result<Vec<u8>, ClusterError> {
    let managed = entry(
        cluster,
        names::CONFIG_MANAGED_NAMESPACE,
        "kube-apiserver-client-ca",
        CA_BUNDLE,
    )
    .await?;
    if !managed.is_empty() {
        return Ok(managed);
    }
    entry(
        cluster,
        KUBE_SYSTEM,
        "extension-apiserver-authentication",
        "client-ca-file",
    )
    .await
}

async fn dns_service(cluster: &Cluster) -> Result<Option<String>, ClusterError> {
    let service = cluster.within::<Service>(KUBE_SYSTEM).get_opt("kube-dns").await;
    let service = service.map_err(failed("reading", || "Service kube-system/kube-dns".to_owned()))?;
    let address = service.and_then(|service| service.spec?.cluster_ip);
    Ok(address.filter(|address| address.parse::<std::net::IpAddr>().is_ok()))
}

/// kubeadm publishes a kubeconfig with nothing but the API server's address and authority.
async fn published_api_server(cluster: &Cluster) -> Result<Option<String>, ClusterError> {
    let text = entry(cluster, KUBE_PUBLIC, "cluster-info", "kubeconfig").await?;
    let Ok(kubeconfig) = kube::config::Kubeconfig::from_yaml(&String::from_utf8_lossy(&text)) else {
        return Ok(None);
    };
    let cluster = kubeconfig.clusters.into_iter().next();
    Ok(cluster.and_then(|cluster| cluster.cluster?.server))
}

async fn has_arbiters(cluster: &Cluster) -> Result<bool, ClusterError> {
    let first = ListParams::default().labels(labels::node::ROLE_ARBITER).limit(1);
    let found = cluster.all::<Node>().list_metadata(&first).await;
    let found = found.map_err(failed("listing", || "Nodes with the arbiter role".to_owned()))?;
    Ok(!found.items.is_empty())
}

/// A release names some of its images differently than templates do.
pub(crate) fn release_images(entries: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let document = entries.get("images.json").map(String::as_str).unwrap_or_default();
    let named: BTreeMap<String, String> = serde_json::from_str(document).unwrap_or_default();
    let mut images = BTreeMap::new();
    for (name, image) in named {
        match name.as_str() {
            "releaseVersion" => {}
            "infraImage" => {
                images.insert("infraImageKey".to_owned(), image);
            }
            "machineConfigOperator" => {
                images.insert("apiServerWatcherKey".to_owned(), image.clone());
                images.insert(name, image);
            }
            _ => {
                images.insert(name, image);
            }
        }
    }
    images
}

/// One entry of a ConfigMap; empty if there is none.
async fn entry(cluster: &Cluster, namespace: &str, name: &str, key: &str) -> Result<Vec<u8>, ClusterError> {
    Ok(entries(cluster, namespace, name)
        .await?
        .remove(key)
        .unwrap_or_default())
}

/// All entries of a ConfigMap, whether it holds them as text or as bytes.
async fn entries(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, Vec<u8>>, ClusterError> {
    let found = cluster.config_map(namespace, name).await?;
    Ok(found.map(entries_of).unwrap_or_default())
}

/// The entries of a ConfigMap, texts and bytes alike.
pub(crate) fn entries_of(config_map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let texts = config_map.data.unwrap_or_default().into_iter();
    let bytes = config_map.binary_data.unwrap_or_default().into_iter();
    texts
        .map(|(key, text)| (key, text.into_bytes()))
        .chain(bytes.map(|(key, bytes)| (key, bytes.0)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_names_its_images_in_its_own_way() {
        let document = r#"{"releaseVersion": "4.99.0", "machineConfigOperator": "mco", "infraImage": "pod", "corednsImage": "dns"}"#;
        let entries = BTreeMap::from([("images.json".to_owned(), document.to_owned())]);
        let images = release_images(&entries);
        let expected = [
            ("apiServerWatcherKey", "mco"),
            ("corednsImage", "dns"),
            ("infraImageKey", "pod"),
            ("machineConfigOperator", "mco"),
        ];
        let expected = expected.map(|(key, image)| (key.to_owned(), image.to_owned()));
        assert_eq!(images, BTreeMap::from(expected));
        assert!(release_images(&BTreeMap::new()).is_empty());
    }
}
