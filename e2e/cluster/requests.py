#!/usr/bin/env python3
"""Counts the requests of our components from the audit logs of API servers, without watches, leases and events.

usage: requests.py SINCE LOG...    SINCE is a UTC time such as 2026-01-31T12:00:00

Prints one line of JSON: requests per component, and the kinds with most requests.
"""

import collections
import json
import sys

PREFIX = "system:serviceaccount:openshift-machine-config-operator:"


def main(since, logs):
    components, kinds = collections.Counter(), collections.Counter()
    for log in logs:
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    event = json.loads(line)
                except json.JSONDecodeError:
                    # The last line may still be being written.
                    continue
                resource = event.get("objectRef", {}).get("resource", event.get("requestURI", ""))
                if event["requestReceivedTimestamp"] < since or event["verb"] == "watch" or resource in ("leases", "events"):
                    continue
                component = event["user"]["username"].removeprefix(PREFIX)
                components[component] += 1
                kinds[f"{component} {event['verb']} {resource}"] += 1
    print(json.dumps({"total": sum(components.values()), **components, "most": dict(kinds.most_common(5))}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
