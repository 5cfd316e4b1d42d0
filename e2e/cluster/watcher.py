#!/usr/bin/env python3
"""Watches a cluster from outside and checks what must hold at all times, independently of mco's own code.

usage: watcher.py DIRECTORY KUBECTL [ARGUMENT...]

Reads nodes, pods, PodDisruptionBudgets and MachineConfigPools through `kubectl get --watch`. Appends each violation to
DIRECTORY/violations and keeps the counts in DIRECTORY/counts.json. A scenario that breaks something on purpose names it in
DIRECTORY/expected: lines "down NODE" (the machine is off or has no kubelet), "cordoned NODE" (by an administrator, must stay),
"budget NAMESPACE/NAME" (pods of this budget fail on purpose).
"""

import json
import os
import subprocess
import sys
import threading
import time
import traceback

PREFIX = "machineconfiguration.openshift.io/"
# A reboot of a machine here takes well under a minute; the kubelet inspects control groups of the former boot, the API server
# may be away itself.
LONGEST_NOT_READY = 240
ALLOWED_AWAY = 1
# A controller may decide to update a node before it sees that another one is no longer Ready.
NOTICED_WITHIN = 5


class Watcher:
    def __init__(self, directory, kubectl):
        self.directory = directory
        self.kubectl = kubectl
        self.lock = threading.Lock()
        self.nodes = {}
        self.not_ready_since = {}
        self.evicted = set()
        self.protected = set()
        self.counts = {"evictions": 0, "cordons": 0, "reboots": 0, "events": 0, "violations": 0, "cordons_of": {}}
        self.reported = set()

    def expected(self, kind):
        try:
            with open(os.path.join(self.directory, "expected"), encoding="utf-8") as file:
                lines = [line.split() for line in file]
        except FileNotFoundError:
            return set()
        return {line[1] for line in lines if len(line) == 2 and line[0] == kind}

    def violation(self, key, text):
        if key in self.reported:
            return
        self.reported.add(key)
        self.counts["violations"] += 1
        with open(os.path.join(self.directory, "violations"), "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def save(self):
        path = os.path.join(self.directory, "counts.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.counts, file)
        os.replace(path + ".new", path)

    def ended(self, work, *arguments):
        """Runs a thread's work, which never ends: a watcher without one of its threads would see nothing and report nothing."""
        try:
            work(*arguments)
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def watch(self, resource, handle):
        """Streams one kind for ever; kubectl ends when the API server restarts, then the list is read again."""
        while True:
            command = self.kubectl + ["get", resource, "-A", "-o", "json", "--watch", "--output-watch-events"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                decoder, buffer = json.JSONDecoder(), ""
                for line in process.stdout:
                    buffer += line
                    try:
                        event, _ = decoder.raw_decode(buffer)
                    except json.JSONDecodeError:
                        continue
                    buffer = ""
                    with self.lock:
                        self.counts["events"] += 1
                        handle(event["type"], event["object"])
                        self.save()
            time.sleep(0.5)

    def node(self, event, node):
        name = node["metadata"]["name"]
        if event == "DELETED":
            self.nodes.pop(name, None)
            self.not_ready_since.pop(name, None)
            return
        before = self.nodes.get(name)
        unschedulable = node["spec"].get("unschedulable", False)
        if before is not None:
            if unschedulable and not before["spec"].get("unschedulable", False):
                self.counts["cordons"] += 1
                self.counts["cordons_of"][name] = self.counts["cordons_of"].get(name, 0) + 1
            boot = node["status"]["nodeInfo"]["bootID"]
            if boot != before["status"]["nodeInfo"]["bootID"]:
                self.counts["reboots"] += 1
        self.nodes[name] = node
        if before is not None and self.is_sent(node) and not self.is_sent(before):
            self.started(name, node)
        if name in self.expected("cordoned") and not unschedulable:
            self.violation(("cordon", name), f"the administrator's cordon of {name} was lifted")
        self.readiness(name, node)
        self.away()

    def readiness(self, name, node):
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        if ready or name in self.expected("down"):
            self.not_ready_since.pop(name, None)
        else:
            self.not_ready_since.setdefault(name, time.monotonic())

    @staticmethod
    def role(node):
        return "master" if "node-role.kubernetes.io/control-plane" in node["metadata"].get("labels", {}) else "worker"

    @staticmethod
    def is_sent(node):
        """Whether the node has another target than the config it reports."""
        annotations = node["metadata"].get("annotations", {})
        current, desired = (annotations.get(PREFIX + key, "") for key in ("currentConfig", "desiredConfig"))
        return bool(current and desired) and current != desired

    @staticmethod
    def is_taken(node):
        drain = node["metadata"].get("annotations", {}).get(PREFIX + "desiredDrain", "")
        return node["spec"].get("unschedulable", False) and drain.startswith("drain-")

    def started(self, name, node):
        """Checks that no update starts while another node of the role is away for any reason, by mco or not."""
        excused = self.expected("cordoned") | self.expected("down")
        for other, found in self.nodes.items():
            if other == name or other in excused or self.role(found) != self.role(node):
                continue
            since = self.not_ready_since.get(other)
            is_down = since is not None and time.monotonic() - since > NOTICED_WITHIN
            if is_down or self.is_taken(found):
                why = "not Ready" if is_down else "drained"
                self.violation(("started", name, other), f"the update of {name} started while {other} was {why}")

    def away(self):
        """Counts the nodes that mco has taken away, per role."""
        pools = {}
        for name, node in self.nodes.items():
            if self.is_taken(node) and name not in self.expected("cordoned") | self.expected("down"):
                pools.setdefault(self.role(node), set()).add(name)
        for role, names in pools.items():
            if len(names) > ALLOWED_AWAY:
                self.violation(("away", role, tuple(sorted(names))), f"{len(names)} of {role} are away: {sorted(names)}")

    def pod(self, event, pod):
        uid = pod["metadata"]["uid"]
        for condition in pod.get("status", {}).get("conditions", []):
            if condition["type"] == "DisruptionTarget" and condition.get("reason") == "EvictionByEvictionAPI":
                if uid not in self.evicted:
                    self.evicted.add(uid)
                    self.counts["evictions"] += 1

    def budget(self, event, budget):
        name = f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"
        status = budget.get("status", {})
        if event == "DELETED" or "desiredHealthy" not in status or name in self.expected("budget"):
            return
        key = ("budget", name)
        if status["currentHealthy"] >= status["desiredHealthy"]:
            self.reported.discard(key)
            # While its pods start for the first time a budget has nothing to protect yet.
            if status["currentHealthy"] > 0:
                self.protected.add(name)
        elif name in self.protected:
            self.violation(key, f"budget {name}: {status['currentHealthy']} healthy, {status['desiredHealthy']} needed")

    def clock(self):
        while True:
            time.sleep(1)
            with self.lock:
                for name, since in list(self.not_ready_since.items()):
                    if name in self.expected("down"):
                        self.not_ready_since.pop(name, None)
                    elif time.monotonic() - since > LONGEST_NOT_READY:
                        self.violation(("ready", name, since), f"{name} is not Ready for {LONGEST_NOT_READY} s")
                self.save()

    def run(self):
        kinds = {"nodes": self.node, "pods": self.pod, "poddisruptionbudgets": self.budget}
        for resource, handle in kinds.items():
            threading.Thread(target=self.ended, args=(self.watch, resource, handle), daemon=True).start()
        self.ended(self.clock)


if __name__ == "__main__":
    Watcher(sys.argv[1], sys.argv[2:]).run()
