"""Callers that obtained more rights than they were granted."""

import os
import tempfile
import threading
import time

from findings import finding, not_played
from system import NotPlayed, require, run, wait_until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "/apis/machineconfiguration.openshift.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1"


def grant(system, name, user, rules):
    """Grants rules to a user, cluster-wide."""
    system.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    system.create(f"{RBAC}/clusterrolebindings", {
        "metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                                                "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})


@finding("S8", "a finalizer with which a node keeps its access")
def lasting_node(system):
    token = system.node("lasting")
    system.patch("/api/v1/nodes/lasting", {"metadata": {"finalizers": ["attack.example.io/hold"]}}, token)
    system.request("DELETE", "/api/v1/nodes/lasting")
    response = system.request("GET", "/api/v1/nodes/lasting", token=token)
    require(response.status == 401, f"the node still has access: {response.status}")


@finding("S10", "an installed daemon that makes its own node control plane")
def control_plane_label(_system):
    manifests = run("install", "--image", "localhost/mco:1", "--with-operands", "--base", "openshift").stdout
    policies = [document for document in manifests.split("\n---\n")
                if "\nkind: ValidatingAdmissionPolicy\n" in f"\n{document}"
                and "name: machine-config-daemon-writes-its-own-node\n" in document]
    require(len(policies) == 1, f"mco install has {len(policies)} policies for the nodes of daemons")
    for field in ("metadata.labels", "spec"):
        require(f"oldObject.{field}" in policies[0], f"the policy of the daemons does not compare {field}")


@finding("S11", "symbolic links of a user in the way of the root daemon")
def symlinked_parent(_system):
    if os.geteuid() != 0:
        raise NotPlayed("needs root")
    with tempfile.TemporaryDirectory(prefix="mco-attack-root-") as root:
        home = os.path.join(root, "home/core")
        for directory in ("etc/cron.hourly", "home/core/.ssh"):
            os.makedirs(os.path.join(root, directory))
        with open(os.path.join(root, "etc/passwd"), "w", encoding="ascii") as file:
            file.write("root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n")
        with open(os.path.join(root, "etc/group"), "w", encoding="ascii") as file:
            file.write("root:x:0:\ncore:x:1000:\n")
        os.symlink("/etc/cron.hourly", os.path.join(home, ".ssh/authorized_keys.d"))
        os.symlink("/etc", os.path.join(home, "sub"))
        for path in (home, f"{home}/.ssh", f"{home}/.ssh/authorized_keys.d", f"{home}/sub"):
            os.chown(path, 1000, 1000, follow_symlinks=False)
        config = os.path.join(root, "config.ign")
        with open(config, "w", encoding="ascii") as file:
            file.write('{"ignition": {"version": "3.5.0"}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": '
                       '["ssh-ed25519 AAAA"]}]}, "storage": {"files": [{"path": "/home/core/sub/file", "mode": 420, '
                       '"contents": {"source": "data:,x"}}]}}')
        run("daemon", "once-from", config, "--root", root)
        scheduled = os.listdir(os.path.join(root, "etc/cron.hourly"))
        require(not scheduled, f"files in /etc/cron.hourly: {scheduled}")
        require(not os.path.exists(os.path.join(root, "etc/file")), "a file was written to /etc through a user's link")


@finding("S13", "a revoked node whose watch stays open, and whose token works again")
def revoked_node(system):
    token = system.node("revoked")
    connection = system.connection(token)
    path = "/api/v1/nodes?fieldSelector=metadata.name%3Drevoked&watch=true&timeoutSeconds=31536000"
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    stream = connection.getresponse()
    require(stream.status == 200, "the node cannot watch itself")
    ended, received = threading.Event(), []

    def follow():
        while chunk := stream.read1(1 << 16):
            received.append(chunk)
        ended.set()
    threading.Thread(target=follow, daemon=True).start()
    system.request("DELETE", "/api/v1/nodes/revoked")
    stopped = ended.wait(5)
    system.create("/api/v1/nodes", {"metadata": {"name": "revoked", "annotations": {"secret": "after-revocation"}}})
    time.sleep(0.5)
    require(b"after-revocation" not in b"".join(received), "the old watch shows the new node")
    require(stopped, "the watch of the deleted node stays open")
    response = system.request("GET", "/api/v1/nodes/revoked", token=token)
    require(response.status == 401, f"the old token works for a new node of that name: {response.status}")


