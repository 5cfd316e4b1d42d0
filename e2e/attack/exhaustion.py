"""Requests that used up memory, processor time, connections, descriptors or disk."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from findings import finding, not_played
from system import Broken, NotPlayed, System, close_all, open_connections, require, wait_until

EVENTS = "/api/v1/namespaces/default/events"


def in_parallel(count, work):
    """Runs the work several times at once, and waits for all."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def serves_the_administrator(system, when):
    """Requires that an administrator is served within a second, several times."""
    for _ in range(5):
        begin = time.monotonic()
        try:
            response = system.request("GET", "/api/v1/nodes", timeout=10)
        except OSError as error:
            raise Broken(f"{when}: {error}") from error
        seconds = time.monotonic() - begin
        require(response.status == 200 and seconds < 1, f"{when}: {response.status} after {seconds:.1f} s")


@finding("S4", "420 half-sent requests to join, without a token")
def half_sent_joins(system):
    connections = system.half_sent(424, "/join")
    try:
        serves_the_administrator(system, f"with {len(connections)} half-sent requests")
    finally:
        close_all(connections)


@finding("B15", "half-sent requests of a node that pretend to be watches")
def half_sent_watches(system):
    connections = system.half_sent(424, "/api/v1/nodes?watch=true", system.node("slow"))
    try:
        serves_the_administrator(system, f"with {len(connections)} half-sent requests")
    finally:
        close_all(connections)


@finding("S5", "null as a list member in the status of a node", alone=True)
def null_member(system):
    token = system.node("null")
    system.node("healthy")
    for field in ("addresses", "conditions", "images", "volumesAttached"):
        system.patch("/api/v1/nodes/null/status", {"status": {field: [None]}}, token)
    for command in (("status",), ("drift",)):
        result = system.mco(*command)
        require("expected" not in result.stderr, f"mco {command[0]} fails: {result.stderr[-200:]}")
    # The controllers still reconcile nodes: the pool counts both.
    def machine_count():
        pool = system.request("GET", "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/worker").json()
        return pool.get("status", {}).get("machineCount")
    wait_until(lambda: machine_count() == 2, 20, "the pool does not count its nodes any more")
    system.restart()


@finding("S6", "four strategic patches of 12,000 list members in reverse order")
def quadratic_merge(system):
    token = system.node("quadratic")
    names = [f"c{index}" for index in range(12_000)]
    path = "/api/v1/nodes/quadratic/status"
    conditions = [{"type": name, "status": "True"} for name in names[:6_000]]
    system.patch(path, {"status": {"conditions": conditions}}, token, "strategic")
    order = {"status": {"$setElementOrder/conditions": [{"type": name} for name in reversed(names)],
                        "conditions": [{"type": name, "status": "False"} for name in names]}}

    def send():
        with contextlib.suppress(OSError):
            system.patch(path, order, token, "strategic")
    in_parallel(4, send)


@finding("S16", "2,400 idle connections to the Ignition server and to the API", alone=True)
def idle_connections(system):
    token = system.ignition_token()
    context = system.context()
    context.verify_mode = 0
    connections = open_connections(2400, system.server_port, context) + open_connections(2400, system.port)
    try:
        serves_the_administrator(system, f"with {len(connections)} idle connections")
    finally:
        close_all(connections)
    def machine_is_served():
        with contextlib.suppress(OSError):
            return system.ignition(token=token).status == 200
        return False
    wait_until(machine_is_served, 10, "the Ignition server does not recover")


@finding("S17", "forms of 4 MiB at the console, without a session")
def large_forms(system):
    # The last byte of the largest form never arrives, so that the server has to keep the rest.
    body = b"token=".ljust((4 << 20) - 1, b"x")
    head = f"POST /plan HTTP/1.1\r\nHost: 127.0.0.1:{system.console_port}\r\n" \
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    connections = []
    try:
        for _ in range(150):
            connection = socket.create_connection(("127.0.0.1", system.console_port), timeout=5)
            connections.append(connection)
            with contextlib.suppress(OSError):
                connection.sendall(head.encode() + body)
        require(system.console("GET", "/healthz").status == 200, "the console does not respond")
    finally:
        close_all(connections)


