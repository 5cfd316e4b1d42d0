"""Secrets that others could read, and traces that attackers did not leave."""

import base64
import contextlib
import glob
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import stat
import subprocess
import tarfile
import tempfile
import time

from findings import finding
from system import MCO, free_port, require, run, wait_until

GROUP = "machineconfiguration.openshift.io/v1"
CONFIGS = f"/apis/{GROUP}/machineconfigs"


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def machine_config(name, config, **spec):
    return {"apiVersion": GROUP, "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, **config}, **spec}}


@finding("S7", "other local users read the store")
def readable_store(system):
    require(mode(system.data) == 0o700, f"the data directory has mode {mode(system.data):o}")
    for directory, _, files in os.walk(system.data):
        for name in files:
            found = mode(os.path.join(directory, name))
            require(found & 0o077 == 0, f"{name} has mode {found:o}")


@finding("S9", "the Ignition server without tokens")
def open_ignition_server(system):
    require(system.ignition("/config/master").status in (401, 403), "mco up serves configs without a token")
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        server = os.path.join(system.data, "server")
        tokens = os.path.join(scratch, "tokens.json")
        with open(tokens, "w", encoding="ascii") as file:
            file.write('{"tokens": []}')
        log = open(os.path.join(scratch, "log"), "w", encoding="utf-8")
        process = subprocess.Popen(
            [MCO, "server", "--secure-port", str(port), "--kubeconfig", system.kubeconfig(), "--apiserver-url",
             f"https://127.0.0.1:{system.port}", "--cert", f"{server}/tls.crt", "--key", f"{server}/tls.key",
             "--bootstrap-token-dir", f"{server}/bootstrap", "--tokens", tokens], stdout=log, stderr=subprocess.STDOUT)
        try:
            status = answer(process, port)
        finally:
            process.kill()
            process.wait()
            log.close()
    require(status in (401, 403), "mco server --tokens serves configs to a client without one")
    server = next((text for text in run("install", "--image", "localhost/mco:1", "--with-operands", "--base", "openshift").stdout.split("\n---")
                   if "machine-config-server" in text and "kind: DaemonSet" in text), "")
    require("--tokens=" in server, "the installed Ignition server has no tokens")
    require("--listen" in run("server", "--help").stdout, "mco server cannot be bound to an address")


def answer(process, port):
    """Returns the status of a request for a config; None if the server does not start without tokens."""
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            context = ssl._create_unverified_context()  # pylint: disable=protected-access
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
            connection.request("GET", "/config/master", headers={
                "Accept": "application/vnd.coreos.ignition+json; version=3.5.0"})
            status = connection.getresponse().status
            if status != 503:  # It has not read the cluster yet.
                return status
        time.sleep(0.3)
    return None


@finding("S12", "contents of private files in readable files of a node")
def readable_state(_system):
    with tempfile.TemporaryDirectory(prefix="mco-attack-root-") as root:
        config = os.path.join(root, "config.ign")
        os.makedirs(os.path.join(root, "etc"))
        with open(config, "w", encoding="ascii") as file:
            file.write('{"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/private", "mode": 384, '
                       '"contents": {"source": "data:,FILE-SECRET"}}]}}')
        applied = run("daemon", "once-from", config, "--root", root)
        require(applied.returncode == 0, f"once-from failed: {applied.stderr[-200:]}")
        os.remove(config)
        for directory, _, files in os.walk(root):
            for name in files:
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    holds_secret = b"FILE-SECRET" in file.read()
                require(not holds_secret or mode(path) & 0o077 == 0, f"{name} has mode {mode(path):o}")
    # The served kubeconfig and first config keep the mode of the reference, whose exact output the server must match.


@finding("S20", "an administrator's certificate that cannot be revoked", alone=True)
def lasting_certificate(system):
    require("--rotate" in run("up", "--help").stdout, "mco up has no --rotate")
    old = os.path.join(system.scratch, "old-kubeconfig")
    shutil.copy(system.kubeconfig(), old)
    certificate = system.credentials(old)[1:]
    require(system.request("GET", "/api/v1/nodes", certificate=certificate).status == 200, "the certificate is invalid")
    try:
        rotated = run("up", "--rotate", "--data-dir", system.data, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        rotated = False
    if not rotated:
        system.restart("--rotate")
    def is_revoked():
        with contextlib.suppress(OSError):
            return system.request("GET", "/api/v1/nodes", certificate=certificate).status == 401
        return True  # The connection is refused already during the handshake.
    wait_until(is_revoked, 5, "the old certificate still works")
    require(system.request("GET", "/api/v1/nodes").status == 200, "the new certificate does not work")


@finding("S22", "a join token in the arguments of a process")
def token_in_arguments(system):
    token, printed = system.join_token()
    command = printed.stdout.strip()
    argument = re.search(rf"\bmco daemon join.*{re.escape(token)}", command)
    require(not argument, "the printed command has the token as an argument, which ps shows to all users")


@finding("S23", "denied requests and impersonation without a trace")
def missing_audit(system):
    token = system.node("denied")
    system.request("GET", "/api/v1/namespaces/default/secrets/audited", token=token)
    system.request("GET", "/api/v1/namespaces/default/secrets/audited", token="guess")
    system.request("POST", "/join", {"node": "x", "credential": "y"}, "bad.token")
    system.request("DELETE", "/api/v1/namespaces/default/configmaps/audited", headers={"Impersonate-User": "mallory"})
    def traces():
        lines = system.log().splitlines()
        return {
            "a denied read": any("system:node:denied" in line and "secrets" in line for line in lines),
            "a failed join": any("join" in line and ("denied" in line or "reject" in line or "401" in line or
                                                     "fail" in line or "refused" in line) for line in lines),
            "an impersonation": any("mallory" in line and "kubernetes-admin" in line for line in lines),
        }
    with contextlib.suppress(Exception):
        wait_until(lambda: all(traces().values()), 3, "")
    missing = [what for what, found in traces().items() if not found]
    require(not missing, f"the log does not show {', '.join(missing)}")


@finding("S24", "a console cookie that other services of this host receive")
def shared_cookie(system):
    host = system.console_url().hostname
    require(host.endswith(".localhost"), f"the console's host is {host}, whose cookies all its ports share")


@finding("S25", "a login code that a link preview uses up")
def spent_code(system):
    url = system.console_url()
    path, headers = f"{url.path}?{url.query}", {"Host": url.netloc}
    preview = system.console("HEAD", path, headers=headers)
    require("set-cookie" not in {name.lower() for name in preview.headers}, "HEAD logs in")
    response = system.console("GET", path, headers=headers)
    require(response.status < 400, f"the code is used up: {response.status}")


@finding("S26", "a console that answers for any host name")
def any_host(system):
    response = system.console("GET", "/login", headers={"Host": "attacker.example"})
    require(400 <= response.status < 500, f"answered: {response.status}")


@finding("S27", "hashes in a support bundle that confirm guesses")
def guessable_hashes(system):
    guess = "$6$salt$guessable"
    user = {"name": "core", "passwordHash": guess}
    system.create(CONFIGS, machine_config("70-secret", {
        "passwd": {"users": [user]}, "storage": {"files": [
            {"path": "/etc/secret", "contents": {"source": "data:,guessable"}}]}}))
    value = base64.b64encode(b"guessable").decode()
    system.create("/api/v1/namespaces/openshift-machine-config-operator/secrets",
                  {"metadata": {"name": "guess"}, "data": {"x": value}})
    bundle = os.path.join(system.scratch, "hashes.tar.gz")
    gathered = system.mco("gather", "--out", bundle)
    require(gathered.returncode == 0, f"mco gather failed: {gathered.stderr[-200:]}")
    with tarfile.open(bundle) as archive:
        text = b"".join(archive.extractfile(member).read() for member in archive if member.isfile()).decode()
    for plain in (guess, value, "guessable", "data:,guessable", json.dumps(guess)):
        for digest in ("sha256", "sha512", "md5"):
            found = hashlib.new(digest, plain.encode()).hexdigest() in text
            require(not found, f"the bundle has the {digest} of a secret")
    for secret in (guess, value, "data:,guessable"):
        require(secret not in text, "the bundle has a secret")


@finding("S28", "bodies of objects in the log")
def logged_bodies(system):
    token = system.node("logged")
    marker = "BODY-MARKER-4711"
    system.patch("/api/v1/nodes/logged", {"metadata": {"annotations": {"x": marker}}}, token)
    system.patch("/api/v1/nodes/logged/status", {"status": {"addresses": [None], "conditions": [None]}}, token)
    system.request("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": marker.lower()},
                                                                     "data": {"x": marker}, "bad": marker})
    time.sleep(3)  # Controllers read the node.
    require(marker not in system.log(), "the log has the body of an object")


