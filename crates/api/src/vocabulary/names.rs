//! Names of objects that several components agree on.

/// The namespace of all components.
pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// The namespace of machine templates and their user data.
pub const MACHINE_API_NAMESPACE: &str = "openshift-machine-api";
/// The namespace of what the user configures for the whole cluster.
pub const CONFIG_NAMESPACE: &str = "openshift-config";
/// The namespace of what operators publish for the whole cluster.
pub const CONFIG_MANAGED_NAMESPACE: &str = "openshift-config-managed";

/// The name of most resources of which a cluster has one.
pub const SINGLETON: &str = "cluster";
/// The name of the ClusterVersion.
pub const CLUSTER_VERSION: &str = "version";
/// The name of our ClusterOperator.
pub const CLUSTER_OPERATOR: &str = "machine-config";
/// The field manager that other implementations use as well.
pub const FIELD_MANAGER: &str = "machine-config-operator";

/// Names of the pools that belong to the product.
pub mod pool {
    pub const MASTER: &str = "master";
    pub const WORKER: &str = "worker";
    pub const ARBITER: &str = "arbiter";

    /// Returns whether a pool is user-defined.
    pub fn is_custom(name: &str) -> bool {
        !matches!(name, MASTER | WORKER | ARBITER)
    }
}

/// Names of components, also of their workloads and service accounts.
pub mod component {
    pub const OPERATOR: &str = "machine-config-operator";
    pub const CONTROLLER: &str = "machine-config-controller";
    pub const DAEMON: &str = "machine-config-daemon";
    pub const SERVER: &str = "machine-config-server";
    pub const OS_BUILDER: &str = "machine-os-builder";
}

/// Names of secrets.
pub mod secret {
    pub const PULL_SECRET: &str = "pull-secret";
    pub const SERVER_CA: &str = "machine-config-server-ca";
    pub const SERVER_TLS: &str = "machine-config-server-tls";
    /// The hashes of the tokens with which machines fetch their first configuration.
    pub const SERVER_TOKENS: &str = "machine-config-server-tokens";
    pub const NODE_BOOTSTRAPPER_TOKEN: &str = "node-bootstrapper-token";
    /// The copy of the cluster's pull secret that image builds use by default.
    pub const GLOBAL_PULL_SECRET_COPY: &str = "global-pull-secret-copy";
    /// The subscription certificates of the cluster, in the namespace of managed configuration.
    pub const ENTITLEMENT: &str = "etc-pki-entitlement";
    /// The keys with which image builds verify packages.
    pub const RPM_KEYS: &str = "etc-pki-rpm-gpg";
    /// The key of the hashes that are the versions of Secrets.
    pub const SECRET_VERSIONS_KEY: &str = "machine-config-secret-versions-key";

    /// Returns the name of the copy of the subscription certificates for the image builds of a pool.
    pub fn entitlement_of(pool: &str) -> String {
        format!("{ENTITLEMENT}-{pool}")
    }

    /// Returns the name of the secret with the pointer config of a pool's new machines.
    pub fn user_data(pool: &str) -> String {
        format!("{pool}-user-data-managed")
    }
}

/// Names of config maps.
pub mod config_map {
    pub const SERVER_CA: &str = "machine-config-server-ca";
    /// The metadata of a release's boot images.
    pub const BOOT_IMAGES: &str = "coreos-bootimages";
    pub const OS_IMAGE_URL: &str = "machine-config-osimageurl";
    /// The images that a release is made of.
    pub const IMAGES: &str = "machine-config-operator-images";
    pub const INITIAL_KUBE_API_SERVER_CA: &str = "initial-kube-apiserver-server-ca";
    pub const KUBECONFIG_DATA: &str = "kubeconfig-data";
    pub const KUBE_API_SERVER_CA: &str = "kube-apiserver-server-ca";
    pub const MERGED_TRUSTED_IMAGE_REGISTRY_CA: &str = "merged-trusted-image-registry-ca";
    /// The yum repositories of image builds.
    pub const YUM_REPOS: &str = "etc-yum-repos-d";
    /// The versions of the Secrets that MachineConfigs may have written to nodes.
    pub const SECRET_VERSIONS: &str = "machine-config-secret-versions";
}

/// Names of the objects of an image build.
pub mod build {
    /// Returns the name of the Job.
    pub fn job(build: &str) -> String {
        format!("build-{build}")
    }

    /// Returns the name of the ConfigMap with the digest of the image.
    pub fn digest(build: &str) -> String {
        format!("digest-{build}")
    }

    pub fn containerfile(build: &str) -> String {
        format!("containerfile-{build}")
    }

    pub fn machine_config(build: &str) -> String {
        format!("mc-{build}")
    }

    pub fn trust_bundle(build: &str) -> String {
        format!("additionaltrustbundle-{build}")
    }

    pub fn policy(build: &str) -> String {
        format!("etc-policy-{build}")
    }

    pub fn registries(build: &str) -> String {
        format!("etc-registries-{build}")
    }

    /// Returns the name of the Secret with which base images are pulled.
    pub fn base_secret(build: &str) -> String {
        format!("base-{build}")
    }

    /// Returns the name of the Secret with which the image is pushed.
    pub fn final_secret(build: &str) -> String {
        format!("final-{build}")
    }
}

/// The prefix of the names of rendered MachineConfigs.
pub const RENDERED_PREFIX: &str = "rendered-";

/// Returns the name of the rendered MachineConfig of a pool with this hash.
pub fn rendered(pool: &str, hash: &str) -> String {
    format!("{RENDERED_PREFIX}{pool}-{hash}")
}

/// Returns the name of the MachineConfig generated from a pool's KubeletConfig. A suffix distinguishes several on one
/// pool.
pub fn generated_kubelet(pool: &str, suffix: Option<u32>) -> String {
    suffixed(format!("99-{pool}-generated-kubelet"), suffix)
}

/// Returns the name of the MachineConfig generated from a pool's ContainerRuntimeConfig.
pub fn generated_container_runtime(pool: &str, suffix: Option<u32>) -> String {
    suffixed(format!("99-{pool}-generated-containerruntime"), suffix)
}

/// Returns the name of the MachineConfig generated from the cluster's Node settings.
pub fn generated_node_kubelet(pool: &str) -> String {
    format!("97-{pool}-generated-kubelet")
}

/// Returns the name of the MachineConfig generated from the cluster's feature gates.
pub fn generated_feature_kubelet(pool: &str) -> String {
    format!("98-{pool}-generated-kubelet")
}

/// Returns the name of the MachineConfig generated from the cluster's registry settings.
pub fn generated_registries(pool: &str) -> String {
    format!("99-{pool}-generated-registries")
}

/// Returns the name of the MachineConfig generated from the cluster's credential providers.
pub fn generated_credential_provider(pool: &str) -> String {
    format!("97-{pool}-generated-credentialproviderconfig")
}

/// Returns the name of the MachineConfig of a pool whose image was provided by the installation.
pub fn pre_built_image(pool: &str) -> String {
    format!("10-prebuiltimage-osimageurl-{pool}")
}

fn suffixed(name: String, suffix: Option<u32>) -> String {
    match suffix {
        Some(suffix) => format!("{name}-{suffix}"),
        None => name,
    }
}
