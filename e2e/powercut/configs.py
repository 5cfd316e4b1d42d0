#!/usr/bin/env python3
"""Writes the two configs between which the power is cut: old.yaml and new.yaml. usage: configs.py DIRECTORY"""

import json
import pathlib
import sys


def file(path, text, mode=0o644):
    source = "data:," + text.replace("\n", "%0A").replace(" ", "%20")
    return {"path": path, "mode": mode, "overwrite": True, "contents": {"source": source}}


def numbered(number, version):
    text = f"{version} {number}\n" * (1 + number % 40)
    return file(f"/etc/app/{number % 7}/file-{number}", text, 0o600 if number % 5 == 0 else 0o644)


def unit(number, version, enabled):
    contents = f"[Unit]\nDescription={version}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={version}.target\n"
    dropins = [{"name": "10-x.conf", "contents": f"[Service]\nNice={number}\n"}]
    return {"name": f"unit-{number}.service", "enabled": enabled, "contents": contents, "dropins": dropins}


def config(name, files, units):
    ignition = {"ignition": {"version": "3.2.0"}, "storage": {"files": files}, "systemd": {"units": units}}
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": ignition},
    }


# Of 60 files the new config keeps 20, changes 20 and removes 20. It adds 40, and replaces one that was there before.
OLD = config("old", [numbered(n, "old") for n in range(60)], [unit(n, "old", n % 3 != 0) for n in range(8)])
NEW = config(
    "new",
    [numbered(n, "old" if n < 40 else "new") for n in range(20, 100)]
    + [file("/etc/motd", "managed\n"), file("/etc/preexisting", "managed\n")],
    [unit(n, "new", n % 2 == 0) for n in range(3, 12)],
)

directory = pathlib.Path(sys.argv[1])
for made in (OLD, NEW):
    # Every JSON document is YAML.
    (directory / f"{made['metadata']['name']}.yaml").write_text(json.dumps(made))
