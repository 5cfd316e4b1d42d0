//! OS image streams of pools.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::vocabulary::{annotations, names};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use mco_simulator::Behaviour;
use serde_json::{Value, json};

use crate::cluster::{Cluster, VERSION, eventually, holds, message, target};

fn image(digit: char) -> String {
    format!(
        "quay.example.com/release/os@sha256:{}",
        digit.to_string().repeat(64)
    )
}

fn tag(name: &str, stream: &str, digit: char) -> Value {
    json!({
        "name": name,
        "annotations": {"io.openshift.os.streamclass": stream},
        "from": {"kind": "DockerImage", "name": image(digit)},
    })
}

fn release() -> ConfigMap {
    let tags = [
        tag("rhel-coreos", "rhel-9", '1'),
        tag("rhel-coreos-extensions", "rhel-9", '2'),
        tag("rhel-coreos-10", "rhel-10", '3'),
        tag("rhel-coreos-10-extensions", "rhel-10", '4'),
    ];
    release_of("4.21.0", &tags)
}

fn release_of(version: &str, tags: &[Value]) -> ConfigMap {
    let references = json!({
        "apiVersion": "image.openshift.io/v1",
        "kind": "ImageStream",
        "metadata": {"name": version},
        "spec": {"tags": tags},
    });
    serde_json::from_value(json!({
        "metadata": {"name": names::config_map::OS_IMAGE_URL},
        "data": {"baseOSContainerImage": image('1'), "image-references": references.to_string()},
    }))
    .unwrap()
}

