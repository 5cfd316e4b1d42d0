//! Facts about the cluster. OpenShift publishes most of them in its own objects, plain Kubernetes only a few.
//!
//! Only reads. [`crate::controller_config`] decides what they mean.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, Service, ServiceAccount};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::foreign::api_server::APIServer;
use mco_api::foreign::cluster_operator::ClusterOperator;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::dns::DNS;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image::Image;
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::foreign::network::Network;
use mco_api::foreign::proxy::Proxy;
use mco_api::vocabulary::{labels, names};
use mco_core::generators::registry_pull_secret::{self, REGISTRY_OPERATOR, SERVICE_ACCOUNT};
use mco_core::generators::tls_profile::{self, TlsSettings};
use tracing::warn;

use crate::cluster::{ClusterError, OperatorClient, failed};

const CA_BUNDLE: &str = "ca-bundle.crt";
const KUBE_SYSTEM: &str = "kube-system";
const KUBE_PUBLIC: &str = "kube-public";

const CLUSTER_INFO: &str = "cluster-info";
const ROOT_AUTHORITY: &str = "root-ca";
const API_SERVER_CLIENTS: &str = "extension-apiserver-authentication";
/// The ConfigMaps that we read in namespaces with many others.
pub(crate) const CONFIG_MAPS: [(&str, &str); 3] = [
    (KUBE_SYSTEM, ROOT_AUTHORITY),
    (KUBE_SYSTEM, API_SERVER_CLIENTS),
    (KUBE_PUBLIC, CLUSTER_INFO),
];

/// The inputs of the ControllerConfig, as found in the cluster.
#[derive(Clone, Debug, Default)]
pub struct ObservedFacts {
    pub infrastructure: Option<Infrastructure>,
    pub network: Option<Network>,
    pub proxy: Option<Proxy>,
    pub dns: Option<DNS>,
    pub image: Option<Image>,
    /// Settings of the API server, whose TLS profile our components follow.
    pub api_server: Option<APIServer>,
    pub cluster_version: Option<ClusterVersion>,
    pub feature_gate: Option<FeatureGate>,
    /// The current ControllerConfig.
    pub existing: Option<ControllerConfig>,
    /// Address of the DNS service of a plain cluster.
    pub dns_service: Option<String>,
    /// The API server's address in the kubeconfig that a plain cluster publishes.
    pub published_api_server: Option<String>,
    /// The images of the release, by its own names.
    pub images: BTreeMap<String, String>,
    /// The operating system images of the release.
    pub os_images: BTreeMap<String, String>,
    /// CA certificates with which kubelets authenticate the API server.
    pub client_authorities: Vec<u8>,
    /// The initial ones of them; a newly installed cluster has no others.
    pub initial_client_authorities: Vec<u8>,
    /// The CA certificates with which the installer signed the config server's certificate.
    pub installer_authority: String,
    pub trust_bundle: Vec<u8>,
    pub cloud: Cloud,
    pub registry_authorities: BTreeMap<String, Vec<u8>>,
    pub user_registry_authorities: BTreeMap<String, Vec<u8>>,
    pub has_pull_secret: bool,
    /// The credentials with which nodes pull OS images, where the cluster has a registry of its own.
    pub registry_pull_secret: Option<Vec<u8>>,
    pub control_plane: ControlPlane,
    /// A bare-metal cluster downloads the OS of new machines from a fixed address.
    pub downloads_os: bool,
}

/// The configuration of the cloud provider's components.
#[derive(Clone, Debug, Default)]
pub struct Cloud {
    pub config: String,
    pub authorities: Vec<u8>,
}

/// What the nodes show of the control plane.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlPlane {
    /// It is one node.
    pub is_single: bool,
    pub has_arbiters: bool,
}

impl ObservedFacts {
    /// Returns the TLS versions and suites of the API server, if it has a profile of its own. The default profile is that
    /// of our components, which need no options for it.
    pub(crate) fn tls(&self) -> Option<TlsSettings> {
        tls_of(self.api_server.as_ref()?)
    }

    /// Returns the optional kinds that this cluster has, to be watched.
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
        add(self.image.is_some(), ApiResource::erase::<Image>(&()));
        add(
            self.cluster_version.is_some(),
            ApiResource::erase::<ClusterVersion>(&()),
        );
        add(self.api_server.is_some(), ApiResource::erase::<APIServer>(&()));
        add(
            self.feature_gate.is_some(),
            ApiResource::erase::<FeatureGate>(&()),
        );
        kinds
    }
}

