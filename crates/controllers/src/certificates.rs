//! The certificates of a ControllerConfig with their validity, for its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mco_api::controller_config::{ControllerCertificate, ControllerConfigSpec};
use x509_parser::pem::Pem;
use x509_parser::prelude::{ASN1Time, X509Name};

/// Returns the certificates of all bundles. A bundle is read up to its first malformed certificate.
pub(crate) fn of(spec: &ControllerConfigSpec) -> Vec<ControllerCertificate> {
    let trust_bundle = spec.additional_trust_bundle.as_ref();
    let cloud = spec.cloud_provider_ca_data.as_ref();
    let mut bundles: Vec<(&str, &[u8])> = vec![(
        "KubeAPIServerServingCAData",
        &spec.kube_api_server_serving_ca_data.0,
    )];
    bundles.extend(cloud.map(|bundle| ("CloudProviderCAData", bundle.0.as_slice())));
    bundles.push(("RootCAData", &spec.root_ca_data.0));
    bundles.extend(trust_bundle.map(|bundle| ("AdditionalTrustBundle", bundle.0.as_slice())));
    let registries = spec
        .image_registry_bundle_data
        .iter()
        .chain(&spec.image_registry_bundle_user_data);
    bundles.extend(registries.map(|bundle| (bundle.file.as_str(), bundle.data.0.as_slice())));
    bundles
        .into_iter()
        .flat_map(|(file, bundle)| certificates(file, bundle))
        .collect()
}

fn certificates(file: &str, bundle: &[u8]) -> Vec<ControllerCertificate> {
    Pem::iter_from_buffer(bundle)
        .map_while(|pem| {
            let pem = pem.ok()?;
            let certificate = pem.parse_x509().ok()?;
            let validity = certificate.validity();
            Some(ControllerCertificate {
                bundle_file: file.to_owned(),
                subject: name(certificate.subject()),
                signer: name(certificate.issuer()),
                not_before: time(validity.not_before),
                not_after: time(validity.not_after),
            })
        })
        .collect()
}

/// Formats a name with the most specific part first, as Go does.
fn name(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = name
        .iter_rdn()
        .map(|part| {
            let attributes = part.iter().map(|attribute| {
                let oid = attribute.attr_type();
                let key = x509_parser::objects::oid2abbrev(oid, x509_parser::objects::oid_registry())
                    .map_or_else(|_| oid.to_id_string(), str::to_owned);
                format!("{key}={}", attribute.as_str().unwrap_or_default())
            });
            attributes.collect::<Vec<_>>().join("+")
        })
        .collect();
    parts.reverse();
    parts.join(",")
}

fn time(time: ASN1Time) -> Option<Time> {
    Timestamp::from_second(time.timestamp()).ok().map(Time)
}
