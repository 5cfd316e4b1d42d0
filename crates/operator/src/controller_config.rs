//! The ControllerConfig: the facts about the cluster in the form that rendering uses.
//!
//! Pure. A cluster without such facts gets the defaults of the offline render, so that both render the same; values of
//! an existing ControllerConfig that we cannot determine are kept, so that the operator itself causes no rollout.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ObjectReference;
use mco_api::ControllerConfig;
use mco_api::controller_config::{ControllerConfigSpec, ImageRegistryBundle, NetworkInfo};
use mco_api::foreign::dns::DNS;
use mco_api::foreign::infrastructure::{Infrastructure, InfrastructureStatus, OnPremisesStatus};
use mco_api::foreign::network::Network;
use mco_api::foreign::proxy::ProxyStatus;
use mco_api::vocabulary::{annotations, names};
use mco_core::pipeline::bootstrap::default_controller_config;
use serde_json::Value;

use crate::facts::ObservedFacts;
use crate::options::OperatorOptions;

/// The host number of the DNS service in the service network.
const DNS_HOST: u128 = 10;
const DNS_HOST_V4: u32 = 10;
/// The key of our own image among the images of the templates.
const OPERATOR_IMAGE: &str = "machineConfigOperator";

/// Returns the ControllerConfig for the facts. `authorities` are the CAs with which machines verify the config server.
pub fn controller_config(
    facts: &ObservedFacts,
    authorities: &str,
    options: &OperatorOptions,
) -> ControllerConfig {
    let existing = facts.existing.as_ref().map(|existing| &existing.spec);
    let mut config = default_controller_config();
    let defaults = std::mem::take(&mut config.spec);
    let infrastructure = infrastructure(facts, &defaults, options);
    let status = infrastructure.status.clone().unwrap_or_default();
    let networks = service_networks(facts.network.as_ref());
    let service = facts.dns_service.as_deref();
    config.spec = ControllerConfigSpec {
        additional_trust_bundle: bytes(&facts.trust_bundle),
        base_os_container_image: known(&facts.os_images, "baseOSContainerImage", existing, |spec| {
            &spec.base_os_container_image
        }),
        base_os_extensions_container_image: known(
            &facts.os_images,
            "baseOSExtensionsContainerImage",
            existing,
            |spec| &spec.base_os_extensions_container_image,
        ),
        cloud_provider_ca_data: bytes(&facts.cloud.authorities),
        cloud_provider_config: facts.cloud.config.clone(),
        cluster_dns_ip: dns_address(&networks)
            .or_else(|| service.map(str::to_owned))
            .unwrap_or(defaults.cluster_dns_ip),
        dns: match (&facts.dns, existing) {
            (Some(found), _) => Some(identity_of_dns(found)),
            (None, Some(existing)) => existing.dns.clone(),
            (None, None) => defaults.dns,
        },
        etcd_discovery_domain: status.etcd_discovery_domain.clone(),
        image_registry_bundle_data: bundles(&facts.registry_authorities),
        image_registry_bundle_user_data: bundles(&facts.user_registry_authorities),
        images: images(facts, existing, options),
        ip_families: families(&networks, service).unwrap_or(defaults.ip_families),
        kube_api_server_serving_ca_data: client_authorities(facts, existing),
        network: mtu_migration(facts.network.as_ref()),
        network_type: network_type(facts.network.as_ref()),
        os_image_url: known(&facts.os_images, "osImageURL", existing, |spec| {
            &spec.os_image_url
        }),
        platform: platform_name(&status, existing),
        proxy: facts
            .proxy
            .as_ref()
            .and_then(|proxy| in_use(proxy.status.as_ref())),
        pull_secret: facts.has_pull_secret.then(pull_secret),
        release_image: release_image(facts, existing),
        root_ca_data: ByteString(authorities.as_bytes().to_vec()),
        infra: Some(infrastructure),
        internal_registry_pull_secret: facts.registry_pull_secret.clone().map(ByteString),
    };
    config.metadata.annotations = Some(annotations_of(facts, options));
    config
}

