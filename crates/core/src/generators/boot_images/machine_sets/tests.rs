#![expect(clippy::too_many_lines, reason = "tables of cases are long")]

use super::*;

const OWN_GCP: &str = "projects/rhcos-cloud/global/images/rhcos-9-6-20260101-0-gcp-x86-64";
const NEW_GCP: &str = "projects/rhcos-cloud/global/images/rhcos-9-6-20260210-0-gcp-x86-64";

fn stream() -> Value {
    let azure = |offer: &str, sku: &str| json!({"publisher": if offer == "aro4" { "azureopenshift" } else { "redhat" }, "offer": offer, "sku": sku, "version": "9.6.20260210"});
    json!({"architectures": {
        "x86_64": {
            "images": {
                "gcp": {"project": "rhcos-cloud", "name": "rhcos-9-6-20260210-0-gcp-x86-64"},
                "aws": {"regions": {"eu-central-1": {"release": "9.6.20260210-0", "image": "ami-new"}}},
            },
            "rhel-coreos-extensions": {"marketplace": {"azure": {
                "no-purchase-plan": {"hyperVGen1": azure("aro4", "aro_420"), "hyperVGen2": azure("aro4", "420-v2")},
                "ocp": {"hyperVGen1": azure("rh-ocp-worker", "rh-ocp-worker-gen1"), "hyperVGen2": azure("rh-ocp-worker", "rh-ocp-worker")},
            }}},
        },
        "aarch64": {"images": {"gcp": {"project": "rhcos-cloud", "name": "rhcos-9-6-20260210-0-gcp-aarch64"}}},
    }})
}

fn set(metadata: &Value, provider_spec: &Value) -> (ObjectMeta, Map<String, Value>) {
    let spec = json!({"replicas": 2, "template": {
        "metadata": {"labels": metadata["machineLabels"]},
        "spec": {"providerSpec": {"value": provider_spec}},
    }});
    (
        serde_json::from_value(
            json!({"name": "workers", "labels": metadata["labels"], "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"]}),
        )
        .unwrap(),
        spec.as_object().unwrap().clone(),
    )
}

fn decided(platform: &str, multi: bool, metadata: &Value, provider_spec: &Value) -> String {
    let (metadata, spec) = set(metadata, provider_spec);
    let stream = stream();
    let inputs = BootImageInputs {
        platform,
        stream: &stream,
        is_multi_architecture: multi,
        architecture: "x86_64",
    };
    let view = MachineSetView {
        kind: MachineSetKind::MachineSet,
        metadata: &metadata,
        spec: &spec,
    };
    match decide(view, &inputs) {
        Ok(BootImageDecision::OutOfScope(why)) => format!("out of scope: {why}"),
        Ok(BootImageDecision::Skipped(why)) => format!("skipped: {why}"),
        Ok(BootImageDecision::NotExamined(why)) => format!("not examined: {why}"),
        Ok(BootImageDecision::Current) => "current".to_owned(),
        Ok(BootImageDecision::Update(update)) => {
            assert_eq!(update.user_data_secret, "worker-user-data");
            let found = &update.provider_spec;
            let disks = found["disks"].as_array().into_iter().flatten();
            let images: Vec<&str> = disks.filter_map(|disk| disk["image"].as_str()).collect();
            let azure = ["publisher", "offer", "sku", "type", "resourceID"]
                .map(|member| found["image"][member].as_str().unwrap_or_default());
            format!("update: {}{}", images.join(" "), azure.join(" ").trim())
        }
        Err(error) => format!("error: {error}"),
    }
}

fn gcp_spec(image: &str) -> Value {
    json!({"disks": [{"boot": true, "image": image, "sizeGb": 128}, {"boot": false, "image": "data"}],
        "userDataSecret": {"name": "worker-user-data"}})
}

#[test]
fn templates_that_are_not_managed_are_left_alone() {
    let old = gcp_spec(OWN_GCP);
    let architecture = |labels: &str| json!({"annotations": {AUTOSCALER_LABELS: labels}});
    for (name, multi, metadata, expected) in [
        (
            "an ordinary one",
            false,
            json!({}),
            format!("update: {NEW_GCP} data"),
        ),
        (
            "of another owner",
            false,
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Fleet", "name": "f", "uid": "u"}]}),
            "skipped: it belongs to Fleet/f".to_owned(),
        ),
        (
            "of the supported stream",
            false,
            json!({"labels": {STREAM_LABEL: "rhel-9"}}),
            format!("update: {NEW_GCP} data"),
        ),
        (
            "of another stream",
            false,
            json!({"labels": {STREAM_LABEL: "rhel-10"}}),
            "out of scope: it has another OS stream".to_owned(),
        ),
        (
            "of Windows",
            false,
            json!({"machineLabels": {OS_LABEL: "Windows"}}),
            "out of scope: its machines run Windows".to_owned(),
        ),
        (
            "without an architecture among several",
            true,
            json!({}),
            "skipped: the cluster has several architectures, and its annotation names none".to_owned(),
        ),
        (
            "with its architecture",
            true,
            architecture("zone=a, kubernetes.io/arch=arm64"),
            "update: projects/rhcos-cloud/global/images/rhcos-9-6-20260210-0-gcp-aarch64 data".to_owned(),
        ),
        (
            "with an unknown architecture",
            true,
            architecture("kubernetes.io/arch=riscv64"),
            "error: invalid architecture value found in annotation: riscv64".to_owned(),
        ),
        (
            "with labels but no architecture",
            false,
            architecture("zone=a"),
            "error: kubernetes.io/arch label not found in annotation: zone=a".to_owned(),
        ),
        (
            "of an architecture without images",
            false,
            architecture("kubernetes.io/arch=s390x"),
            "error: the boot images of the release have no architecture s390x".to_owned(),
        ),
    ] {
        assert_eq!(decided("GCP", multi, &metadata, &old), expected, "{name}");
    }
    assert_eq!(
        decided("BareMetal", false, &json!({}), &old),
        "out of scope: boot images of this platform are not updated"
    );
}