/// Groups of facts, each usable while others cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FactGroup {
    /// The platform and the addresses of the cluster.
    Platform,
    /// The current release, the installed one, and their features.
    Release,
    /// The CA that machines trusted before the operator was installed.
    InstallerAuthority,
    /// Facts that only the ControllerConfig needs, which needs all groups.
    Rest,
}

/// The facts that could be read so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownFacts {
    /// Each at its last successful read.
    pub facts: ObservedFacts,
    /// The groups that could never be read yet.
    missing: BTreeSet<FactGroup>,
    /// The errors of the last read.
    problems: Vec<String>,
}

impl KnownFacts {
    /// Returns whether all of these groups have been read at least once.
    pub fn has(&self, parts: &[FactGroup]) -> bool {
        !parts.iter().any(|part| self.missing.contains(part))
    }

    /// Returns why some facts may be stale.
    pub fn problem(&self) -> Option<String> {
        (!self.problems.is_empty()).then(|| self.problems.join("; "))
    }
}

/// Collects results of reads; a failed read keeps the previous value.
struct FactsReader<'a> {
    before: Option<&'a KnownFacts>,
    missing: BTreeSet<FactGroup>,
    problems: Vec<String>,
}

impl FactsReader<'_> {
    fn take<T: Clone + Default>(
        &mut self,
        part: FactGroup,
        read: Result<T, ClusterError>,
        field: impl Fn(&ObservedFacts) -> &T,
    ) -> T {
        let error = match read {
            Ok(found) => return found,
            Err(error) => error,
        };
        self.problems.push(error.to_string());
        if let Some(before) = self.before.filter(|before| before.has(&[part])) {
            return field(&before.facts).clone();
        }
        self.missing.insert(part);
        T::default()
    }
}

