#!/bin/sh
# Writes Events about nodes and pods, and the ConfigMap kube-system/node-fleet-status with the last reported decision.
# The workflow does not wait for it and reads nothing of it. It is safe to run twice or late.
#
# Parameter of the document: REPORT, the base64 text (for URLs, without padding) of the compressed JSON
#   {"at": epoch seconds, "status": text, "events": [[KIND, NAMESPACE, NAME, REASON, MESSAGE, WARNING], ...]}
# At most 20 events are written; the name of a node may be its instance id. The last line is "result: WORD detail":
# recorded (0), incomplete (69) when the API server refused something, bad-parameter (64).
# insert: parts/environment.sh
REPORT="${REPORT:-}"

case "$REPORT" in
  '' | *[!A-Za-z0-9_-]*)
    echo "result: bad-parameter REPORT"
    exit 64
    ;;
esac
export REPORT
NODE_FLEET_NOW="$(date +%s)" exec python3 - <<'PYTHON'
# insert: events.py
import base64
import sys

MOST_EVENTS = 20
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
STATUS = "node-fleet-status"
REPORTED_AT = "node-fleet.io/reported-at"
UPDATED = "node-fleet.io/last-updated"


def report_of(text):
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    report = json.loads(zlib.decompress(packed))
    return int(report["at"]), str(report["status"]), [tuple(event) for event in report["events"]]


def node_names():
    """Instance id -> name of the node; a name that is not in it stands for itself."""
    listed = api("get", "/api/v1/nodes") or {}
    ids = ((str((n.get("spec") or {}).get("providerID") or ""), n["metadata"]["name"]) for n in listed.get("items") or ())
    return {provider.rpartition("/")[2]: name for provider, name in ids if provider}


def write_status(at, text):
    """Whether the ConfigMap holds this status or a later one."""
    before = api("get", f"{CONFIG_MAPS}/{STATUS}")
    found = before or {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STATUS, "namespace": "kube-system"}}
    marks = found["metadata"].get("annotations") or {}
    if re.fullmatch("[0-9]{1,18}", marks.get(REPORTED_AT) or "") and int(marks[REPORTED_AT]) > at:
        return True
    found["metadata"]["annotations"] = {**marks, REPORTED_AT: str(at), UPDATED: iso(at)}
    found["data"] = {**(found.get("data") or {}), "status": text}
    if before:
        return api("replace", f"{CONFIG_MAPS}/{STATUS}", found) is not None
    return api("create", CONFIG_MAPS, found) is not None


def main():
    try:
        at, status, events = report_of(os.environ["REPORT"])
    except (ValueError, KeyError, TypeError, zlib.error):
        print("result: bad-parameter REPORT")
        sys.exit(64)
    kept = events[:MOST_EVENTS]
    names = node_names() if any(kind == "Node" for kind, *_ in kept) else {}
    done = write_status(at, status)
    for kind, namespace, name, *rest in kept:
        about = (kind, namespace, names.get(name, name) if kind == "Node" else name)
        done = record_event(about, *rest) and done
    print(f"result: recorded {len(kept)} events" if done else "result: incomplete the API server refused a part")
    sys.exit(0 if done else 69)


main()
PYTHON