#[test]
fn images_are_replaced_by_platform_and_those_of_administrators_are_not() {
    let azure = |image: Value| json!({"image": image, "userDataSecret": {"name": "worker-user-data"}});
    let uploaded = |id: &str| {
        azure(json!({"resourceID": id, "offer": "", "publisher": "", "sku": "", "version": "", "type": ""}))
    };
    let paid = |offer: &str, sku: &str| {
        azure(
            json!({"publisher": "redhat", "offer": offer, "sku": sku, "version": "1", "type": "MarketplaceWithPlan"}),
        )
    };
    let current = azure(
        json!({"publisher": "azureopenshift", "offer": "aro4", "sku": "420-v2",
        "version": "9.6.20260210", "type": "MarketplaceNoPlan"}),
    );
    let mut confidential = current.clone();
    confidential["securityProfile"] = json!({"settings": {"securityType": "ConfidentialVM"}});
    let aws = |ami: Value| json!({"ami": ami, "placement": {"region": "eu-central-1"}});
    for (name, platform, spec, expected) in [
        ("current", "GCP", gcp_spec(NEW_GCP), "current"),
        (
            "an administrator's image",
            "GCP",
            gcp_spec("projects/mine/global/images/golden"),
            "skipped: its image \"projects/mine/global/images/golden\" is not the vendor's",
        ),
        ("empty", "GCP", Value::Null, "error: providerSpec field was empty"),
        (
            "without user data",
            "GCP",
            json!({"disks": [{"boot": true, "image": OWN_GCP}]}),
            "error: providerSpec.userDataSecret names no Secret",
        ),
        (
            "uploaded, first generation",
            "Azure",
            uploaded("/images/rhcos"),
            "update: azureopenshift aro4 aro_420 MarketplaceNoPlan",
        ),
        (
            "uploaded, second generation",
            "Azure",
            uploaded("/images/rhcos-gen2"),
            "update: azureopenshift aro4 420-v2 MarketplaceNoPlan",
        ),
        ("in the marketplace, current", "Azure", current, "current"),
        (
            "paid",
            "Azure",
            paid("rh-ocp-worker", "rh-ocp-worker"),
            "update: redhat rh-ocp-worker rh-ocp-worker MarketplaceWithPlan",
        ),
        (
            "paid, first generation",
            "Azure",
            paid("rh-ocp-worker", "rh-ocp-worker-gen1"),
            "update: redhat rh-ocp-worker rh-ocp-worker-gen1 MarketplaceWithPlan",
        ),
        (
            "a plan that the release has no images for",
            "Azure",
            paid("rh-opp-worker", "x"),
            "error: no Azure marketplace images available for opp, hyperVGen2",
        ),
        (
            "another publisher",
            "Azure",
            azure(json!({"publisher": "me", "offer": "golden"})),
            "error: could not determine azure marketplace variant, cannot update boot images",
        ),
        (
            "confidential machines",
            "Azure",
            confidential,
            "out of scope: its machines have a security type",
        ),
        ("current", "AWS", aws(json!({"id": "ami-new"})), "current"),
        (
            "an AMI that only EC2 knows",
            "AWS",
            aws(json!({"id": "ami-old"})),
            "not examined: who publishes its AMI is known only to EC2, which is not asked",
        ),
        (
            "an AMI by filters",
            "AWS",
            aws(json!({"filters": []})),
            "skipped: its AMI is not named by its ID",
        ),
        (
            "a template of virtual machines",
            "VSphere",
            json!({"template": "t"}),
            "not examined: templates of virtual machines are not replaced",
        ),
    ] {
        assert_eq!(
            decided(platform, false, &json!({}), &spec),
            expected,
            "{platform}: {name}"
        );
    }
}

#[test]
fn the_control_plane_has_its_template_elsewhere_and_is_never_skipped() {
    let metadata = ObjectMeta::default();
    let spec = |image: &str| {
        let machine = json!({"metadata": {}, "spec": {"providerSpec": {"value": gcp_spec(image)}}});
        let spec = json!({"template": {"machineType": "x", CONTROL_PLANE_TEMPLATE: machine}});
        spec.as_object().unwrap().clone()
    };
    let stream = stream();
    let inputs = BootImageInputs {
        platform: "GCP",
        stream: &stream,
        is_multi_architecture: true,
        architecture: "x86_64",
    };
    let kind = MachineSetKind::ControlPlaneMachineSet;
    let of = |spec: &Map<String, Value>| {
        decide(
            MachineSetView {
                kind,
                metadata: &metadata,
                spec,
            },
            &inputs,
        )
        .unwrap()
    };
    let old = spec(OWN_GCP);
    let BootImageDecision::Update(update) = of(&old) else {
        panic!("no update")
    };
    let changed = with_provider_spec(kind, &old, &update.provider_spec);
    assert_eq!(changed, Value::Object(spec(NEW_GCP)), "and nothing else");
    assert!(matches!(of(&spec("mine")), BootImageDecision::OutOfScope(_)));
}