@finding("S18", "a CRD pattern that is slow on a long string")
def slow_pattern(system):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": {"type": "string", "pattern": r"(\w{1,1000}){1,20}x"}}}}}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": "slows.attack.example.io"}, "spec": {
               "group": "attack.example.io", "scope": "Cluster",
               "names": {"plural": "slows", "singular": "slow", "kind": "Slow", "listKind": "SlowList"},
               "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}}
    response = system.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    if response.status != 201:
        return  # Such a pattern is rejected, which is as good.
    path = "/apis/attack.example.io/v1/slows"
    wait_until(lambda: system.request("GET", path).status == 200, 10, "the kind is not served")
    body = {"apiVersion": "attack.example.io/v1", "kind": "Slow", "metadata": {"generateName": "s-"},
            "spec": {"text": "a" * 200_000}}

    def send():
        with contextlib.suppress(OSError):
            system.request("POST", path, body, timeout=20)
    in_parallel(3, send)


@finding("S19", "bad tokens at the Ignition server that lock out good ones")
def locked_out(system):
    token = system.ignition_token()
    for _ in range(15):
        require(system.ignition(token="guess").status in (401, 403, 429, 503), "a guess is served")
    response = system.ignition(token=token)
    require(response.status == 200, f"a good token is refused: {response}")


@finding("B3", "a JSON patch of 2 KB that doubles an object 20 times")
def copy_bomb(system):
    token = system.node("bomb")
    operations = [{"op": "copy", "from": "/metadata", "path": f"/metadata/a{index}"} for index in range(30)]
    for suffix in ("", "?dryRun=All"):
        response = system.patch(f"/api/v1/nodes/bomb{suffix}", operations, token, "json")
        require(400 <= response.status < 500, f"accepted: {response.status}")


@finding("B5", "a full disk", alone=True)
def full_disk(_system):
    directory = tempfile.mkdtemp(prefix="mco-attack-disk-")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", directory], capture_output=True,
                             text=True, check=False)
    if mounted.returncode != 0:
        os.rmdir(directory)
        raise NotPlayed(f"needs a small filesystem: {mounted.stderr.strip()}")
    other = None
    try:
        other = System(directory=os.path.join(directory, "data"))
        fill_and_free(other, os.path.join(directory, "filler"))
    finally:
        if other:
            other.close()
        subprocess.run(["umount", directory], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def fill_and_free(system, filler):
    def write(name):
        body = {"metadata": {"name": name}, "data": {"x": "y" * 100_000}}
        return system.request("POST", "/api/v1/namespaces/default/configmaps", body).status
    with contextlib.suppress(OSError), open(filler, "wb") as file:
        while True:
            file.write(b"x" * (1 << 16))
            file.flush()
    statuses = [write(f"full-{index}") for index in range(100)]
    require(system.alive(), "the process ended")
    refused = [status for status in statuses if status != 201]
    require(refused, "no write was refused")
    require(set(refused) == {507}, f"writes on a full disk are answered with {sorted(set(refused))}, not 507")
    ready = system.request("GET", "/readyz", token="")
    require(ready.status != 200, "/readyz reports ok on a full disk")
    os.remove(filler)
    wait_until(lambda: write(f"free-{time.monotonic_ns()}") == 201, 5, "writes fail although there is space again")
    wait_until(lambda: system.request("GET", "/readyz", token="").status == 200, 5, "/readyz does not recover")


@finding("B6", "hundreds of megabytes of Events of one node", alone=True)
def large_events(system):
    token = system.node("loud")

    def event(name, size):
        return {"reason": "Loud", "type": "Normal", "message": "m", "involvedObject": {"kind": "Node", "name": "loud"},
                "source": {"host": "loud"}, "reportingComponent": "loud", "reportingInstance": "loud",
                "metadata": {"name": name, "namespace": "default", "annotations": {"x": "y" * size}}}
    accepted = 0
    for index in range(20):
        response = system.request("POST", EVENTS, event(f"large-{index}", 2_900_000), token)
        accepted += response.status == 201
    require(accepted == 0, f"{accepted} Events of 2.9 MB were stored")
    small = (system.request("POST", EVENTS, event(f"small-{index}", 60_000), token) for index in range(300))
    stored = sum(response.status == 201 for response in small) * 60_000 >> 20
    require(stored < 4, f"{stored} MB of Events of one node were stored")


not_played("B7", "renewing the administrator's kubeconfig on a full disk", "happens every 12 hours; a test covers it")
not_played("B14", "the end of watches is not random", "watches end after 30 to 60 minutes; a unit test covers it")
not_played("B17", "the webhook's listener has no limits", "needs a cluster that calls it; mco-operator tests it")
