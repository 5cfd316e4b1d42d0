//! The config server's certificates in the cluster: CA, bundle and serving certificate.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DeleteParams;
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::vocabulary::annotations::certificate as annotation;
use mco_api::vocabulary::names;
use thiserror::Error;

use crate::certificates::{
    self, CertificateError, CertificatePair, CertificateSummary, ExistingCertificates, WantedCertificates,
};
use crate::cluster::{ClusterError, OperatorClient, failed, metadata};
use crate::controller_config::{self, server_hosts};
use crate::facts::ObservedFacts;
use crate::options::OperatorOptions;

/// The key of a ConfigMap with a CA.
pub const BUNDLE_KEY: &str = "ca-bundle.crt";
const CERTIFICATE_KEY: &str = "tls.crt";
const KEY_KEY: &str = "tls.key";
const TLS_TYPE: &str = "kubernetes.io/tls";

#[derive(Debug, Error)]
pub enum ServingError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the certificates of {name}: {source}")]
    Certificates {
        name: String,
        #[source]
        source: CertificateError,
    },
}

/// The object names of a set of certificates.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The Secret with the CA, and the ConfigMap with the bundle.
    pub ca: &'static str,
    pub serving: &'static str,
}

pub const CONFIG_SERVER: Names = Names {
    ca: names::secret::SERVER_CA,
    serving: names::secret::SERVER_TLS,
};

/// Renews the config server's certificates.
pub async fn config_server(
    cluster: &OperatorClient,
    facts: &ObservedFacts,
    options: &OperatorOptions,
    now: Timestamp,
) -> Result<(), ServingError> {
    let infrastructure = effective_infrastructure(facts, options);
    let hosts = server_hosts(infrastructure.as_ref(), options);
    renew(cluster, CONFIG_SERVER, &facts.installer_authority, &hosts, now)
        .await
        .map(|_| ())
}

/// Returns the CAs with which machines verify the config server: our bundle, or the installer's.
pub async fn authorities(cluster: &OperatorClient, facts: &ObservedFacts) -> Result<String, ClusterError> {
    let bundle = bundle(cluster, names::config_map::SERVER_CA).await?;
    Ok(if bundle.is_empty() {
        facts.installer_authority.clone()
    } else {
        bundle
    })
}

/// Returns the Infrastructure in the ControllerConfig, found or default.
pub fn effective_infrastructure(facts: &ObservedFacts, options: &OperatorOptions) -> Option<Infrastructure> {
    controller_config::controller_config(facts, "", options)
        .spec
        .infra
}

/// Renews one set of certificates and returns those in effect.
pub async fn renew(
    cluster: &OperatorClient,
    names: Names,
    trusted_before: &str,
    hosts: &[String],
    now: Timestamp,
) -> Result<WantedCertificates, ServingError> {
    let existing = read(cluster, names, trusted_before).await?;
    let wanted = certificates::renew(existing.clone(), names.ca, hosts, now);
    let wanted = wanted.map_err(|source| ServingError::Certificates {
        name: names.serving.to_owned(),
        source,
    })?;
    // The bundle is written before the certificate, so that no client sees a certificate that it cannot verify yet.
    if wanted.ca != existing.ca
        && let Some(ca) = &wanted.ca
    {
        write_pair(cluster, names.ca, ca).await?;
    }
    if wanted.ca.is_some() && wanted.bundle != existing.bundle {
        let bundle = ConfigMap {
            metadata: metadata(Some(names::NAMESPACE), names.ca),
            data: Some([(BUNDLE_KEY.to_owned(), wanted.bundle.clone())].into()),
            ..ConfigMap::default()
        };
        cluster.apply(&bundle).await?;
    }
    if Some(&wanted.serving) != existing.serving.as_ref() {
        write_pair(cluster, names.serving, &wanted.serving).await?;
    }
    Ok(wanted)
}

async fn read(
    cluster: &OperatorClient,
    names: Names,
    trusted_before: &str,
) -> Result<ExistingCertificates, ClusterError> {
    let ca = cluster.secret(names::NAMESPACE, names.ca).await?;
    let serving = cluster.secret(names::NAMESPACE, names.serving).await?;
    let bundle = bundle(cluster, names.ca).await?;
    Ok(ExistingCertificates {
        ca: ca.as_ref().and_then(pair),
        bundle: if bundle.is_empty() {
            trusted_before.to_owned()
        } else {
            bundle
        },
        serving: serving.as_ref().and_then(pair),
    })
}

async fn bundle(cluster: &OperatorClient, name: &str) -> Result<String, ClusterError> {
    let found = cluster.config_map(names::NAMESPACE, name).await?;
    let found = found.and_then(|found| found.data?.remove(BUNDLE_KEY));
    Ok(found.unwrap_or_default())
}

fn pair(secret: &Secret) -> Option<CertificatePair> {
    let text = |key: &str| {
        let bytes = &secret.data.as_ref()?.get(key)?.0;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    Some(CertificatePair {
        certificate: text(CERTIFICATE_KEY)?,
        key: text(KEY_KEY)?,
    })
}

async fn write_pair(
    cluster: &OperatorClient,
    name: &str,
    pair: &CertificatePair,
) -> Result<(), ClusterError> {
    let secrets = cluster.within::<Secret>(names::NAMESPACE);
    let found = cluster.secret(names::NAMESPACE, name).await?;
    // A Secret's type is immutable.
    if found.is_some_and(|found| found.type_.as_deref() != Some(TLS_TYPE)) {
        let answer = secrets.delete(name, &DeleteParams::default()).await;
        answer.map_err(failed("replacing", || {
            format!("Secret {}/{name}", names::NAMESPACE)
        }))?;
    }
    let mut secret = Secret {
        metadata: metadata(Some(names::NAMESPACE), name),
        type_: Some(TLS_TYPE.to_owned()),
        data: Some(BTreeMap::from([
            (
                CERTIFICATE_KEY.to_owned(),
                ByteString(pair.certificate.clone().into_bytes()),
            ),
            (KEY_KEY.to_owned(), ByteString(pair.key.clone().into_bytes())),
        ])),
        ..Secret::default()
    };
    if let Ok(facts) = certificates::summary(&pair.certificate) {
        secret.metadata.annotations = Some(described(&facts));
    }
    cluster.apply(&secret).await
}

fn described(facts: &CertificateSummary) -> BTreeMap<String, String> {
    let mut described = BTreeMap::from([
        (annotation::NOT_BEFORE.to_owned(), facts.not_before.to_string()),
        (annotation::NOT_AFTER.to_owned(), facts.not_after.to_string()),
        (annotation::ISSUER.to_owned(), facts.issuer.clone()),
    ]);
    if !facts.hosts.is_empty() {
        described.insert(annotation::HOSTNAMES.to_owned(), facts.hosts.join(","));
    }
    described
}
