# Writes Kubernetes Events about nodes and pods. An object has one Event for each reason: a repetition counts up and
# replaces the message, so that no number of messages makes many Events. This code runs on the server with the standard
# library: cdk_app/scripts.py inserts it into the commands that report what they do. A failure raises nothing.
import json
import os
import re
import subprocess
import tempfile
import time
import zlib

MESSAGE_LENGTH = 1000
OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def api(verb, path, body=None):
    """The object that the API server answers, None when it refuses or cannot be reached, or the disk is full."""
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            words = ["kubectl", "--request-timeout=3s", verb, "--raw", path]
            if body is not None:
                json.dump(body, file)
                file.flush()
                words += ["-f", file.name]
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError):
        return None


def iso(epoch):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def subject_of(kind, namespace, name):
    """The reference to the object. Kubernetes uses the name of a node as its uid in Events; None: no such pod."""
    if kind == "Node":
        return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
    pod = api("get", f"/api/v1/namespaces/{namespace}/pods/{name}")
    if pod is None:
        return None
    uid = pod["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}


def record_event(about, reason, message, warning):
    """Whether the Event is written; none is about a pod that does not exist. about: kind, namespace and name."""
    kind, namespace, name = about
    if not all(OBJECT_NAME.fullmatch(each) for each in filter(None, (namespace, name or "?"))):
        return False
    now, subject = iso(int(os.environ["NODE_FLEET_NOW"])), subject_of(kind, namespace, name)
    if subject is None:
        return True
    folder = f"/api/v1/namespaces/{namespace or 'default'}/events"
    digest = zlib.crc32(json.dumps([subject, reason], sort_keys=True).encode())
    own = f"{name[:200].rstrip('.-')}.node-fleet-{digest:08x}"
    before = api("get", f"{folder}/{own}")
    event = before or {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": own, "namespace": namespace or "default"},
        "involvedObject": subject,
        "reason": reason,
        "source": {"component": "node-fleet"},
        "reportingComponent": "node-fleet",
        "firstTimestamp": now,
        "count": 0,
    }
    changed = {
        "type": "Warning" if warning else "Normal",
        "message": message[:MESSAGE_LENGTH],
        "lastTimestamp": now,
        "count": (event.get("count") or 0) + 1,
    }
    event = {**event, **changed}
    return (api("replace", f"{folder}/{own}", event) if before else api("create", folder, event)) is not None
