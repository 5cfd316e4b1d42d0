#!/usr/bin/env python3
"""Compares our translation of Butane configs, DIRECTORY/*.bu, with what the butane tool made of them (*.butane, *.refused).
Prints a result for each in the form of `go test -v`. Differences that differences.txt lists are skipped; a line of it that
no config needs fails.

usage: compare.py MCO DIRECTORY
"""

import collections
import gzip
import json
import pathlib
import subprocess
import sys
import urllib.parse
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor


def expectations():
    """Returns (side, text, reason): side is "refused" or "accepted", which is what we do and butane does not, or "version"
    where only that of the Ignition config is another."""
    lines = (pathlib.Path(__file__).parent / "differences.txt").read_text().splitlines()
    return [tuple(line.split(" | ", 2)) for line in lines if line.strip() and not line.startswith("#")]


def decoded(source, compression):
    head, _, body = source.partition(",")
    content = b64decode(urllib.parse.unquote(body)) if head.endswith(";base64") else urllib.parse.unquote_to_bytes(body)
    try:
        return gzip.decompress(content) if compression == "gzip" else content
    except gzip.BadGzipFile:
        # Some tests only say that it is compressed.
        return b"gzip:" + content


def plain(value):
    """Returns a config with decoded contents and without what is unset, which is all that may be written differently."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if str(value.get("source", "")).startswith("data:"):
        text = decoded(value["source"], value.get("compression"))
        value = {key: member for key, member in value.items() if key != "compression"} | {"source": text.hex()}
    members = {key: plain(member) for key, member in value.items()}
    return {key: member for key, member in members.items() if member not in (None, [], {})}


def theirs(path):
    """Returns what butane made of the config, or None and its reason."""
    result = path.with_suffix(".butane")
    if not result.exists():
        return None, path.with_suffix(".refused").read_text()
    value = json.loads(result.read_text())
    return plain(value["spec"] if value.get("kind") == "MachineConfig" else {"config": value}), ""


def ours(mco, path):
    done = subprocess.run([mco, "apply", "-f", path, "--dry-run", "-o", "json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr
    value = json.loads(done.stdout)
    return plain((value["items"][0] if value.get("kind") == "List" else value)["spec"]), ""


def verdict(mco, path):
    """Returns the side and text of a difference, or None."""
    (expected, refused), (found, error) = theirs(path), ours(mco, path)
    if expected is None or found is None:
        if expected is None and found is None:
            return None
        return ("refused", error) if found is None else ("accepted", refused)
    if expected == found:
        return None
    versions = [config["config"]["ignition"].pop("version", "") for config in (expected, found)]
    if expected == found:
        return "version", f"Ignition {versions[0]}, not {versions[1]}"
    return "different", f"butane: {json.dumps(expected)}\nmco:    {json.dumps(found)}"


def main():
    mco, inputs = sys.argv[1], sorted(pathlib.Path(sys.argv[2]).glob("*.bu"))
    expected = expectations()
    needed = collections.Counter()
    with ThreadPoolExecutor(2) as pool:
        for path, difference in zip(inputs, pool.map(lambda path: verdict(mco, path), inputs)):
            if difference is None:
                print(f"--- PASS: {path.stem}")
                continue
            side, text = difference
            reason = next((one for one in expected if one[0] == side and one[1] in text), None)
            if reason:
                needed[reason] += 1
                print(f"--- SKIP: {path.stem}")
                print(f"    {reason[2]}")
            else:
                print(f"--- FAIL: {path.stem}")
                print(f"    {side}: {text}")
    for reason in expected:
        print(f"--- {'PASS' if needed[reason] else 'FAIL'}: difference {' | '.join(reason[:2])}")
        print(f"    {needed[reason]} configs: {reason[2]}")


main()
