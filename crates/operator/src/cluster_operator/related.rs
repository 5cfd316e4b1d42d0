//! The related objects, which support tools collect.

use mco_api::foreign::cluster_operator::RelatedObject;
use mco_api::vocabulary::names;

use crate::manifests;
use crate::profile::ClusterProfile;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const OWN_GROUP: &str = "machineconfiguration.openshift.io";

pub fn related_objects() -> Vec<RelatedObject> {
    let related = |group: &str, resource: &str, name: &str| RelatedObject {
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..RelatedObject::default()
    };
    let mut all = vec![related("", "namespaces", names::NAMESPACE)];
    let own = [
        "machineconfigpools",
        "controllerconfigs",
        "kubeletconfigs",
        "containerruntimeconfigs",
        "machineconfigs",
        "machineconfignodes",
    ];
    all.extend(own.map(|resource| related(OWN_GROUP, resource, "")));
    all.push(related("operator.openshift.io", "machineconfigurations", ""));
    all.push(related("", "nodes", ""));
    let platforms = [
        "kni",
        "openstack",
        "ovirt",
        "vsphere",
        "nutanix",
        "cloud-platform",
    ];
    all.extend(platforms.map(|platform| related("", "namespaces", &format!("openshift-{platform}-infra"))));
    for object in manifests::access(&ClusterProfile::default()) {
        let resource = match object["kind"].as_str() {
            Some("ClusterRole") => "clusterroles",
            Some("ClusterRoleBinding") => "clusterrolebindings",
            _ => continue,
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        all.push(related(RBAC_GROUP, resource, name));
    }
    all
}
