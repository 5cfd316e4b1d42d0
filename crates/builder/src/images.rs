//! Inspection and deletion of images: in any registry over its API, in the cluster's own through image stream tags.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_core::generators::os_builds::{ImagePresence, ImageReference, canonical_credentials};
use mco_http::fetch::ProxySettings;
use serde_json::Value;

use crate::context::Context;
use crate::error::Error;
use crate::inputs;
use crate::registry::{Registry, RegistryAccess, credentials};

const INTERNAL_NAMESPACE: &str = "openshift-image-registry";

/// Asks the registry for an image.
pub(crate) async fn presence(ctx: &Context, image: &str, secret: &str) -> ImagePresence {
    match inspect(ctx, image, secret).await {
        Ok(Some(_)) => ImagePresence::Present,
        Ok(None) => ImagePresence::Missing,
        Err(error) => ImagePresence::Unknown(error.to_string()),
    }
}

async fn inspect(ctx: &Context, image: &str, secret: &str) -> Result<Option<String>, Error> {
    let reference = parse(image)?;
    let access = access(ctx, secret).await?;
    let found = Registry::new(&access, &reference).digest().await;
    found.map_err(|source| Error::Registry {
        attempt: format!("inspecting image {image}"),
        source,
    })
}

/// Deletes an image. Refusals of the registry are tolerated: many do not allow deletions.
pub(crate) async fn delete(ctx: &Context, image: &str, tagged: &str, secret: &str) -> Result<(), Error> {
    let reference = parse(image)?;
    if is_internal(ctx, &reference).await? {
        return delete_stream_tag(ctx, &parse(tagged)?).await;
    }
    let access = access(ctx, secret).await?;
    let digest = reference.digest.as_deref().unwrap_or_default();
    let deleted = Registry::new(&access, &reference).delete(digest).await;
    deleted.map_err(|source| Error::Registry {
        attempt: format!("deleting image {image}"),
        source,
    })
}

fn parse(image: &str) -> Result<ImageReference, Error> {
    ImageReference::parse(image).map_err(|error| Error::Invalid(error.to_string()))
}

/// Returns how registries are reached: the push Secret, the certificates and the proxy of the ControllerConfig.
async fn access(ctx: &Context, secret: &str) -> Result<RegistryAccess, Error> {
    let found = inputs::secret(ctx, secret).await?;
    let found = found.ok_or_else(|| Error::Invalid(format!("there is no Secret {secret}")))?;
    let canonical = canonical_credentials(&found).map_err(|error| Error::Invalid(error.to_string()))?;
    let config = ctx
        .cluster_api::<ControllerConfig>()
        .get_opt(CONTROLLER_CONFIG_NAME)
        .await;
    let config = config
        .map_err(Error::api("reading the ControllerConfig"))?
        .unwrap_or_default();
    let spec = config.spec;
    let bundles = spec
        .image_registry_bundle_data
        .into_iter()
        .chain(spec.image_registry_bundle_user_data);
    let mut certificates: Vec<Vec<u8>> = bundles.map(|bundle| bundle.data.0).collect();
    certificates.extend(spec.additional_trust_bundle.map(|bundle| bundle.0));
    certificates.push(spec.root_ca_data.0);
    let proxy = spec.proxy.unwrap_or_default();
    let url = [proxy.https_proxy, proxy.http_proxy]
        .into_iter()
        .find(|url| !url.is_empty());
    Ok(RegistryAccess {
        credentials: credentials(&canonical),
        certificates,
        proxy: ProxySettings {
            https_proxy: url.unwrap_or_default(),
            no_proxy: proxy.no_proxy,
        },
    })
}

/// Whether the image is in the cluster's own registry, which is reached by a Service or a Route.
async fn is_internal(ctx: &Context, image: &ImageReference) -> Result<bool, Error> {
    let host = image.host();
    if !host.contains(INTERNAL_NAMESPACE) && !host.contains("apps.") {
        return Ok(false);
    }
    let services: Api<Service> = Api::namespaced(ctx.client.clone(), INTERNAL_NAMESPACE);
    let services = services.list(&ListParams::default()).await;
    let services = services.map_err(Error::api("listing the Services of the image registry"))?;
    let is_service = services.iter().any(|service| {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        host.starts_with(&format!("{name}.{INTERNAL_NAMESPACE}.svc"))
    });
    if is_service {
        return Ok(true);
    }
    let routes = ApiResource {
        group: "route.openshift.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "route.openshift.io/v1".to_owned(),
        kind: "Route".to_owned(),
        plural: "routes".to_owned(),
    };
    let routes: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), INTERNAL_NAMESPACE, &routes);
    // A cluster without Routes has none for its registry.
    let routes = mco_runtime::patch::unless_gone(routes.list(&ListParams::default()).await);
    let routes = routes.map_err(Error::api("listing the Routes of the image registry"))?;
    Ok(routes.is_some_and(|routes| routes.iter().any(|route| route.data["spec"]["host"] == host)))
}

async fn delete_stream_tag(ctx: &Context, image: &ImageReference) -> Result<(), Error> {
    let (namespace, name) = image.repository().split_once('/').unwrap_or_default();
    let tag = image.tag.as_deref().unwrap_or("latest");
    let path = format!("/apis/image.openshift.io/v1/namespaces/{namespace}/imagestreamtags/{name}:{tag}");
    let attempt = || Error::api(format!("deleting ImageStreamTag {namespace}/{name}:{tag}"));
    let request = http::Request::delete(path)
        .body(Vec::new())
        .map_err(|error| attempt()(kube::Error::HttpError(error)))?;
    mco_runtime::patch::unless_gone(ctx.client.request::<Value>(request).await).map_err(attempt())?;
    Ok(())
}
