#!/bin/sh
# Prints for one worker whether it is cordoned, by which operation, whether it is ready, and how many pods are left. It
# changes nothing.
#
# Parameters of the document: NODE_NAME. Prints one line and then "end":
#   node NAME INSTANCE cordoned|open OWNER ready|not-ready LEFT TERMINATING
#     INSTANCE from the provider id or "-"; OWNER operation in the annotation cordoned-by, "?" unreadable, "-" none
#     LEFT pods that are not of a DaemonSet, not mirror pods and not finished; TERMINATING how many of them terminate
#   node NAME absent
# Exit status 64 bad parameter, 69 the API cannot be read.
# insert: parts/environment.sh

# insert: parts/node.sh

check_node_name
export NODE_NAME
exec python3 - <<'PYTHON'
import json
import os
import re
import subprocess
import sys

NAME = os.environ["NODE_NAME"]


def kubectl(*words):
    limit = "--request-timeout=" + os.environ["REQUEST_TIMEOUT"]
    done = subprocess.run(["kubectl", limit, *words], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        print("result: unreadable kubectl " + " ".join(words))
        sys.exit(69)
    return done.stdout


def is_ignored(pod):
    owner = next((r for r in pod["metadata"].get("ownerReferences") or () if r.get("controller")), {})
    mirror = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return mirror or finished or owner.get("kind") in ("DaemonSet", "Node")


def main():
    text = kubectl("get", "node", NAME, "--ignore-not-found", "-o", "json")
    if not text.strip():
        print(f"node {NAME} absent\nend")
        return
    node = json.loads(text)
    listed = json.loads(kubectl("get", "--raw", "/api/v1/pods?fieldSelector=spec.nodeName%3D" + NAME))["items"] or []
    left = [p for p in listed if (p.get("spec") or {}).get("nodeName") == NAME and not is_ignored(p)]
    terminating = sum(1 for p in left if p["metadata"].get("deletionTimestamp"))
    spec = node.get("spec") or {}
    instance = re.fullmatch(r"aws:///[a-z0-9-]*/(i-[0-9a-f]{8,17})", str(spec.get("providerID") or ""))
    owner = (node["metadata"].get("annotations") or {}).get("node-fleet.io/cordoned-by")
    shown = "-" if not owner else owner if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", owner) else "?"
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    words = [
        "node",
        NAME,
        instance[1] if instance else "-",
        "cordoned" if spec.get("unschedulable") else "open",
        shown,
        "ready" if ready else "not-ready",
        str(len(left)),
        str(terminating),
    ]
    print(" ".join(words) + "\nend")


main()
PYTHON