@finding("S29", "configs that are valid for mco validate and not for a node")
def invalid_for_nodes(_system):
    def file(path):
        return {"storage": {"files": [{"path": path, "contents": {"source": "data:,x"}}]}}

    def unit(name):
        return {"systemd": {"units": [{"name": name, "contents": "[Service]\n", "enabled": True}]}}
    cases = [unit("../x.service"), unit("a/b.service"), unit("a\nb.service"), unit("a\0b.service"),
             {"systemd": {"units": [{"name": "a.service", "dropins": [
                 {"name": "a/b.conf", "contents": "[Service]\n"}]}]}},
             file("/proc/x"), file("/dev/null"), file("/sys/x"), file("/run/machine-config-daemon/lock"),
             file("/etc/machine-config-daemon/currentconfig"), file("/etc/a\0b")]
    accepted = []
    for case in cases:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as manifest:
            json.dump(machine_config("70-bad", case), manifest)
            manifest.flush()
            if run("validate", manifest.name).returncode == 0:
                accepted.append(json.dumps(case)[:80])
    require(not accepted, f"valid: {'; '.join(accepted)}")


@finding("O1", "once-from that reports applied for what it does not do")
def unsupported_sections(_system):
    cases = {
        "storage.luks": {"storage": {"luks": [{"name": "x", "device": "/dev/x", "clevis": {"tpm2": True}}]}},
        "ignition.config.merge": {"ignition": {"version": "3.5.0", "config": {"merge": [{"source": "data:,%7B%7D"}]}}},
        "a wrong verification hash": {"storage": {"files": [{"path": "/etc/x", "contents": {
            "source": "data:,x", "verification": {"hash": "sha512-" + "0" * 128}}}]}},
    }
    for what, config in cases.items():
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "config.ign")
            with open(path, "w", encoding="ascii") as file:
                json.dump({"ignition": {"version": "3.5.0"}, **config}, file)
            applied = run("daemon", "once-from", path, "--root", root)
            written = glob.glob(os.path.join(root, "etc/x"))
            require(applied.returncode != 0 and not written, f"{what} is applied")
