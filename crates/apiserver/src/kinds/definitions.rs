//! The JSON schemas of the built-in kinds, as k8s-openapi publishes them.
//!
//! They contain names, types and descriptions, but no merge keys: those are in [`super::merge`].

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, autoscaling::v1 as autoscaling, batch::v1 as batch,
    coordination::v1 as coordination, core::v1 as core, events::v1 as events, policy::v1 as policy,
    rbac::v1 as rbac, scheduling::v1 as scheduling,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

/// The prefix of a reference from one definition to another.
pub const REFERENCE_PREFIX: &str = "#/$defs/";

/// Returns every definition that the built-in kinds and the bodies of their subresources need, by full name.
///
/// Not cached: the result is large and needed only while something smaller is derived from it.
pub fn definitions() -> Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    add_core(&mut generator);
    add_workloads(&mut generator);
    add_policies(&mut generator);
    generator.subschema_for::<meta::DeleteOptions>();
    generator.subschema_for::<meta::Status>();
    generator.take_definitions(false)
}

fn add_core(generator: &mut SchemaGenerator) {
    generator.subschema_for::<core::Binding>();
    generator.subschema_for::<core::ConfigMap>();
    generator.subschema_for::<core::Endpoints>();
    generator.subschema_for::<core::Event>();
    generator.subschema_for::<core::Namespace>();
    generator.subschema_for::<core::Node>();
    generator.subschema_for::<core::Pod>();
    generator.subschema_for::<core::Secret>();
    generator.subschema_for::<core::ServiceAccount>();
    generator.subschema_for::<core::Service>();
    generator.subschema_for::<events::Event>();
    generator.subschema_for::<coordination::Lease>();
}

fn add_workloads(generator: &mut SchemaGenerator) {
    generator.subschema_for::<apps::ControllerRevision>();
    generator.subschema_for::<apps::DaemonSet>();
    generator.subschema_for::<apps::Deployment>();
    generator.subschema_for::<apps::ReplicaSet>();
    generator.subschema_for::<apps::StatefulSet>();
    generator.subschema_for::<autoscaling::Scale>();
    generator.subschema_for::<batch::Job>();
    generator.subschema_for::<policy::Eviction>();
    generator.subschema_for::<policy::PodDisruptionBudget>();
    generator.subschema_for::<scheduling::PriorityClass>();
}

fn add_policies(generator: &mut SchemaGenerator) {
    generator.subschema_for::<admission::MutatingWebhookConfiguration>();
    generator.subschema_for::<admission::ValidatingAdmissionPolicy>();
    generator.subschema_for::<admission::ValidatingAdmissionPolicyBinding>();
    generator.subschema_for::<admission::ValidatingWebhookConfiguration>();
    generator.subschema_for::<apiextensions::CustomResourceDefinition>();
    generator.subschema_for::<authentication::SelfSubjectReview>();
    generator.subschema_for::<authentication::TokenRequest>();
    generator.subschema_for::<authentication::TokenReview>();
    generator.subschema_for::<authorization::LocalSubjectAccessReview>();
    generator.subschema_for::<authorization::SelfSubjectAccessReview>();
    generator.subschema_for::<authorization::SelfSubjectRulesReview>();
    generator.subschema_for::<authorization::SubjectAccessReview>();
    generator.subschema_for::<rbac::ClusterRole>();
    generator.subschema_for::<rbac::ClusterRoleBinding>();
    generator.subschema_for::<rbac::Role>();
    generator.subschema_for::<rbac::RoleBinding>();
}