/// Makes the ControllerConfig of a cluster without a config server, which has no CAs, acceptable to an API server: the
/// field is required, and an empty text is no valid byte string.
pub fn fill_authorities(config: &mut ControllerConfig) {
    let authorities = &mut config.spec.root_ca_data.0;
    if authorities.is_empty() {
        authorities.push(b'\n');
    }
}

/// Returns the manifest to apply, without the fields that others own.
pub fn manifest(config: &ControllerConfig) -> Result<Value, serde_json::Error> {
    let mut manifest = serde_json::to_value(config)?;
    if let Some(spec) = manifest.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("internalRegistryPullSecret").is_some_and(Value::is_null)
    {
        spec.remove("internalRegistryPullSecret");
    }
    Ok(manifest)
}

/// Requests that machines reload the API server's CA certificates.
pub fn report_rotation(config: &mut ControllerConfig) {
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotations.insert(annotations::SERVICE_CA_ROTATE.to_owned(), "true".to_owned());
}

/// Returns the release that the cluster runs.
pub fn release_version(facts: Option<&ObservedFacts>, options: &OperatorOptions) -> String {
    let desired = facts
        .and_then(|facts| facts.cluster_version.as_ref())
        .and_then(|version| version.status.as_ref())
        .map(|status| status.desired.version.clone())
        .filter(|version| !version.is_empty());
    let chosen = options.release_version.clone().or(desired);
    chosen.unwrap_or_else(|| options.version.clone())
}

/// Returns the address of the config server for machines: a host or an address, optionally with a port.
pub fn config_server(infrastructure: Option<&Infrastructure>, options: &OperatorOptions) -> Option<String> {
    if let Some(server) = &options.config_server {
        return Some(server.clone());
    }
    let status = infrastructure.and_then(|infrastructure| infrastructure.status.as_ref())?;
    let addresses = addresses(status);
    // On these platforms name resolution is part of the configuration that the machine is about to fetch.
    let by_address = match platform(status) {
        "BareMetal" | "OpenStack" | "oVirt" | "VSphere" => addresses.into_iter().next(),
        _ => None,
    };
    by_address.or_else(|| host_of(&status.api_server_internal_uri))
}