async fn images(cluster: &Cluster, pool: &str, os: char, extensions: char) -> String {
    let what = format!("pool {pool} has image {os}");
    eventually(&what, || async {
        let name = Some(target(&cluster.pool(pool).await)).filter(|name| !name.is_empty())?;
        let config: MachineConfig = cluster.api().get_opt(&name).await.unwrap()?;
        let spec = &config.spec;
        let has =
            spec.os_image_url == image(os) && spec.base_os_extensions_container_image == image(extensions);
        has.then_some(name)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_choose_among_the_streams_that_the_release_offers() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let streams = cluster.api::<OSImageStream>();
    assert!(
        streams.get_opt(names::SINGLETON).await.unwrap().is_none(),
        "a cluster without streams gets no object"
    );
    let choice = |stream: &str| json!({"spec": {"osImageStream": {"name": stream}}});
    let _: MachineConfigPool = cluster.patch("worker", choice("rhel-10")).await;
    let refused = cluster
        .pool_where("worker", "has no such stream", |pool| {
            holds(pool, condition::RENDER_DEGRADED)
        })
        .await;
    let why = message(&refused, condition::RENDER_DEGRADED);
    assert!(why.contains("this cluster offers no streams"), "{why}");
    assert_eq!(target(&refused), before);

    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
    config_maps
        .create(&PostParams::default(), &release())
        .await
        .unwrap();
    let nine = images(&cluster, "master", '1', '2').await;
    images(&cluster, "worker", '3', '4').await;
    let object = streams.get(names::SINGLETON).await.unwrap();
    assert_eq!(object.spec.default_stream, "rhel-9", "what pools had anyway");
    let worker = cluster
        .pool_where("worker", "reports its stream", |pool| {
            let status = pool.status.clone().unwrap_or_default();
            status
                .os_image_stream
                .is_some_and(|stream| stream.name == "rhel-10")
        })
        .await;
    assert!(!holds(&worker, condition::RENDER_DEGRADED));

    let user = PatchParams::default();
    let default = Patch::Merge(json!({"spec": {"defaultStream": "rhel-10"}}));
    streams.patch(names::SINGLETON, &user, &default).await.unwrap();
    let ten = images(&cluster, "master", '3', '4').await;
    assert_ne!(nine, ten);
    let _: MachineConfigPool = cluster.patch("worker", choice("suse")).await;
    let refused = cluster
        .pool_where("worker", "cannot have what is not offered", |pool| {
            message(pool, condition::RENDER_DEGRADED).contains("suse")
        })
        .await;
    let why = message(&refused, condition::RENDER_DEGRADED);
    assert!(why.contains("available are rhel-10, rhel-9"), "{why}");
}

/// Creates the streams that another controller has published.
async fn create_theirs(cluster: &Cluster, annotations: Value) {
    let theirs: OSImageStream = serde_json::from_value(json!({
        "metadata": {"name": names::SINGLETON, "annotations": annotations},
        "spec": {"defaultStream": "rhel-9"},
    }))
    .unwrap();
    cluster.create(&theirs).await;
    let offered = json!({"status": {
        "defaultStream": "rhel-9",
        "availableStreams": [{"name": "rhel-9", "osImage": image('1'), "osExtensionsImage": image('2')}],
    }});
    cluster
        .api::<OSImageStream>()
        .patch_status(names::SINGLETON, &PatchParams::default(), &Patch::Merge(offered))
        .await
        .unwrap();
}

/// Writes the release that the cluster is updated to, and then that the operator renders for it.
async fn update_to(cluster: &Cluster, version: &str, payload: &str) {
    let versions = cluster.api::<ClusterVersion>();
    if versions.get_opt(names::CLUSTER_VERSION).await.unwrap().is_none() {
        let created = serde_json::from_value(json!({"metadata": {"name": names::CLUSTER_VERSION}}));
        cluster.create::<ClusterVersion>(&created.unwrap()).await;
    }
    let desired = json!({"status": {"desired": {"version": version, "image": payload}}});
    versions
        .patch_status(
            names::CLUSTER_VERSION,
            &PatchParams::default(),
            &Patch::Merge(desired),
        )
        .await
        .unwrap();
    let rendered_for = json!({"metadata": {"annotations": {annotations::RELEASE_IMAGE_VERSION: version}}});
    let _: ControllerConfig = cluster.patch("machine-config-controller", rendered_for).await;
}

/// A switched cluster has streams of the former implementation, and nothing records those of the next release.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_rendered_the_operating_system_of_the_release_before() {
    let mut cluster = Cluster::prepare().await;
    cluster
        .define("ClusterVersion", "clusterversions", "v1", "Cluster")
        .await;
    update_to(&cluster, "4.21.0", "payload-1").await;
    let theirs = json!({
        annotations::RELEASE_IMAGE_VERSION: "theirs",
        annotations::RELEASE_PAYLOAD_IMAGE: "payload-1",
    });
    create_theirs(&cluster, theirs).await;
    cluster.start_controllers();
    let before = images(&cluster, "worker", '1', '2').await;

    update_to(&cluster, "4.22.0", "payload-2").await;
    let blocked = cluster
        .pool_where("worker", "is not rendered", |pool| {
            message(pool, condition::RENDER_DEGRADED).contains("are those of payload-1")
        })
        .await;
    let why = message(&blocked, condition::RENDER_DEGRADED);
    assert!(
        why.contains("add its image-references to ConfigMap machine-config-osimageurl"),
        "{why}"
    );
    assert_eq!(target(&blocked), before);

    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
    let next = [
        tag("rhel-coreos", "rhel-9", '5'),
        tag("rhel-coreos-extensions", "rhel-9", '6'),
    ];
    maps.create(&PostParams::default(), &release_of("4.22.0", &next))
        .await
        .unwrap();
    images(&cluster, "worker", '5', '6').await;
    cluster
        .pool_where("worker", "is rendered again", |pool| {
            !holds(pool, condition::RENDER_DEGRADED)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_another_controller_published_are_taken_over() {
    let mut cluster = Cluster::prepare().await;
    create_theirs(&cluster, json!({annotations::RELEASE_IMAGE_VERSION: "theirs"})).await;
    cluster.start_controllers();
    let first = images(&cluster, "worker", '1', '2').await;
    let object: OSImageStream = cluster.api().get(names::SINGLETON).await.unwrap();
    assert_eq!(
        object.metadata.annotations.unwrap()[annotations::RELEASE_IMAGE_VERSION],
        VERSION
    );
    let rendered = cluster
        .api::<MachineConfig>()
        .list_metadata(&kube::api::ListParams::default())
        .await
        .unwrap();
    let of_worker: Vec<String> = rendered
        .items
        .into_iter()
        .filter_map(|config| config.metadata.name)
        .filter(|name| name.starts_with("rendered-worker-"))
        .collect();
    assert_eq!(of_worker, [first], "no pool was rendered without its stream");
}
