"""What a typed client does all the time: create, read, modify, replace, patch, watch and delete objects of many kinds.

usage: read_modify_replace.py KUBECONFIG
Prints one line per check, as `go test -v` does.
"""

import sys
import traceback

from kubernetes import client, config, watch

config.load_kube_config(sys.argv[1])
core, apps, rbac = client.CoreV1Api(), client.AppsV1Api(), client.RbacAuthorizationV1Api()
coordination, policy, custom = client.CoordinationV1Api(), client.PolicyV1Api(), client.CustomObjectsApi()
extensions = client.ApiextensionsV1Api()
NAMESPACE = "python"


def meta(name):
    return client.V1ObjectMeta(name=name, labels={"suite": "python"})


def template():
    container = client.V1Container(name="c", image="i")
    return client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"a": "b"}), spec=client.V1PodSpec(containers=[container])
    )


def workload(kind):
    selector = client.V1LabelSelector(match_labels={"a": "b"})
    if kind == "V1StatefulSet":
        spec = client.V1StatefulSetSpec(selector=selector, template=template(), service_name="s")
    else:
        spec = getattr(client, f"{kind}Spec")(selector=selector, template=template())
    return getattr(client, kind)(metadata=meta("x"), spec=spec)


OBJECTS = {
    "config_map": (core, client.V1ConfigMap(metadata=meta("x"), data={"a": "1"})),
    "secret": (core, client.V1Secret(metadata=meta("x"), string_data={"a": "1"})),
    "service": (core, client.V1Service(metadata=meta("x"), spec=client.V1ServiceSpec(
        selector={"a": "b"}, ports=[client.V1ServicePort(port=80)]))),
    "service_account": (core, client.V1ServiceAccount(metadata=meta("x"))),
    "pod": (core, client.V1Pod(metadata=meta("x"), spec=template().spec)),
    "deployment": (apps, workload("V1Deployment")),
    "daemon_set": (apps, workload("V1DaemonSet")),
    "replica_set": (apps, workload("V1ReplicaSet")),
    "stateful_set": (apps, workload("V1StatefulSet")),
    "role": (rbac, client.V1Role(metadata=meta("x"), rules=[
        client.V1PolicyRule(api_groups=[""], resources=["pods"], verbs=["get"])])),
    "lease": (coordination, client.V1Lease(metadata=meta("x"), spec=client.V1LeaseSpec(holder_identity="me"))),
    "pod_disruption_budget": (policy, client.V1PodDisruptionBudget(
        metadata=meta("x"), spec=client.V1PodDisruptionBudgetSpec(
            max_unavailable=1, selector=client.V1LabelSelector(match_labels={"a": "b"})))),
}
CLUSTER_OBJECTS = {
    "namespace": (core, client.V1Namespace(metadata=meta("python-x"))),
    "node": (core, client.V1Node(metadata=meta("python-x"))),
    "cluster_role": (rbac, client.V1ClusterRole(metadata=meta("python-x"), rules=[])),
}


def replaced(call, name, scope, number):
    """Reads, modifies and replaces an object, again if a controller was faster."""
    for _ in range(10):
        read = call("read")(name, *scope)
        read.metadata.annotations = {"number": number}
        try:
            return read, call("replace")(name, *scope, read)
        except client.ApiException as error:
            if error.status != 409:
                raise
    raise AssertionError("always a conflict")


def round_trip(kind, api, body, namespaced):
    """Creates, replaces what was read twice, patches, lists and deletes one object."""
    name, scope = body.metadata.name, [NAMESPACE] if namespaced else []
    call = lambda verb: getattr(api, f"{verb}_namespaced_{kind}" if namespaced else f"{verb}_{kind}")
    call("create")(*scope, body)
    for number in ("1", "2"):
        read, written = replaced(call, name, scope, number)
        assert written.metadata.annotations["number"] == number
        assert written.metadata.creation_timestamp == read.metadata.creation_timestamp
        assert written.metadata.uid == read.metadata.uid
    patched = call("patch")(name, *scope, {"metadata": {"annotations": {"number": "3"}}})
    assert patched.metadata.annotations["number"] == "3"
    listed = call("list")(*scope, label_selector="suite=python").items
    assert [item.metadata.name for item in listed] == [name], listed
    call("delete")(name, *scope)


def stale_replace():
    core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=meta("stale"), data={}))
    read = core.read_namespaced_config_map("stale", NAMESPACE)
    core.replace_namespaced_config_map("stale", NAMESPACE, read)
    read.data = {"a": "2"}
    core.replace_namespaced_config_map("stale", NAMESPACE, read)
    read.data = {"a": "3"}
    try:
        core.replace_namespaced_config_map("stale", NAMESPACE, read)
    except client.ApiException as error:
        assert error.status == 409, error
    else:
        raise AssertionError("a stale object was accepted")


def watched():
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=meta("watched"), data={}))
    core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("watched", NAMESPACE)
    events = watch.Watch().stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=5,
        field_selector="metadata.name=watched")
    kinds = []
    for event in events:
        kinds.append(event["type"])
        if event["type"] == "DELETED":
            break
    assert kinds == ["ADDED", "MODIFIED", "DELETED"], kinds


def paged():
    for number in range(7):
        core.create_namespaced_secret(NAMESPACE, client.V1Secret(metadata=meta(f"page-{number}")))
    names, token = [], None
    while True:
        page = core.list_namespaced_secret(NAMESPACE, limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number}" for number in range(7)], names


def custom_resource():
    properties = {"spec": client.V1JSONSchemaProps(type="object", x_kubernetes_preserve_unknown_fields=True)}
    schema = client.V1CustomResourceValidation(
        open_apiv3_schema=client.V1JSONSchemaProps(type="object", properties=properties))
    version = client.V1CustomResourceDefinitionVersion(name="v1", served=True, storage=True, schema=schema)
    names = client.V1CustomResourceDefinitionNames(plural="things", singular="thing", kind="Thing", list_kind="ThingList")
    extensions.create_custom_resource_definition(client.V1CustomResourceDefinition(
        metadata=client.V1ObjectMeta(name="things.example.com"),
        spec=client.V1CustomResourceDefinitionSpec(
            group="example.com", scope="Namespaced", names=names, versions=[version])))
    definition = extensions.read_custom_resource_definition("things.example.com")
    definition.metadata.labels = {"a": "b"}
    extensions.replace_custom_resource_definition("things.example.com", definition)
    place = ("example.com", "v1", NAMESPACE, "things")
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": 1}}
    custom.create_namespaced_custom_object(*place, body)
    read = custom.get_namespaced_custom_object(*place, "x")
    read["spec"]["a"] = 2
    assert custom.replace_namespaced_custom_object(*place, "x", read)["spec"]["a"] == 2
    custom.delete_namespaced_custom_object(*place, "x")


def check(name, action):
    try:
        action()
        print(f"--- PASS: {name}")
        return True
    except Exception:  # the check failed, for a reason that is printed
        traceback.print_exc(file=sys.stdout)
        print(f"--- FAIL: {name}")
        return False


core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
passed = [check(kind, lambda: round_trip(kind, api, body, True)) for kind, (api, body) in OBJECTS.items()]
passed += [check(kind, lambda: round_trip(kind, api, body, False)) for kind, (api, body) in CLUSTER_OBJECTS.items()]
passed += [check(action.__name__, action) for action in (stale_replace, watched, paged, custom_resource)]
sys.exit(0 if all(passed) else 1)
