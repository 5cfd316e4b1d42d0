"""Requests and objects that ended the process."""

import json
import os
import random
import time

from findings import finding, not_played
from system import require

GROUP = "/apis/machineconfiguration.openshift.io/v1"


@finding("S1", "an Accept header with q=NaN at the Ignition server")
def quality_not_a_number(system):
    token = system.ignition_token()
    entries = ",".join(f"a/b;q={quality}" for _ in range(20) for quality in ("0", "NaN", "1"))
    for accept in (entries, "application/vnd.coreos.ignition+json;version=3.5.0;q=inf," * 50):
        for presented in (token, None):
            system.ignition(token=presented, accept=accept)
    require(system.ignition(token=token).status == 200, "a machine is not served any more")


@finding("S2", "a JSON patch that copies a value into itself until the stack overflows")
def deep_copy(system):
    token = system.node("deep")
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {}},
                  {"op": "add", "path": "/foo", "value": {}}]
    depth = 1
    for _ in range(13):
        operations.append({"op": "copy", "from": "/foo", "path": "/foo" + "/a" * depth})
        depth = 2 * depth + 1
    response = system.patch("/api/v1/nodes/deep", operations, token, "json")
    require(400 <= response.status < 500, f"accepted: {response}")


@finding("B13", "a JSON patch that stores what cannot be parsed again")
def unreadable_depth(system):
    path = f"{GROUP}/kubeletconfigs"
    system.create(path, {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
                         "metadata": {"name": "deep"}, "spec": {"kubeletConfig": {"a": {}}}})
    value = json.loads('{"a":' * 60 + "{}" + "}" * 60)
    at = "/spec/kubeletConfig/a"
    operations = [{"op": "replace", "path": at, "value": value}]
    operations.append({"op": "copy", "from": at, "path": at + "/a" * 60})
    system.patch(f"{path}/deep", operations, kind="json")
    deleted = system.request("DELETE", f"{path}/deep")
    require(deleted.status == 200, f"the object cannot be deleted: {deleted}")


@finding("S3", "keys of a KubeletConfig that have no total order", alone=True)
def cyclic_keys(system):
    chosen = random.Random(3)
    keys = {"".join(chosen.choice("a019.") for _ in range(chosen.randint(1, 5))): ["x"] for _ in range(400)}
    response = system.request("POST", f"{GROUP}/kubeletconfigs", {
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig", "metadata": {"name": "cyclic"},
        "spec": {"kubeletConfig": {"staticPodURLHeader": keys}, "machineConfigPoolSelector": {
            "matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}}}})
    if response.status == 201:
        time.sleep(4)  # The controller renders it.
        require(system.alive(), "the process ended")
        system.restart()
        time.sleep(2)


@finding("S21", "annotation keys of a node that have no total order, in mco gather and -o yaml")
def cyclic_annotations(system):
    token = system.node("cyclic")
    chosen = random.Random(21)
    keys = {"a" + "".join(chosen.choice("a019.") for _ in range(chosen.randint(1, 5))) + "b": "x" for _ in range(400)}
    system.patch("/api/v1/nodes/cyclic", {"metadata": {"annotations": keys}}, token)
    gathered = system.mco("gather", "--out", os.path.join(system.scratch, "bundle.tar.gz"))
    require(gathered.returncode == 0, f"mco gather failed: {gathered.stderr[-200:]}")


@finding("B1", "a watch with the largest timeoutSeconds")
def endless_watch(system):
    token = system.node("watcher")
    path = "/api/v1/nodes?fieldSelector=metadata.name%3Dwatcher&watch=true&timeoutSeconds="
    for seconds in ("9223372036854775807", "18446744073709551615", "-1"):
        connection = system.connection(token)
        connection.request("GET", path + seconds, headers={"Authorization": f"Bearer {token}"})
        require(connection.getresponse().status == 200, f"a watch of {seconds} s is not served")
        connection.close()


@finding("B2", "a body that is not an object")
def not_an_object(system):
    token = system.node("array")
    for body in ("[]", "1", '"x"', "null", "{", "[" * 100_000):
        for path in ("/apis/authentication.k8s.io/v1/selfsubjectreviews",
                     "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/api/v1/nodes"):
            response = system.request("POST", path, body, token)
            # Null is an empty object, as in Go.
            require(400 <= response.status < 500 or body == "null", f"{body[:5]} at {path}: {response}")


not_played("B18", "a panic ends one request or reconcile", "needs a panic; tests of mco-http and mco-runtime cause one")