/// Returns every name and address at which machines may reach the config server.
pub fn server_hosts(infrastructure: Option<&Infrastructure>, options: &OperatorOptions) -> Vec<String> {
    let status = infrastructure.and_then(|infrastructure| infrastructure.status.as_ref());
    let mut hosts: Vec<String> = options
        .config_server
        .as_deref()
        .and_then(|server| host_of(&format!("https://{server}")))
        .into_iter()
        .collect();
    if let Some(status) = status {
        hosts.extend(host_of(&status.api_server_internal_uri));
        hosts.extend(addresses(status));
    }
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn annotations_of(facts: &ObservedFacts, options: &OperatorOptions) -> BTreeMap<String, String> {
    let all = [
        (annotations::GENERATED_BY_VERSION, options.version.as_str()),
        (annotations::SERVICE_CA_ROTATE, "false"),
    ];
    let mut all: BTreeMap<String, String> = all
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    all.insert(
        annotations::RELEASE_IMAGE_VERSION.to_owned(),
        release_version(Some(facts), options),
    );
    all
}

/// Returns the cluster's own Infrastructure, or the default one with the known facts of a plain cluster.
fn infrastructure(
    facts: &ObservedFacts,
    defaults: &ControllerConfigSpec,
    options: &OperatorOptions,
) -> Infrastructure {
    if let Some(found) = &facts.infrastructure {
        let mut infrastructure = found.clone();
        infrastructure.metadata = kube::api::ObjectMeta {
            name: found.metadata.name.clone(),
            ..kube::api::ObjectMeta::default()
        };
        return infrastructure;
    }
    let mut infrastructure = defaults.infra.clone().unwrap_or_default();
    let known = options
        .api_server_url
        .clone()
        .or_else(|| facts.published_api_server.clone());
    if let Some(url) = known {
        let status = infrastructure.status.get_or_insert_default();
        status.api_server_internal_uri.clone_from(&url);
        status.api_server_url = url;
    }
    infrastructure
}

fn identity_of_dns(found: &DNS) -> DNS {
    let mut dns = found.clone();
    dns.metadata = kube::api::ObjectMeta {
        name: found.metadata.name.clone(),
        ..kube::api::ObjectMeta::default()
    };
    dns
}

fn bytes(found: &[u8]) -> Option<ByteString> {
    (!found.is_empty()).then(|| ByteString(found.to_vec()))
}

/// Returns the release's images, else those of the existing ControllerConfig.
fn known(
    found: &BTreeMap<String, String>,
    key: &str,
    existing: Option<&ControllerConfigSpec>,
    field: impl Fn(&ControllerConfigSpec) -> &String,
) -> String {
    found
        .get(key)
        .or_else(|| existing.map(field))
        .cloned()
        .unwrap_or_default()
}

fn images(
    facts: &ObservedFacts,
    existing: Option<&ControllerConfigSpec>,
    options: &OperatorOptions,
) -> BTreeMap<String, String> {
    if !facts.images.is_empty() {
        return facts.images.clone();
    }
    let mut images = existing.map(|spec| spec.images.clone()).unwrap_or_default();
    // An existing list without our image belongs to another implementation.
    let is_named = images.is_empty() || images.contains_key(OPERATOR_IMAGE);
    if is_named && !options.image.is_empty() {
        images.insert(OPERATOR_IMAGE.to_owned(), options.image.clone());
    }
    images
}

/// Returns the release that the cluster was installed with. The current one is in the ClusterVersion, which readers use
/// first.
fn release_image(facts: &ObservedFacts, existing: Option<&ControllerConfigSpec>) -> String {
    let status = facts
        .cluster_version
        .as_ref()
        .and_then(|version| version.status.as_ref());
    let desired = status.map(|status| status.desired.image.clone());
    existing
        .map(|spec| spec.release_image.clone())
        .or(desired)
        .unwrap_or_default()
}

/// Returns the platform in the spelling of the existing ControllerConfig: other implementations write it in lower case.
fn platform_name(status: &InfrastructureStatus, existing: Option<&ControllerConfigSpec>) -> String {
    let wanted = platform(status);
    let written = existing.map(|spec| &spec.platform);
    written
        .filter(|written| written.eq_ignore_ascii_case(wanted))
        .map_or_else(|| status.platform.clone(), String::clone)
}

/// Returns the CAs for client certificates. The installer's CA stays trusted beside later ones, unless the existing
/// ControllerConfig has dropped it: the Go implementation does so once the cluster is installed.
fn client_authorities(facts: &ObservedFacts, existing: Option<&ControllerConfigSpec>) -> ByteString {
    let (initial, current) = (&facts.initial_client_authorities, &facts.client_authorities);
    if current.is_empty() {
        return ByteString(initial.clone());
    }
    let current_text = String::from_utf8_lossy(current);
    let initial_text = String::from_utf8_lossy(initial);
    let in_force = existing.map(|spec| &spec.kube_api_server_serving_ca_data.0);
    let is_dropped = in_force.is_some_and(|in_force| {
        !in_force.is_empty() && !String::from_utf8_lossy(in_force).contains(initial_text.trim())
    });
    if initial.is_empty() || is_dropped || current_text.contains(initial_text.trim()) {
        return ByteString(current.clone());
    }
    ByteString(format!("{}\n{}\n", initial_text.trim(), current_text.trim()).into_bytes())
}

fn pull_secret() -> ObjectReference {
    ObjectReference {
        namespace: Some(names::CONFIG_NAMESPACE.to_owned()),
        name: Some(names::secret::PULL_SECRET.to_owned()),
        ..ObjectReference::default()
    }
}

fn bundles(found: &BTreeMap<String, Vec<u8>>) -> Vec<ImageRegistryBundle> {
    let bundles = found.iter();
    bundles
        .map(|(file, data)| ImageRegistryBundle {
            file: file.clone(),
            data: ByteString(data.clone()),
        })
        .collect()
}

fn in_use(status: Option<&ProxyStatus>) -> Option<ProxyStatus> {
    status
        .filter(|status| **status != ProxyStatus::default())
        .cloned()
}

fn service_networks(network: Option<&Network>) -> Vec<String> {
    let Some(network) = network else {
        return Vec::new();
    };
    let status = network.status.as_ref().map(|status| &status.service_network);
    let current = status.filter(|networks| !networks.is_empty());
    current.unwrap_or(&network.spec.service_network).clone()
}

fn network_type(network: Option<&Network>) -> String {
    let Some(network) = network else {
        return String::new();
    };
    let status = network.status.clone().unwrap_or_default();
    let migration = status.migration.map(|migration| migration.network_type);
    [migration.unwrap_or_default(), status.network_type]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| network.spec.network_type.clone())
}