@finding("S14", "a worker that reads the rendered config of another pool")
def foreign_config(system):
    token = system.node("curious")
    def target():
        pool = system.request("GET", f"{GROUP}/machineconfigpools/master").json()
        return pool.get("spec", {}).get("configuration", {}).get("name", "")
    wait_until(target, 20, "pool master has no config")
    response = system.request("GET", f"{GROUP}/machineconfigs/{target()}", token=token)
    require(response.status == 403, f"{response.status}, {len(response.body)} bytes")


@finding("S15", "a node that forges and overwrites Events of others")
def forged_events(system):
    token = system.node("forger")
    path = "/api/v1/namespaces/default/events"
    event = {"metadata": {"name": "genuine", "namespace": "default"}, "reason": "Reboot", "message": "genuine",
             "type": "Normal", "involvedObject": {"kind": "Node", "name": "other"}, "source": {"host": "other"},
             "reportingComponent": "machine-config-daemon", "reportingInstance": "other"}
    system.create(path, event)
    patched = system.patch(f"{path}/genuine", {"message": "forged"}, token)
    require(patched.status == 403, f"an Event of another node was overwritten: {patched.status}")
    event["metadata"] = {"name": "forged", "namespace": "default"}
    created = system.request("POST", path, event, token)
    require(created.status == 403, f"an Event in the name of another node was created: {created.status}")


@finding("S31", "labels with which a node chooses its own pool")
def own_pool(system):
    token = system.node("mover")
    for label in ("node-role.kubernetes.io/master", "node-role.kubernetes.io/infra", "attack.example.io/pool"):
        response = system.patch("/api/v1/nodes/mover", {"metadata": {"labels": {label: ""}}}, token)
        require(response.status == 403, f"label {label}: {response.status}")


@finding("S32", "impersonation of a group without a user")
def group_without_user(system):
    response = system.request("GET", "/api/v1/nodes", headers={"Impersonate-Group": "system:masters"})
    require(400 <= response.status < 500, f"ignored: {response.status}")


@finding("B4", "impersonating one user yields every group")
def impersonated_group(system):
    alice = system.user("alice")
    grant(system, "as-bob", "alice", [{"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"],
                                       "verbs": ["impersonate"]}])
    try:
        is_known = system.request("GET", "/api/v1/secrets", certificate=alice).status != 401
    except OSError:
        is_known = False
    if not is_known:
        raise NotPlayed("the server accepts no certificate that it did not issue itself")
    for headers in ({"Impersonate-Group": "system:masters"}, {"Impersonate-Uid": "0"},
                    {"Impersonate-Extra-Scopes": "all"}):
        response = system.request("GET", "/api/v1/secrets", certificate=alice,
                                  headers={"Impersonate-User": "bob", **headers})
        require(response.status == 403, f"{headers}: {response.status}")
        require("alice" in response.text or "Group" not in str(headers), f"the caller is not named: {response}")