/// Reads all facts. Objects that do not exist are left out; those that cannot be read keep their previous value.
pub(crate) async fn gather(cluster: &OperatorClient, before: Option<&KnownFacts>) -> KnownFacts {
    use FactGroup::{InstallerAuthority, Platform, Release, Rest};
    let mut reader = FactsReader {
        before,
        missing: BTreeSet::new(),
        problems: Vec::new(),
    };
    let mut facts = ObservedFacts::default();
    let read = cluster.find(names::SINGLETON).await;
    facts.infrastructure = reader.take(Platform, read, |facts| &facts.infrastructure);
    let read = published_api_server(cluster).await;
    facts.published_api_server = reader.take(Platform, read, |facts| &facts.published_api_server);
    let read = cluster.find(names::SINGLETON).await;
    facts.api_server = reader.take(Platform, read, |facts| &facts.api_server);
    facts.downloads_os = downloads_os(cluster, facts.infrastructure.as_ref()).await;
    let read = cluster.find(names::CLUSTER_VERSION).await;
    facts.cluster_version = reader.take(Release, read, |facts| &facts.cluster_version);
    let read = cluster.find(names::SINGLETON).await;
    facts.feature_gate = reader.take(Release, read, |facts| &facts.feature_gate);
    let read = entry(cluster, KUBE_SYSTEM, ROOT_AUTHORITY, "ca.crt").await;
    let read = read.map(|bytes| text(&bytes));
    facts.installer_authority = reader.take(InstallerAuthority, read, |facts| &facts.installer_authority);

    let read = cluster.find(names::SINGLETON).await;
    facts.network = reader.take(Rest, read, |facts| &facts.network);
    let read = cluster.find(names::SINGLETON).await;
    facts.proxy = reader.take(Rest, read, |facts| &facts.proxy);
    let read = cluster.find(names::SINGLETON).await;
    facts.dns = reader.take(Rest, read, |facts| &facts.dns);
    let read = cluster.find(names::SINGLETON).await;
    facts.image = reader.take(Rest, read, |facts| &facts.image);
    let read = cluster.find(CONTROLLER_CONFIG_NAME).await;
    facts.existing = reader.take(Rest, read, |facts| &facts.existing);
    let read = dns_service(cluster).await;
    facts.dns_service = reader.take(Rest, read, |facts| &facts.dns_service);
    let read = entries(cluster, names::NAMESPACE, names::config_map::IMAGES).await;
    let read = read.map(|entries| release_images(&texts(entries)));
    facts.images = reader.take(Rest, read, |facts| &facts.images);
    let read = entries(cluster, names::NAMESPACE, names::config_map::OS_IMAGE_URL).await;
    facts.os_images = reader.take(Rest, read.map(texts), |facts| &facts.os_images);
    let read = client_authorities(cluster).await;
    facts.client_authorities = reader.take(Rest, read, |facts| &facts.client_authorities);
    let initial = names::config_map::INITIAL_KUBE_API_SERVER_CA;
    let read = entry(cluster, names::CONFIG_NAMESPACE, initial, CA_BUNDLE).await;
    facts.initial_client_authorities = reader.take(Rest, read, |facts| &facts.initial_client_authorities);
    let read = trust_bundle(cluster, facts.proxy.as_ref()).await;
    facts.trust_bundle = reader.take(Rest, read, |facts| &facts.trust_bundle);
    let read = cloud(cluster, facts.infrastructure.as_ref()).await;
    facts.cloud = reader.take(Rest, read, |facts| &facts.cloud);
    let read = entries(cluster, names::CONFIG_MANAGED_NAMESPACE, "image-registry-ca").await;
    facts.registry_authorities = reader.take(Rest, read, |facts| &facts.registry_authorities);
    let read = user_registry_authorities(cluster, facts.image.as_ref()).await;
    facts.user_registry_authorities = reader.take(Rest, read, |facts| &facts.user_registry_authorities);
    let read = cluster
        .secret(names::CONFIG_NAMESPACE, names::secret::PULL_SECRET)
        .await;
    let read = match read {
        Ok(global) => {
            facts.has_pull_secret = global.is_some();
            registry_pull_secret(cluster, global.as_ref(), facts.dns.as_ref()).await
        }
        Err(error) => {
            facts.has_pull_secret = before.is_some_and(|before| before.facts.has_pull_secret);
            Err(error)
        }
    };
    facts.registry_pull_secret = reader.take(Rest, read, |facts| &facts.registry_pull_secret);
    let read = control_plane(cluster).await;
    facts.control_plane = reader.take(Rest, read, |facts| &facts.control_plane);
    KnownFacts {
        facts,
        missing: reader.missing,
        problems: reader.problems,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn texts(entries: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, String> {
    let entries = entries.into_iter();
    entries.map(|(key, value)| (key, text(&value))).collect()
}

async fn trust_bundle(cluster: &OperatorClient, proxy: Option<&Proxy>) -> Result<Vec<u8>, ClusterError> {
    let trusted = proxy.and_then(|proxy| proxy.spec.trusted_ca.as_ref());
    match trusted.filter(|reference| !reference.name.is_empty()) {
        Some(reference) => entry(cluster, names::CONFIG_NAMESPACE, &reference.name, CA_BUNDLE).await,
        None => Ok(Vec::new()),
    }
}

async fn user_registry_authorities(
    cluster: &OperatorClient,
    image: Option<&Image>,
) -> Result<BTreeMap<String, Vec<u8>>, ClusterError> {
    let registries = image.and_then(|image| image.spec.additional_trusted_ca.as_ref());
    match registries.filter(|reference| !reference.name.is_empty()) {
        Some(reference) => entries(cluster, names::CONFIG_NAMESPACE, &reference.name).await,
        None => Ok(BTreeMap::new()),
    }
}

async fn cloud(
    cluster: &OperatorClient,
    infrastructure: Option<&Infrastructure>,
) -> Result<Cloud, ClusterError> {
    let reference = infrastructure.and_then(|infrastructure| infrastructure.spec.cloud_config.as_ref());
    let Some(reference) = reference.filter(|reference| !reference.name.is_empty()) else {
        return Ok(Cloud::default());
    };
    let managed = entries(cluster, names::CONFIG_MANAGED_NAMESPACE, "kube-cloud-config").await?;
    let config = match managed.get("cloud.conf") {
        Some(config) => config.clone(),
        None => entry(cluster, names::CONFIG_NAMESPACE, &reference.name, &reference.key).await?,
    };
    Ok(Cloud {
        config: text(&config),
        authorities: managed.get("ca-bundle.pem").cloned().unwrap_or_default(),
    })
}

/// Returns the client CAs of a plain cluster from the ConfigMap that every API server extension uses.
async fn client_authorities(cluster: &OperatorClient) -> Result<Vec<u8>, ClusterError> {
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
    entry(cluster, KUBE_SYSTEM, API_SERVER_CLIENTS, "client-ca-file").await
}

/// Returns the credentials of the service account for OS images, merged with the global pull secret; `None` where the
/// cluster has no registry of its own, or the account has no credentials yet.
async fn registry_pull_secret(
    cluster: &OperatorClient,
    global: Option<&Secret>,
    dns: Option<&DNS>,
) -> Result<Option<Vec<u8>>, ClusterError> {
    if cluster
        .find::<ClusterOperator>(REGISTRY_OPERATOR)
        .await?
        .is_none()
    {
        return Ok(None);
    }
    let accounts = cluster.within::<ServiceAccount>(names::NAMESPACE);
    let account = accounts.get_opt(SERVICE_ACCOUNT).await;
    let account = account.map_err(failed("reading", || {
        format!("ServiceAccount {}/{SERVICE_ACCOUNT}", names::NAMESPACE)
    }))?;
    let references = account
        .and_then(|account| account.image_pull_secrets)
        .unwrap_or_default();
    let mut found = Vec::new();
    for reference in references {
        found.extend(cluster.secret(names::NAMESPACE, &reference.name).await?);
    }
    let domain = dns.map(|dns| dns.spec.base_domain.as_str());
    let merged = registry_pull_secret::merged(global, &found, domain);
    for problem in merged.left_out {
        warn!("left out of the pull secret for OS images: {problem}");
    }
    Ok(merged.json)
}

async fn dns_service(cluster: &OperatorClient) -> Result<Option<String>, ClusterError> {
    let service = cluster.within::<Service>(KUBE_SYSTEM).get_opt("kube-dns").await;
    let service = service.map_err(failed("reading", || "Service kube-system/kube-dns".to_owned()))?;
    let address = service.and_then(|service| service.spec?.cluster_ip);
    Ok(address.filter(|address| address.parse::<std::net::IpAddr>().is_ok()))
}

/// Returns the API server's address from the kubeconfig that kubeadm publishes.
async fn published_api_server(cluster: &OperatorClient) -> Result<Option<String>, ClusterError> {
    let text = entry(cluster, KUBE_PUBLIC, CLUSTER_INFO, "kubeconfig").await?;
    let Ok(kubeconfig) = kube::config::Kubeconfig::from_yaml(&String::from_utf8_lossy(&text)) else {
        return Ok(None);
    };
    let cluster = kubeconfig.clusters.into_iter().next();
    Ok(cluster.and_then(|cluster| cluster.cluster?.server))
}

fn tls_of(api_server: &APIServer) -> Option<TlsSettings> {
    const VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
    let profile = api_server.spec.tls_security_profile.as_ref()?;
    let settings = tls_profile::settings(Some(profile));
    VERSIONS
        .contains(&settings.min_version.as_str())
        .then_some(settings)
}

/// Returns whether a bare-metal cluster downloads the OS of new machines, which is then never replaced. What cannot be
/// read counts as such, so that an outdated OS is reported.
async fn downloads_os(cluster: &OperatorClient, infrastructure: Option<&Infrastructure>) -> bool {
    let platform =
        infrastructure.and_then(|infrastructure| infrastructure.status.as_ref()?.platform_status.as_ref());
    if platform.is_none_or(|platform| platform.type_ != "BareMetal") {
        return false;
    }
    let kind = ApiResource {
        group: "metal3.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "metal3.io/v1alpha1".to_owned(),
        kind: "Provisioning".to_owned(),
        plural: "provisionings".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(cluster.client(), &kind);
    match api.get("provisioning-configuration").await {
        Ok(found) => {
            let url = found.data.pointer("/spec/provisioningOSDownloadURL");
            url.and_then(serde_json::Value::as_str)
                .is_some_and(|url| !url.is_empty())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        Err(error) => {
            warn!("cannot read Provisioning provisioning-configuration: {error}");
            true
        }
    }
}

async fn control_plane(cluster: &OperatorClient) -> Result<ControlPlane, ClusterError> {
    Ok(ControlPlane {
        is_single: is_single_control_plane(cluster).await?,
        has_arbiters: has_arbiters(cluster).await?,
    })
}

async fn has_arbiters(cluster: &OperatorClient) -> Result<bool, ClusterError> {
    let first = ListParams::default().labels(labels::node::ROLE_ARBITER).limit(1);
    let found = cluster.all::<Node>().list_metadata(&first).await;
    let found = found.map_err(failed("listing", || "Nodes with the arbiter role".to_owned()))?;
    Ok(!found.items.is_empty())
}

async fn is_single_control_plane(cluster: &OperatorClient) -> Result<bool, ClusterError> {
    let mut names = BTreeSet::new();
    for role in [labels::node::ROLE_CONTROL_PLANE, labels::node::ROLE_MASTER] {
        let two = ListParams::default().labels(role).limit(2);
        let found = cluster.all::<Node>().list_metadata(&two).await;
        let found = found.map_err(failed("listing", || "Nodes of the control plane".to_owned()))?;
        names.extend(found.items.into_iter().filter_map(|node| node.metadata.name));
    }
    Ok(names.len() == 1)
}

/// The images of the templates, by their names there and in a release's `images.json`. A template prints `<no value>`
/// for a missing image, so each has an entry, possibly empty.
///
/// `machineConfigOperator` is an image with the programs `machine-config-daemon` and `apiserver-watcher`, run as root: the
/// release's, or ours, which has them as links.
const TEMPLATE_IMAGES: [(&str, &str); 9] = [
    ("machineConfigOperator", "machineConfigOperator"),
    ("apiServerWatcherKey", "machineConfigOperator"),
    ("infraImageKey", "infraImage"),
    ("keepalivedImage", "keepalivedImage"),
    ("corednsImage", "corednsImage"),
    ("haproxyImage", "haproxyImage"),
    ("baremetalRuntimeCfgImage", "baremetalRuntimeCfgImage"),
    ("kubeRbacProxyImage", "kubeRbacProxy"),
    ("dockerRegistryImage", "dockerRegistryImage"),
];

/// Returns the images of a release by their template names, empty if the release has none.
pub(crate) fn release_images(entries: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let document = entries.get("images.json").map(String::as_str).unwrap_or_default();
    let named: BTreeMap<String, String> = serde_json::from_str(document).unwrap_or_default();
    if named.is_empty() {
        return BTreeMap::new();
    }
    let image = |(key, name): (&str, &str)| (key.to_owned(), named.get(name).cloned().unwrap_or_default());
    TEMPLATE_IMAGES.map(image).into()
}

/// Returns one entry of a ConfigMap, or an empty string if there is none.
async fn entry(
    cluster: &OperatorClient,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<Vec<u8>, ClusterError> {
    Ok(entries(cluster, namespace, name)
        .await?
        .remove(key)
        .unwrap_or_default())
}

/// Returns all entries of a ConfigMap, text and binary.
async fn entries(
    cluster: &OperatorClient,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, Vec<u8>>, ClusterError> {
    let found = cluster.config_map(namespace, name).await?;
    Ok(found.map(entries_of).unwrap_or_default())
}

/// Converts a ConfigMap to its entries, text and binary.
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
    fn images_that_no_template_uses_were_added_to_the_controller_config() {
        let document = r#"{"releaseVersion": "4.99.0", "machineConfigOperator": "mco", "infraImage": "pod", "corednsImage": "dns",
            "kubeRbacProxy": "proxy", "oauthProxy": "unused"}"#;
        let entries = BTreeMap::from([("images.json".to_owned(), document.to_owned())]);
        let images = release_images(&entries);
        let expected = [
            ("apiServerWatcherKey", "mco"),
            ("baremetalRuntimeCfgImage", ""),
            ("corednsImage", "dns"),
            ("dockerRegistryImage", ""),
            ("haproxyImage", ""),
            ("infraImageKey", "pod"),
            ("keepalivedImage", ""),
            ("kubeRbacProxyImage", "proxy"),
            ("machineConfigOperator", "mco"),
        ];
        let expected = expected.map(|(key, image)| (key.to_owned(), image.to_owned()));
        assert_eq!(images, BTreeMap::from(expected));
        assert!(release_images(&BTreeMap::new()).is_empty());
    }
}
