//! The objects that exist from the first start: the system namespaces, the administrator's role, and the Service of the
//! API server itself.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::auth::Credentials;
use crate::crd;
use crate::error::ApiError;
use crate::registry::{ObjectRegistry, ObjectTarget, WriteContext};

/// The port in the Service of a kube-apiserver that was not started with another one.
const DEFAULT_PORT: u16 = 6443;
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];
const MANAGER: &str = "apiserver";

/// Creates the objects that are missing.
pub(crate) async fn prepare(registry: &ObjectRegistry) -> Result<(), ApiError> {
    crd::reload(registry);
    for namespace in NAMESPACES {
        let object = json!({"metadata": {"name": namespace}});
        ensure(registry, ("", "v1", "namespaces"), namespace, object).await?;
    }
    ensure_service(registry).await?;
    let group = "rbac.authorization.k8s.io";
    let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let role = json!({"metadata": {"name": "cluster-admin", "labels": labels}, "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]}]});
    ensure(registry, (group, "v1", "clusterroles"), "cluster-admin", role).await?;
    let binding = json!({"metadata": {"name": "cluster-admin", "labels": labels},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:masters"}]});
    ensure(
        registry,
        (group, "v1", "clusterrolebindings"),
        "cluster-admin",
        binding,
    )
    .await
}

async fn ensure(
    registry: &ObjectRegistry,
    resource: (&str, &str, &str),
    name: &str,
    object: Value,
) -> Result<(), ApiError> {
    let (group, version, plural) = resource;
    let target = registry.cluster_target(group, version, plural, name)?;
    ensure_target(registry, &target, object).await
}

/// Creates the Service `default/kubernetes`, which clients expect in every cluster. It is headless: no address of a
/// cluster network leads to this process.
async fn ensure_service(registry: &ObjectRegistry) -> Result<(), ApiError> {
    let service = registry.cluster_target("", "v1", "services", "kubernetes")?;
    let target = ObjectTarget {
        namespace: "default".to_owned(),
        ..service
    };
    let object = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "None", "ports": [
            {"name": "https", "protocol": "TCP", "port": 443, "targetPort": DEFAULT_PORT}]},
    });
    ensure_target(registry, &target, object).await
}

async fn ensure_target(
    registry: &ObjectRegistry,
    target: &ObjectTarget,
    object: Value,
) -> Result<(), ApiError> {
    if registry.get(target).is_ok() {
        return Ok(());
    }
    let Value::Object(object) = object else {
        return Err(ApiError::internal("a bootstrap object must be an object"));
    };
    match registry
        .create(target, &WriteContext::internal(MANAGER), object)
        .await
    {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

/// Returns a self-contained kubeconfig.
pub(crate) fn kubeconfig(url: &str, bundle: &str, user: &str, credentials: &Credentials) -> String {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: mco\n  cluster:\n    server: {url}\n    certificate-authority-data: {}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: mco\n  context:\n    cluster: mco\n    user: {user}\ncurrent-context: mco\npreferences: {{}}\n",
        encode(bundle),
        encode(&credentials.certificate),
        encode(&credentials.key),
    )
}
