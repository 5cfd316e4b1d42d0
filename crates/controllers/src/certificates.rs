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

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use mco_api::controller_config::ImageRegistryBundle;
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair, date_time_ymd};

    use super::*;

    fn params(name: &str, unit: &str, year: i32) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationalUnitName, unit);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(year, 1, 2);
        params.not_after = date_time_ymd(year + 10, 1, 2);
        params
    }

    fn bundle(text: &str) -> ByteString {
        ByteString(text.as_bytes().to_vec())
    }

    #[test]
    fn every_certificate_is_listed_with_its_signer_and_validity() {
        let (key, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let authority = params("root-ca", "openshift", 2026);
        let root = authority.clone().self_signed(&key).unwrap();
        let signed = params("api", "servers", 2027);
        let signed = signed
            .signed_by(&own, &Issuer::from_params(&authority, &key))
            .unwrap();
        let spec = ControllerConfigSpec {
            kube_api_server_serving_ca_data: bundle(&format!("{}{}", root.pem(), signed.pem())),
            // Read up to the first malformed one.
            root_ca_data: bundle(&format!(
                "{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{}",
                root.pem(),
                signed.pem()
            )),
            additional_trust_bundle: Some(bundle("no certificate")),
            image_registry_bundle_user_data: vec![ImageRegistryBundle {
                file: "registry.example.com..5000".to_owned(),
                data: bundle(&signed.pem()),
            }],
            ..ControllerConfigSpec::default()
        };
        let found: Vec<String> = of(&spec)
            .into_iter()
            .map(|one| {
                let day = |time: Option<Time>| time.unwrap().0.strftime("%Y-%m-%d").to_string();
                let (from, to) = (day(one.not_before), day(one.not_after));
                format!(
                    "{}: {} by {}, {from} to {to}",
                    one.bundle_file, one.subject, one.signer
                )
            })
            .collect();
        let (root, api) = ("CN=root-ca,OU=openshift", "CN=api,OU=servers");
        assert_eq!(
            found,
            [
                format!("KubeAPIServerServingCAData: {root} by {root}, 2026-01-02 to 2036-01-02"),
                format!("KubeAPIServerServingCAData: {api} by {root}, 2027-01-02 to 2037-01-02"),
                format!("RootCAData: {root} by {root}, 2026-01-02 to 2036-01-02"),
                format!("registry.example.com..5000: {api} by {root}, 2027-01-02 to 2037-01-02"),
            ]
        );
    }
}