fn mtu_migration(network: Option<&Network>) -> Option<NetworkInfo> {
    let migration = network?.status.as_ref()?.migration.as_ref()?.mtu.clone()?;
    Some(NetworkInfo {
        mtu_migration: Some(migration),
    })
}

/// Returns the tenth host of the first service network.
fn dns_address(networks: &[String]) -> Option<String> {
    let address = networks.first()?.split('/').next()?.parse::<IpAddr>().ok()?;
    Some(match address {
        IpAddr::V4(base) => Ipv4Addr::from(u32::from(base).wrapping_add(DNS_HOST_V4)).to_string(),
        IpAddr::V6(base) => Ipv6Addr::from(u128::from(base).wrapping_add(DNS_HOST)).to_string(),
    })
}

fn families(networks: &[String], dns_service: Option<&str>) -> Option<String> {
    let is_v6 = |text: &str| {
        let address = text.split('/').next().unwrap_or_default().parse::<IpAddr>();
        address.is_ok_and(|address| address.is_ipv6())
    };
    let families: Vec<bool> = networks.iter().map(|network| is_v6(network)).collect();
    let name = match families.as_slice() {
        [] => return dns_service.map(|address| if is_v6(address) { "IPv6" } else { "IPv4" }.to_owned()),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => {
            if *first {
                "IPv6"
            } else {
                "IPv4"
            }
        }
        [true, ..] => "DualStackIPv6Primary",
        [false, ..] => "DualStack",
    };
    Some(name.to_owned())
}

fn platform(status: &InfrastructureStatus) -> &str {
    let current = status
        .platform_status
        .as_ref()
        .map(|status| status.type_.as_str());
    current
        .filter(|name| !name.is_empty())
        .unwrap_or(&status.platform)
}

/// Returns the internal addresses of the API server, if the platform has any.
fn addresses(status: &InfrastructureStatus) -> Vec<String> {
    let Some(platform) = &status.platform_status else {
        return Vec::new();
    };
    let on_premises = [
        &platform.baremetal,
        &platform.openstack,
        &platform.ovirt,
        &platform.vsphere,
        &platform.nutanix,
    ];
    let all = |status: &OnPremisesStatus| {
        if status.api_server_internal_ips.is_empty() {
            vec![status.api_server_internal_ip.clone()]
        } else {
            status.api_server_internal_ips.clone()
        }
    };
    let found = on_premises.into_iter().flatten().flat_map(all);
    found.filter(|address| !address.is_empty()).collect()
}

