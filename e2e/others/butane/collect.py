#!/usr/bin/env python3
"""Collects the Butane configs of the butane tool itself as DIRECTORY/*.bu: those of its documentation, and what its tests
translate or validate, for which the tests run with a recorder (recorder.go.txt) in the places that do, in a copy of the module.

usage: collect.py MODULE DIRECTORY
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
MODULE_PATH = "github.com/coreos/butane"
VARIANTS = ("openshift", "fcos", "flatcar")
# It fails as root, who may read what the test forbids; trees are not translated here anyway.
SKIPPED = ["-skip", "TestTranslateTree"]
# Where a part of a config belongs in a whole one, by its type.
PLACES = {
    "Config": lambda part: part,
    "Ignition": lambda part: {"ignition": part},
    "File": lambda part: {"storage": {"files": [part]}},
    "Resource": lambda part: {"storage": {"files": [{"path": "/etc/resource", "contents": part}]}},
    "Directory": lambda part: {"storage": {"directories": [part]}},
    "Link": lambda part: {"storage": {"links": [part]}},
    "Tree": lambda part: {"storage": {"trees": [part]}},
    "Filesystem": lambda part: {"storage": {"filesystems": [part]}},
    "Unit": lambda part: {"systemd": {"units": [part]}},
    "Dropin": lambda part: {"systemd": {"units": [{"name": "a.service", "dropins": [part]}]}},
    "PasswdUser": lambda part: {"passwd": {"users": [part]}},
    "BootDevice": lambda part: {"boot_device": part},
    "GrubUser": lambda part: {"grub": {"users": [part]}},
    "OpenShift": lambda part: {"openshift": part},
    "Metadata": lambda part: {"metadata": part},
}
METHOD = re.compile(r"^func \((\w+) \w+\) (?:To\w+Unvalidated|Validate)\(.*\{$", re.M)
FUNCTION = re.compile(r"^func translate\w+\((from) \w+, options .*\{$", re.M)
# The label that our variants fcos and flatcar take from openshift.
METADATA = {"name": "example", "labels": {"machineconfiguration.openshift.io/role": "worker"}}


def examples(module):
    """Returns the configs of the documentation by name."""
    found = {}
    for page in sorted((module / "docs").glob("*.md")):
        blocks = re.findall(r"^( *)<!-- butane-config -->\n\1```yaml\n(.*?)^\1```", page.read_text(), re.M | re.S)
        for number, (indent, block) in enumerate(blocks, start=1):
            lines = (line.removeprefix(indent) for line in block.splitlines())
            found[f"docs-{page.stem}-{number:02}"] = "\n".join(lines) + "\n"
    return found


def variants(module):
    """Returns variant and version by package: fcos for those of the base that variants share. Experimental versions, and
    variants that are not translated, are left out."""
    found = {}
    for package in sorted((module / "config").glob("*/v*")):
        version = package.name.removeprefix("v").replace("_", ".") + ".0"
        variant = package.parent.name
        if variant not in VARIANTS or package.name.endswith("_exp"):
            continue
        found[f"config/{variant}/{package.name}"] = (variant, version)
        base = re.search(rf'"{MODULE_PATH}/(base/\w+)"', (package / "schema.go").read_text())
        if variant == "fcos" and base:
            found[base[1]] = (variant, version)
    return found


def with_recorder(source):
    """Returns a source file that records its arguments, or None if it has no place that does."""
    changed = METHOD.sub(lambda match: f"{match[0]} recorder.Record({match[1]});", source)
    changed = FUNCTION.sub(lambda match: f"{match[0]} recorder.Record({match[1]});", changed)
    if changed == source:
        return None
    package = re.search(r"^package \w+$", changed, re.M)[0]
    return changed.replace(package, f'{package}\n\nimport "{MODULE_PATH}/internal/recorder"', 1)


def record(module, packages, directory):
    """Runs the tests of the packages and returns (digest, package, type, config) of each record."""
    copy = directory / "module"
    shutil.copytree(module, copy, copy_function=shutil.copyfile)
    for part in [copy, *copy.rglob("*/")]:
        part.chmod(0o755)
    (copy / "internal/recorder").mkdir()
    shutil.copyfile(HERE / "recorder.go.txt", copy / "internal/recorder/recorder.go")
    for package in packages:
        for source in (copy / package).glob("*.go"):
            changed = None if source.name.endswith("_test.go") else with_recorder(source.read_text())
            if changed:
                source.write_text(changed)
    records = directory / "records"
    records.mkdir()
    command = ["go", "test", "-p", "2", "-vet=off", "-count=1", *SKIPPED, *(f"./{one}" for one in packages)]
    environment = os.environ | {"GOFLAGS": "-mod=readonly", "RECORD_DIR": str(records)}
    subprocess.run(command, cwd=copy, env=environment, check=True, stdout=sys.stderr)
    for path in sorted(records.glob("*.record")):
        head, _, config = path.read_text().partition("\n")
        package, kind = head.split(" ")
        yield path.stem[:8], package.removeprefix(f"{MODULE_PATH}/"), kind, json.loads(config) or {}


def main():
    module, inputs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    known = variants(module)
    inputs.mkdir(parents=True)
    count = {}
    for name, text in examples(module).items():
        # Variants other than openshift have no metadata; ours take that of openshift.
        if not re.search("^metadata:", text, re.M):
            text += f"metadata: {json.dumps(METADATA)}\n"
        (inputs / f"{name}.bu").write_text(text)
        count["docs"] = count.get("docs", 0) + 1
    with tempfile.TemporaryDirectory() as directory:
        for digest, package, kind, config in record(module, list(known), pathlib.Path(directory)):
            if kind not in PLACES or package not in known:
                count[f"not used: {kind}"] = count.get(f"not used: {kind}", 0) + 1
                continue
            variant, version = known[package]
            whole = {**PLACES[kind](config), "variant": variant, "version": version}
            if variant != "openshift" or kind not in ("Config", "Metadata"):
                whole["metadata"] = METADATA
            # JSON is YAML.
            (inputs / f"{variant}-{version}-{kind}-{digest}.bu").write_text(json.dumps(whole, indent=1))
            count[variant] = count.get(variant, 0) + 1
    print(json.dumps(count), file=sys.stderr)


main()
