#!/usr/bin/env python3
"""Prints one line per suite, and fails unless the failures are exactly those that are expected, and enough tests pass.

usage: report.py EXPECTED RESULTS SUITE...
"""

import json
import pathlib
import re
import sys


# In the place of a test's name: the number that must pass.
MINIMUM = "at least"


def expectations(path):
    """Returns the reasons by suite and test, and how many tests of each suite must pass.

    A line of the file is "suite | test | reason" or "suite | at least | number"."""
    reasons, minimums = {}, {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            suite, test, reason = (part.strip() for part in line.split(" | ", 2))
            if test == MINIMUM:
                minimums[suite] = int(reason)
            else:
                reasons.setdefault(suite, {})[test] = reason
    return reasons, minimums


def ginkgo_results(path):
    """Returns the state of each spec: passed, failed or pending."""
    results = {}
    for suite in json.loads(path.read_text()):
        for spec in suite["SpecReports"] or []:
            if spec["LeafNodeType"] != "It":
                if spec["State"] not in ("passed", "skipped"):
                    results[spec["LeafNodeType"]] = "failed"
                continue
            # Not selected; what a test skips by itself has a message.
            if spec["State"] == "skipped" and not (spec.get("Failure") or {}).get("Message"):
                continue
            name = " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])
            state = {"passed": "passed", "pending": "pending", "skipped": "pending"}.get(spec["State"], "failed")
            # Specs of a table may share a name; one failure is the result of all of them.
            key, number = name, 2
            while key in results:
                key, number = f"{name} #{number}", number + 1
            results[key] = state
    return results


def log_results(path):
    """Returns the result of each test of `go test -v`, and of our clients, which print the same lines."""
    states = {"PASS": "passed", "FAIL": "failed", "SKIP": "pending"}
    found = re.findall(r"^\s*--- (PASS|FAIL|SKIP): (.+?)(?: \([\d.]+s\))?$", path.read_text(errors="replace"), re.M)
    # A test with subtests fails with them.
    parents = {name.rpartition("/")[0] for _, name in found}
    return {name: states[state] for state, name in found if name not in parents}


def results_of(directory, suite):
    name = suite.replace("/", "_")
    report, log = directory / f"{name}.json", directory / f"{name}.log"
    if report.exists() and report.stat().st_size > 0:
        return ginkgo_results(report)
    return log_results(log) if log.exists() else {}


def main():
    expected, minimums = expectations(pathlib.Path(sys.argv[1]))
    directory, suites = pathlib.Path(sys.argv[2]), sys.argv[3:]
    wrong = []
    for suite in suites:
        results = results_of(directory, suite)
        reasons = expected.get(suite, {})
        count = {state: sum(result == state for result in results.values()) for state in ("passed", "failed", "pending")}
        print(f"{suite:<28} {count['passed']:>4} passed {count['failed']:>3} failed {count['pending']:>3} pending")
        log = f"{directory}/{suite.replace('/', '_')}.log"
        if not results:
            wrong.append(f"{suite}: no result; see {log}")
        elif suite not in minimums:
            wrong.append(f"{suite}: expected.txt has no number of tests that must pass; {count['passed']} did")
        elif count["passed"] < minimums[suite]:
            wrong.append(f"{suite}: {count['passed']} tests passed, at least {minimums[suite]} must; see {log}")
        for test in sorted(test for test, state in results.items() if state == "failed"):
            if test not in reasons:
                wrong.append(f"{suite}: failed, and is not expected to: {test}")
        for test in reasons:
            if results.get(test) == "passed":
                wrong.append(f"{suite}: passes now; remove it from expected.txt: {test}")
            elif results and test not in results:
                wrong.append(f"{suite}: did not run: {test}")
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


main()
