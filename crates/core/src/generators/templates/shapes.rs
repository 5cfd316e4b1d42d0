//! The fields that templates can address: the Go names of a ControllerConfig's fields and of the types embedded in
//! it.
//!
//! Template authors write `.Infra.Status.PlatformStatus.BareMetal.IngressIPs`, not JSON names. A field that the
//! cluster omits must still be present with its zero value, so the names are listed here.

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum TemplateFieldKind {
    Text,
    /// Base64 in JSON, the decoded text in a template.
    Bytes,
    Texts,
    /// A map, whose keys are data, not field names.
    Map,
    /// Always present, with zero values if unset.
    Struct(&'static [TemplateField]),
    /// Absent unless set.
    Pointer(&'static [TemplateField]),
    Structs(&'static [TemplateField]),
    /// A number or boolean that is absent unless set.
    Scalar,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateField {
    pub go: &'static str,
    pub json: &'static str,
    pub kind: TemplateFieldKind,
}

const fn field(go: &'static str, json: &'static str, kind: TemplateFieldKind) -> TemplateField {
    TemplateField { go, json, kind }
}

use TemplateFieldKind::{Bytes, Map, Pointer, Scalar, Struct, Structs, Text, Texts};

/// The spec of a ControllerConfig, whose fields are the top level of the data.
pub(super) const CONTROLLER_CONFIG: &[TemplateField] = &[
    field("ClusterDNSIP", "clusterDNSIP", Text),
    field("CloudProviderConfig", "cloudProviderConfig", Text),
    field("Platform", "platform", Text),
    field("EtcdDiscoveryDomain", "etcdDiscoveryDomain", Text),
    field("KubeAPIServerServingCAData", "kubeAPIServerServingCAData", Bytes),
    field("RootCAData", "rootCAData", Bytes),
    field("CloudProviderCAData", "cloudProviderCAData", Bytes),
    field("AdditionalTrustBundle", "additionalTrustBundle", Bytes),
    field(
        "ImageRegistryBundleUserData",
        "imageRegistryBundleUserData",
        Structs(REGISTRY_BUNDLE),
    ),
    field(
        "ImageRegistryBundleData",
        "imageRegistryBundleData",
        Structs(REGISTRY_BUNDLE),
    ),
    field("InternalRegistryPullSecret", "internalRegistryPullSecret", Bytes),
    field("Images", "images", Map),
    field("BGPVIPPeersJSON", "bgpVIPPeersJSON", Text),
    field("BaseOSContainerImage", "baseOSContainerImage", Text),
    field(
        "BaseOSExtensionsContainerImage",
        "baseOSExtensionsContainerImage",
        Text,
    ),
    field("OSImageURL", "osImageURL", Text),
    field("ReleaseImage", "releaseImage", Text),
    field("Proxy", "proxy", Pointer(PROXY)),
    field("Infra", "infra", Pointer(INFRASTRUCTURE)),
    field("DNS", "dns", Pointer(DNS)),
    field("IPFamilies", "ipFamilies", Text),
    field("NetworkType", "networkType", Text),
    field("Network", "network", Pointer(NETWORK)),
];

const REGISTRY_BUNDLE: &[TemplateField] = &[field("File", "file", Text), field("Data", "data", Bytes)];

const PROXY: &[TemplateField] = &[
    field("HTTPProxy", "httpProxy", Text),
    field("HTTPSProxy", "httpsProxy", Text),
    field("NoProxy", "noProxy", Text),
];

const NETWORK: &[TemplateField] = &[field("MTUMigration", "mtuMigration", Pointer(MTU_MIGRATION))];
const MTU_MIGRATION: &[TemplateField] = &[
    field("Network", "network", Pointer(MTU_VALUES)),
    field("Machine", "machine", Pointer(MTU_VALUES)),
];
const MTU_VALUES: &[TemplateField] = &[field("To", "to", Scalar), field("From", "from", Scalar)];

const OBJECT_META: &[TemplateField] = &[
    field("Name", "name", Text),
    field("Namespace", "namespace", Text),
    field("UID", "uid", Text),
    field("ResourceVersion", "resourceVersion", Text),
    field("Labels", "labels", Map),
    field("Annotations", "annotations", Map),
];

const DNS: &[TemplateField] = &[
    field("Kind", "kind", Text),
    field("APIVersion", "apiVersion", Text),
    field("ObjectMeta", "metadata", Struct(OBJECT_META)),
    field("Spec", "spec", Struct(DNS_SPEC)),
];
const DNS_SPEC: &[TemplateField] = &[
    field("BaseDomain", "baseDomain", Text),
    field("PublicZone", "publicZone", Pointer(DNS_ZONE)),
    field("PrivateZone", "privateZone", Pointer(DNS_ZONE)),
    field("Platform", "platform", Struct(&[field("Type", "type", Text)])),
];
const DNS_ZONE: &[TemplateField] = &[field("ID", "id", Text), field("Tags", "tags", Map)];

const INFRASTRUCTURE: &[TemplateField] = &[
    field("Kind", "kind", Text),
    field("APIVersion", "apiVersion", Text),
    field("ObjectMeta", "metadata", Struct(OBJECT_META)),
    field("Spec", "spec", Struct(INFRASTRUCTURE_SPEC)),
    field("Status", "status", Struct(INFRASTRUCTURE_STATUS)),
];
const INFRASTRUCTURE_SPEC: &[TemplateField] = &[
    field(
        "CloudConfig",
        "cloudConfig",
        Struct(&[field("Name", "name", Text), field("Key", "key", Text)]),
    ),
    field(
        "PlatformSpec",
        "platformSpec",
        Struct(&[field("Type", "type", Text)]),
    ),
];
const INFRASTRUCTURE_STATUS: &[TemplateField] = &[
    field("InfrastructureName", "infrastructureName", Text),
    field("Platform", "platform", Text),
    field("PlatformStatus", "platformStatus", Pointer(PLATFORM_STATUS)),
    field("EtcdDiscoveryDomain", "etcdDiscoveryDomain", Text),
    field("APIServerURL", "apiServerURL", Text),
    field("APIServerInternalURL", "apiServerInternalURI", Text),
    field("ControlPlaneTopology", "controlPlaneTopology", Text),
    field("InfrastructureTopology", "infrastructureTopology", Text),
    field("CPUPartitioning", "cpuPartitioning", Text),
];

const PLATFORM_STATUS: &[TemplateField] = &[
    field("Type", "type", Text),
    field("AWS", "aws", Pointer(AWS)),
    field("Azure", "azure", Pointer(AZURE)),
    field("GCP", "gcp", Pointer(GCP)),
    field("BareMetal", "baremetal", Pointer(ON_PREMISES)),
    field("OpenStack", "openstack", Pointer(ON_PREMISES)),
    field("Ovirt", "ovirt", Pointer(ON_PREMISES)),
    field("VSphere", "vsphere", Pointer(ON_PREMISES)),
    field("IBMCloud", "ibmcloud", Pointer(IBM_CLOUD)),
    field("Kubevirt", "kubevirt", Pointer(ON_PREMISES)),
    field("EquinixMetal", "equinixMetal", Pointer(ON_PREMISES)),
    field("PowerVS", "powervs", Pointer(POWER_VS)),
    field("AlibabaCloud", "alibabaCloud", Pointer(ALIBABA_CLOUD)),
    field("Nutanix", "nutanix", Pointer(ON_PREMISES)),
    field("External", "external", Pointer(EXTERNAL)),
];

const ON_PREMISES: &[TemplateField] = &[
    field("APIServerInternalIP", "apiServerInternalIP", Text),
    field("APIServerInternalIPs", "apiServerInternalIPs", Texts),
    field("IngressIP", "ingressIP", Text),
    field("IngressIPs", "ingressIPs", Texts),
    field("NodeDNSIP", "nodeDNSIP", Text),
    field("CloudName", "cloudName", Text),
    field(
        "LoadBalancer",
        "loadBalancer",
        Pointer(&[field("Type", "type", Text)]),
    ),
    field("DNSRecordsType", "dnsRecordsType", Text),
    field("MachineNetworks", "machineNetworks", Texts),
];

const AWS: &[TemplateField] = &[
    field("Region", "region", Text),
    field("ServiceEndpoints", "serviceEndpoints", Structs(SERVICE_ENDPOINT)),
    field("ResourceTags", "resourceTags", Structs(KEY_VALUE)),
    field(
        "CloudLoadBalancerConfig",
        "cloudLoadBalancerConfig",
        Pointer(CLOUD_LOAD_BALANCER),
    ),
    field("IPFamily", "ipFamily", Text),
];
const AZURE: &[TemplateField] = &[
    field("ResourceGroupName", "resourceGroupName", Text),
    field("NetworkResourceGroupName", "networkResourceGroupName", Text),
    field("CloudName", "cloudName", Text),
    field("ARMEndpoint", "armEndpoint", Text),
    field("ResourceTags", "resourceTags", Structs(KEY_VALUE)),
    field(
        "CloudLoadBalancerConfig",
        "cloudLoadBalancerConfig",
        Pointer(CLOUD_LOAD_BALANCER),
    ),
    field("IPFamily", "ipFamily", Text),
];
const GCP: &[TemplateField] = &[
    field("ProjectID", "projectID", Text),
    field("Region", "region", Text),
    field("ResourceLabels", "resourceLabels", Structs(KEY_VALUE)),
    field("ResourceTags", "resourceTags", Structs(KEY_VALUE)),
    field(
        "CloudLoadBalancerConfig",
        "cloudLoadBalancerConfig",
        Pointer(CLOUD_LOAD_BALANCER),
    ),
    field("ServiceEndpoints", "serviceEndpoints", Structs(SERVICE_ENDPOINT)),
];
const CLOUD_LOAD_BALANCER: &[TemplateField] = &[
    field("DNSType", "dnsType", Text),
    field("ClusterHosted", "clusterHosted", Pointer(LOAD_BALANCER_ADDRESSES)),
];
const LOAD_BALANCER_ADDRESSES: &[TemplateField] = &[
    field("APIIntLoadBalancerIPs", "apiIntLoadBalancerIPs", Texts),
    field("APILoadBalancerIPs", "apiLoadBalancerIPs", Texts),
    field("IngressLoadBalancerIPs", "ingressLoadBalancerIPs", Texts),
];
const SERVICE_ENDPOINT: &[TemplateField] = &[field("Name", "name", Text), field("URL", "url", Text)];
const KEY_VALUE: &[TemplateField] = &[
    field("Key", "key", Text),
    field("Value", "value", Text),
    field("ParentID", "parentID", Text),
];
const IBM_CLOUD: &[TemplateField] = &[
    field("Location", "location", Text),
    field("ResourceGroupName", "resourceGroupName", Text),
    field("ProviderType", "providerType", Text),
    field("CISInstanceCRN", "cisInstanceCRN", Text),
    field("DNSInstanceCRN", "dnsInstanceCRN", Text),
    field("ServiceEndpoints", "serviceEndpoints", Structs(SERVICE_ENDPOINT)),
];
const POWER_VS: &[TemplateField] = &[
    field("Region", "region", Text),
    field("Zone", "zone", Text),
    field("ResourceGroup", "resourceGroup", Text),
    field("ServiceEndpoints", "serviceEndpoints", Structs(SERVICE_ENDPOINT)),
    field("CISInstanceCRN", "cisInstanceCRN", Text),
    field("DNSInstanceCRN", "dnsInstanceCRN", Text),
];
const ALIBABA_CLOUD: &[TemplateField] = &[
    field("Region", "region", Text),
    field("ResourceGroupID", "resourceGroupID", Text),
    field("ResourceTags", "resourceTags", Structs(KEY_VALUE)),
];
const EXTERNAL: &[TemplateField] = &[field(
    "CloudControllerManager",
    "cloudControllerManager",
    Struct(&[field("State", "state", Text)]),
)];