@finding("B8", "a JSON patch of a scale that sets no replicas")
def lost_replicas(system):
    container = {"name": "c", "image": "x"}
    system.create("/apis/apps/v1/namespaces/default/deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scaled"}, "spec": {
            "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}})
    path = "/apis/apps/v1/namespaces/default/deployments/scaled"
    system.patch(f"{path}/scale", [{"op": "replace", "path": "/spec/replicas", "value": 5}], kind="json")
    replicas = system.request("GET", path).json()["spec"]["replicas"]
    require(replicas in (3, 5), f"replicas became {replicas}")


@finding("B9", "an admission policy that is stored and not enforced")
def ignored_policy(system):
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
              "metadata": {"name": "deny"}, "spec": {
                  "failurePolicy": "Fail", "validations": [{"expression": "object.metadata.name != 'denied'"}],
                  "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                                                          "operations": ["CREATE"], "resources": ["configmaps"]}]}}}
    binding = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
               "metadata": {"name": "deny"}, "spec": {"policyName": "deny", "validationActions": ["Deny"]}}
    created = [system.request("POST", f"{POLICIES}/{path}", body) for path, body in (
        ("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding))]
    if all(response.status == 201 for response in created):
        def denied():
            system.request("DELETE", "/api/v1/namespaces/default/configmaps/denied")
            body = {"metadata": {"name": "denied"}}
            response = system.request("POST", "/api/v1/namespaces/default/configmaps", body)
            return response.status in (403, 422)
        wait_until(denied, 5, "the policy is stored, and what it denies is created")
    webhook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
               "metadata": {"name": "nothing-listens"}, "webhooks": [{
                   "name": "deny.attack.example.io", "clientConfig": {"url": "https://127.0.0.1:1/"},
                   "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "rules": [{
                       "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"],
                       "resources": ["jobs"]}]}]}
    if system.request("POST", f"{POLICIES}/validatingwebhookconfigurations", webhook).status == 201:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "j-"}, "spec": {"template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}
        response = system.request("POST", "/apis/batch/v1/namespaces/default/jobs", job)
        system.request("DELETE", f"{POLICIES}/validatingwebhookconfigurations/nothing-listens")
        require(response.status != 201, "the webhook is stored and not called")


@finding("B11", "a user who may create bindings and binds rights that it does not have")
def bound_rights(system):
    grant(system, "binder", "carol", [{"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["create"],
                                       "resources": ["clusterroles", "clusterrolebindings"]}])
    system.create(f"{RBAC}/clusterroles", {"metadata": {"name": "everything"}, "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
    as_carol = {"Impersonate-User": "carol"}
    binding = {"metadata": {"name": "escalated"}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "everything"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}]}
    response = system.request("POST", f"{RBAC}/clusterrolebindings", binding, headers=as_carol)
    require(response.status == 403, f"a role with all rights was bound: {response.status}")
    role = {"metadata": {"name": "escalated"}, "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    response = system.request("POST", f"{RBAC}/clusterroles", role, headers=as_carol)
    require(response.status == 403, f"a role with more rights was created: {response.status}")


@finding("B12", "an update of a custom resource without a resourceVersion")
def unconditional_update(system):
    path = f"{GROUP}/kubeletconfigs"
    system.create(path, {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
                         "metadata": {"name": "versioned"}, "spec": {}})
    body = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
            "metadata": {"name": "versioned", "resourceVersion": "0"}, "spec": {"logLevel": 3}}
    response = system.request("PUT", f"{path}/versioned", body)
    require(response.status in (409, 422), f"overwritten: {response.status}")


@finding("B16", "field selectors with which a node lists other nodes")
def foreign_nodes(system):
    token = system.node("own")
    system.node("foreign")
    for selector in ("metadata.name%3Down%2Cmetadata.name%3Dforeign", "metadata.name%3D%5Cown", "metadata.name!%3Down",
                     "metadata.name%3Down%5C%2Cmetadata.name%3Dforeign", "metadata.name%3D%3Dforeign",
                     "%2Cmetadata.name%3Down", "metadata.name%3Down&fieldSelector=metadata.name%3Dforeign",
                     "metadata.name%3Dforeign&fieldSelector=metadata.name%3Down", ""):
        for prefix in ("/api/v1/nodes", "/api/v1/watch/nodes"):
            watch = "&timeoutSeconds=1" if "watch" in prefix else ""
            response = system.request("GET", f"{prefix}?fieldSelector={selector}{watch}", token=token)
            shows_other = response.status == 200 and '"foreign"' in response.text
            require(not shows_other, f"{prefix}?fieldSelector={selector} shows another node")


not_played("B10", "components of mco up read every Secret", "their identity is inside the process; documented instead")
not_played("S30", "rights of the installed components", "manifests, no running system; mco-operator tests them")
