//! Compares the Rust types with their schemas: both have the same fields.

use mco_api::foreign::cluster_operator::ClusterOperator;
use mco_api::foreign::image::Image;
use mco_api::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration, MachineOSBuild, MachineOSConfig, OSImageStream, PinnedImageSet,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::verdict::Judge;
use crate::{objects, reference};

#[test]
fn types_carry_every_field_of_their_schema() {
    for kind in kinds() {
        let schema = reference::our_schema(kind.plural);
        let object = kind.with_fixed_values(objects::maximal(&schema));
        let back = (kind.read_and_write)(object.clone()).unwrap();
        let lost = reference::differences(&object, &back, "");
        assert!(
            lost.is_empty(),
            "{}: read and written back:\n{}",
            kind.plural,
            lost.join("\n")
        );
    }
}

#[test]
fn what_types_write_is_valid_even_for_the_smallest_object() {
    for kind in kinds() {
        let schema = reference::our_schema(kind.plural);
        let written = (kind.read_and_write)(objects::minimal(&schema)).unwrap();
        let judge = Judge::new(schema);
        assert!(
            judge.accepts_structure(&written),
            "{}: {:?}",
            kind.plural,
            judge.complaints(&written)
        );
    }
}

#[test]
fn types_read_null_and_absent_fields_alike() {
    // Kubernetes' own condition type requires this field, and no API server stores a condition without it.
    let insisted = |pointer: &str| pointer.contains("/conditions/0/lastTransitionTime");
    let value_of_a_map = |parent: &str| {
        ["/matchLabels", "/images", "/tags"]
            .iter()
            .any(|map| parent.ends_with(map))
    };
    for kind in kinds() {
        let schema = reference::our_schema(kind.plural);
        let object = kind.with_fixed_values(objects::maximal(&schema));
        objects::visit(&schema, "", &mut |_, pointer| {
            let Some((parent, field)) = pointer.rsplit_once('/').filter(|(_, field)| *field != "0") else {
                return;
            };
            if insisted(pointer) || value_of_a_map(parent) {
                return;
            }
            let mut with_null = object.clone();
            *with_null.pointer_mut(pointer).unwrap() = Value::Null;
            let mut without = object.clone();
            without
                .pointer_mut(parent)
                .unwrap()
                .as_object_mut()
                .unwrap()
                .remove(field);
            let read = |object| (kind.read_and_write)(object).map_err(|error| error.to_string());
            let without =
                read(without).unwrap_or_else(|error| panic!("{}: without {pointer}: {error}", kind.plural));
            let with_null =
                read(with_null).unwrap_or_else(|error| panic!("{}: null at {pointer}: {error}", kind.plural));
            let differ = reference::differences(&without, &with_null, "");
            assert_eq!(differ, Vec::<String>::new(), "{}: null at {pointer}", kind.plural);
        });
    }
}

#[test]
fn foreign_types_keep_the_fields_that_they_do_not_know() {
    for kind in kinds().into_iter().filter(|kind| kind.keeps_unknown_fields) {
        let schema = reference::our_schema(kind.plural);
        let mut object = kind.with_fixed_values(objects::maximal(&schema));
        for change in objects::unknown_fields(&schema) {
            if change.what.starts_with("/metadata") {
                continue;
            }
            change.try_on(&mut object, |object| {
                let object = kind.with_fixed_values(object.clone());
                let back = (kind.read_and_write)(object.clone()).unwrap();
                assert_eq!(back, object, "{}: {}", kind.plural, change.what);
            });
        }
    }
}

/// A kind, and the round trip of an object through its type.
struct Kind {
    plural: &'static str,
    api_version: &'static str,
    name: &'static str,
    keeps_unknown_fields: bool,
    read_and_write: fn(Value) -> Result<Value, serde_json::Error>,
}

fn kinds() -> Vec<Kind> {
    const OURS: &str = "machineconfiguration.openshift.io/v1";
    const CONFIG: &str = "config.openshift.io/v1";
    vec![
        ours::<ContainerRuntimeConfig>("containerruntimeconfigs", OURS, "ContainerRuntimeConfig"),
        ours::<ControllerConfig>("controllerconfigs", OURS, "ControllerConfig"),
        ours::<KubeletConfig>("kubeletconfigs", OURS, "KubeletConfig"),
        ours::<MachineConfigNode>("machineconfignodes", OURS, "MachineConfigNode"),
        ours::<MachineConfigPool>("machineconfigpools", OURS, "MachineConfigPool"),
        ours::<MachineConfig>("machineconfigs", OURS, "MachineConfig"),
        ours::<MachineConfiguration>(
            "machineconfigurations",
            "operator.openshift.io/v1",
            "MachineConfiguration",
        ),
        ours::<MachineOSBuild>("machineosbuilds", OURS, "MachineOSBuild"),
        ours::<MachineOSConfig>("machineosconfigs", OURS, "MachineOSConfig"),
        ours::<OSImageStream>("osimagestreams", OURS, "OSImageStream"),
        ours::<PinnedImageSet>("pinnedimagesets", OURS, "PinnedImageSet"),
        foreign::<ClusterOperator>("clusteroperators", CONFIG, "ClusterOperator"),
        foreign::<ImageContentSourcePolicy>(
            "imagecontentsourcepolicies",
            "operator.openshift.io/v1alpha1",
            "ImageContentSourcePolicy",
        ),
        foreign::<ImageDigestMirrorSet>("imagedigestmirrorsets", CONFIG, "ImageDigestMirrorSet"),
        foreign::<Image>("images", CONFIG, "Image"),
        foreign::<ImageTagMirrorSet>("imagetagmirrorsets", CONFIG, "ImageTagMirrorSet"),
    ]
}

fn ours<T: DeserializeOwned + Serialize>(
    plural: &'static str,
    api_version: &'static str,
    name: &'static str,
) -> Kind {
    Kind {
        plural,
        api_version,
        name,
        keeps_unknown_fields: false,
        read_and_write: |object| serde_json::to_value(serde_json::from_value::<T>(object)?),
    }
}

fn foreign<T: DeserializeOwned + Serialize>(
    plural: &'static str,
    api_version: &'static str,
    name: &'static str,
) -> Kind {
    Kind {
        keeps_unknown_fields: true,
        ..ours::<T>(plural, api_version, name)
    }
}

impl Kind {
    /// Sets the fields of a generated object that our types always write.
    fn with_fixed_values(&self, mut object: Value) -> Value {
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.name);
        for (pointer, kind) in [("/spec/dns", "DNS"), ("/spec/infra", "Infrastructure")] {
            if let Some(embedded @ Value::Object(_)) = object.pointer_mut(pointer) {
                embedded["apiVersion"] = json!("config.openshift.io/v1");
                embedded["kind"] = json!(kind);
            }
        }
        for amount in ["logSizeMax", "overlaySize"] {
            if let Some(Value::Object(config)) = object.pointer_mut("/spec/containerRuntimeConfig")
                && config.get(amount).is_some_and(Value::is_number)
            {
                config.insert(amount.to_owned(), json!("1Gi"));
            }
        }
        object
    }
}