/// Returns the host of a URL, without brackets and port.
pub(crate) fn host_of(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None if authority.parse::<Ipv6Addr>().is_ok() => authority,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options() -> OperatorOptions {
        OperatorOptions::new("0.1.0")
    }

    fn network(value: Value) -> Network {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_cluster_that_says_nothing_gets_what_the_offline_render_assumes() {
        let config = controller_config(&ObservedFacts::default(), "", &options());
        assert_eq!(config.spec, default_controller_config().spec);
        let annotations = config.metadata.annotations.unwrap();
        assert_eq!(annotations[annotations::GENERATED_BY_VERSION], "0.1.0");
        assert_eq!(annotations[annotations::RELEASE_IMAGE_VERSION], "0.1.0");
    }

    #[test]
    fn a_plain_cluster_is_asked_for_its_addresses() {
        let facts = ObservedFacts {
            dns_service: Some("fd00::a".to_owned()),
            published_api_server: Some("https://k8s.example.com:6443".to_owned()),
            ..ObservedFacts::default()
        };
        let mut without_server = controller_config(&facts, "", &options());
        fill_authorities(&mut without_server);
        assert_eq!(
            without_server.spec.root_ca_data,
            ByteString(b"\n".to_vec()),
            "it was refused"
        );
        let mut with_server = controller_config(&facts, "PEM", &options());
        fill_authorities(&mut with_server);
        let spec = with_server.spec;
        assert_eq!(
            (spec.cluster_dns_ip.as_str(), spec.ip_families.as_str()),
            ("fd00::a", "IPv6")
        );
        let infra = spec.infra.unwrap();
        assert_eq!(
            infra.status.as_ref().unwrap().api_server_internal_uri,
            "https://k8s.example.com:6443"
        );
        assert_eq!(spec.root_ca_data, ByteString(b"PEM".to_vec()));
        assert_eq!(
            config_server(Some(&infra), &options()).as_deref(),
            Some("k8s.example.com")
        );
    }

    #[test]
    fn the_service_network_gives_the_dns_address_and_the_families() {
        for (networks, address, families) in [
            (vec!["172.30.0.0/16"], "172.30.0.10", "IPv4"),
            (vec!["fd02::/112"], "fd02::a", "IPv6"),
            (vec!["172.30.0.0/16", "fd02::/112"], "172.30.0.10", "DualStack"),
            (
                vec!["fd02::/112", "172.30.0.0/16"],
                "fd02::a",
                "DualStackIPv6Primary",
            ),
        ] {
            let found = network(json!({"status": {"serviceNetwork": networks, "networkType": "OVN"}}));
            let facts = ObservedFacts {
                network: Some(found),
                ..ObservedFacts::default()
            };
            let spec = controller_config(&facts, "", &options()).spec;
            assert_eq!(
                (spec.cluster_dns_ip.as_str(), spec.ip_families.as_str()),
                (address, families)
            );
            assert_eq!(spec.network_type, "OVN");
        }
    }

    #[test]
    fn a_network_that_changes_is_described_as_it_will_be() {
        let found = network(json!({
            "spec": {"networkType": "Old"},
            "status": {"networkType": "Old", "migration": {"networkType": "New", "mtu": {"machine": {"to": 9000}}}},
        }));
        assert_eq!(network_type(Some(&found)), "New");
        let migration = mtu_migration(Some(&found)).unwrap().mtu_migration.unwrap();
        assert_eq!(migration.machine.unwrap().to, Some(9000));
        assert_eq!(
            network_type(Some(&network(json!({"spec": {"networkType": "Old"}})))),
            "Old"
        );
    }

    #[test]
    fn the_controller_config_of_another_implementation_was_rewritten_without_need() {
        let infrastructure = json!({"metadata": {"name": "cluster"},
            "status": {"platform": "None", "platformStatus": {"type": "None"}}});
        let release = json!({"metadata": {"name": "version"}, "status": {"desired": {"version": "4.1", "image": "now"}}});
        let existing = |platform: &str, authorities: &str| {
            let spec = ControllerConfigSpec {
                platform: platform.to_owned(),
                release_image: "installed".to_owned(),
                images: BTreeMap::from([("infraImageKey".to_owned(), "pod".to_owned())]),
                kube_api_server_serving_ca_data: ByteString(authorities.as_bytes().to_vec()),
                ..ControllerConfigSpec::default()
            };
            ControllerConfig::new("machine-config-controller", spec)
        };
        let options = OperatorOptions {
            image: "ours".to_owned(),
            ..options()
        };
        let spec = |existing: ControllerConfig| {
            let facts = ObservedFacts {
                infrastructure: serde_json::from_value(infrastructure.clone()).unwrap(),
                cluster_version: serde_json::from_value(release.clone()).unwrap(),
                initial_client_authorities: b"first\n".to_vec(),
                client_authorities: b"second\n".to_vec(),
                existing: Some(existing),
                ..ObservedFacts::default()
            };
            controller_config(&facts, "", &options).spec
        };
        let kept = spec(existing("none", "second\n"));
        assert_eq!(
            (kept.platform.as_str(), kept.release_image.as_str()),
            ("none", "installed")
        );
        assert_eq!(kept.images.keys().collect::<Vec<_>>(), ["infraImageKey"]);
        assert_eq!(kept.kube_api_server_serving_ca_data.0, b"second\n");
        let changed = spec(existing("aws", "first\n"));
        assert_eq!(changed.platform, "None");
        assert_eq!(changed.kube_api_server_serving_ca_data.0, b"first\nsecond\n");
    }

    #[test]
    fn what_is_in_force_and_cannot_be_found_out_is_kept() {
        let existing = ControllerConfig::new(
            "machine-config-controller",
            ControllerConfigSpec {
                base_os_container_image: "os".to_owned(),
                release_image: "release".to_owned(),
                images: BTreeMap::from([("keepalivedImage".to_owned(), "k".to_owned())]),
                ..ControllerConfigSpec::default()
            },
        );
        let facts = ObservedFacts {
            existing: Some(existing),
            ..ObservedFacts::default()
        };
        let config = controller_config(&facts, "", &options());
        assert_eq!(config.spec.base_os_container_image, "os");
        assert_eq!(config.spec.release_image, "release");
        assert_eq!(config.spec.images["keepalivedImage"], "k");
        let manifest = manifest(&config).unwrap();
        assert_eq!(
            manifest["spec"].get("internalRegistryPullSecret"),
            None,
            "not ours to remove"
        );
        assert_eq!(manifest["spec"]["proxy"], Value::Null, "ours to say");
    }

    #[test]
    fn machines_that_cannot_resolve_names_are_given_an_address() {
        let infrastructure = |platform: &str, member: &str, addresses: &[&str]| -> Infrastructure {
            serde_json::from_value(json!({"metadata": {"name": "cluster"}, "status": {
                "apiServerInternalURI": "https://api-int.example.com:6443",
                "platformStatus": {"type": platform, member: {"apiServerInternalIPs": addresses}},
            }}))
            .unwrap()
        };
        for (name, found, expected) in [
            (
                "bare metal",
                infrastructure("BareMetal", "baremetal", &["fd00::5"]),
                "fd00::5",
            ),
            (
                "vSphere with addresses",
                infrastructure("VSphere", "vsphere", &["192.0.2.5"]),
                "192.0.2.5",
            ),
            (
                "vSphere without",
                infrastructure("VSphere", "vsphere", &[]),
                "api-int.example.com",
            ),
            (
                "a cloud",
                infrastructure("AWS", "nutanix", &["192.0.2.5"]),
                "api-int.example.com",
            ),
        ] {
            assert_eq!(
                config_server(Some(&found), &options()).as_deref(),
                Some(expected),
                "{name}"
            );
        }
        let hosts = server_hosts(
            Some(&infrastructure(
                "BareMetal",
                "baremetal",
                &["192.0.2.5", "fd00::5"],
            )),
            &options(),
        );
        assert_eq!(hosts, ["192.0.2.5", "api-int.example.com", "fd00::5"]);
    }

    #[test]
    fn hosts_are_found_in_every_form_of_a_url() {
        for (url, expected) in [
            ("https://api-int.example.com:6443", Some("api-int.example.com")),
            ("https://[fd00::1]:6443/x", Some("fd00::1")),
            ("https://fd00::1", Some("fd00::1")),
            ("https://192.0.2.1", Some("192.0.2.1")),
            ("https://192.0.2.1:22623", Some("192.0.2.1")),
            ("", None),
        ] {
            assert_eq!(host_of(url).as_deref(), expected, "{url}");
        }
    }
}
