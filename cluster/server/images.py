"""Lets pods onto a new worker once its images are there, and publishes the list of images that a new worker pulls.

It runs on the server as a service, with the standard library and kubectl. A new worker registers with the taint
node-fleet.io/starting=SECONDS:NoSchedule, pulls the images of the list, and then annotates its own Node. This removes
the taint after that, or SECONDS after the Node was created. A worker cannot do it: no kubelet may change its taints.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any

TAINT = "node-fleet.io/starting"
REPORT = "node-fleet.io/images"
WORKERS = "/api/v1/nodes?labelSelector=node-fleet.io%2Frole%3Dworker"
DEPLOYMENTS = "/apis/apps/v1/deployments"
SERVER_LABEL = "node-role.kubernetes.io/control-plane"
LIST = Path("var/lib/rancher/k3s/server/static/node-fleet/images.txt")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
REPORTED = re.compile(r"\d{1,3}/\d{1,3}/\d{1,5}")
MOST_IMAGES = 40
MOST_SECONDS = 900
PAUSE_SECONDS, IDLE_PAUSE_SECONDS, LIST_SECONDS = 10, 60, 60

Kubectl = Callable[..., str]
"""Runs kubectl with these words and gives its output; OSError when it fails."""


def kubectl(*words: str) -> str:
    """kubectl of the server, with a limit for each request."""
    command = ["kubectl", "--request-timeout=15s", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise OSError(f"kubectl {words[0]}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def starting_taint(node: dict[str, Any]) -> dict[str, Any] | None:
    """The taint of a worker that starts; None without it."""
    taints = node.get("spec", {}).get("taints") or ()
    return next((taint for taint in taints if taint.get("key") == TAINT), None)


def reason_to_open(node: dict[str, Any], now: float) -> str:
    """Why pods may start on a worker that has the taint; empty while they may not."""
    report = (node["metadata"].get("annotations") or {}).get(REPORT) or ""
    if REPORTED.fullmatch(report):
        pulled, wanted, seconds = report.split("/")
        return f"{pulled} of {wanted} images were pulled in {seconds} s"
    value = str((starting_taint(node) or {}).get("value") or "")
    limit = min(MOST_SECONDS, int(value)) if re.fullmatch(r"\d{1,4}", value) else 0
    created = datetime.fromisoformat(node["metadata"]["creationTimestamp"].replace("Z", "+00:00")).timestamp()
    return f"its images were not reported within {limit} s" if now - created >= limit else ""


def open_workers(run: Kubectl, now: float) -> bool:
    """Remove the taint from each worker that is due; whether any worker has it still. OSError without an answer."""
    waiting = False
    for node in json.loads(run("get", "--raw", WORKERS)).get("items") or ():
        if starting_taint(node) is None:
            continue
        name, reason = node["metadata"]["name"], reason_to_open(node, now)
        waiting = waiting or not reason
        if reason:
            left = [taint for taint in node["spec"]["taints"] if taint.get("key") != TAINT]
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            patch = json.dumps({"metadata": version, "spec": {"taints": left or None}})
            try:
                run("patch", "node", name, "--type", "merge", "-p", patch)
                report(f"worker {name} takes pods: {reason}")
            except OSError as error:  # the Node changed meanwhile, or is deleted
                waiting = True
                report(f"worker {name} keeps its taint {TAINT} until the next try: {error}")
    return waiting


def available(deployment: dict[str, Any]) -> int:
    """How many of its pods are available."""
    return int((deployment.get("status") or {}).get("availableReplicas") or 0)


def wanted_images(deployments: list[dict[str, Any]], listed: Collection[str] = ()) -> list[str]:
    """The images of the Deployments that run on the workers, those with the most replicas first.

    Without an available pod an image counts only when it was listed before: a new one may not exist, and after an
    outage or a night off the pods wait for workers that need the list. One that selects the server is left out.
    """
    wanted = [
        one
        for one in deployments
        if one["spec"].get("replicas") != 0
        and SERVER_LABEL not in (one["spec"]["template"]["spec"].get("nodeSelector") or {})
    ]
    wanted.sort(key=lambda one: (-available(one), str(one["metadata"].get("namespace"))))
    found: dict[str, None] = {}
    for one in wanted:
        pod = one["spec"]["template"]["spec"]
        for container in [*(pod.get("initContainers") or ()), *pod["containers"]]:
            image = str(container.get("image"))
            if IMAGE.fullmatch(image) and (available(one) or image in listed):
                found[image] = None
    return list(found)[:MOST_IMAGES]


def publish(run: Kubectl, file: Path) -> None:
    """Write the list of images, which K3s gives to every worker."""
    deployments = json.loads(run("get", "--raw", DEPLOYMENTS)).get("items") or []
    before = file.read_text() if file.exists() else ""
    text = "".join(f"{image}\n" for image in wanted_images(deployments, before.split()))
    if file.exists() and before == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def work(run: Kubectl, file: Path, now: float, *, wait_seconds: int, published_at: float) -> tuple[float, float]:
    """One round: the pause before the next one, and when the list was last published. A failure waits for the next."""
    waiting = False
    try:
        waiting = open_workers(run, now)
        if wait_seconds and now - published_at >= LIST_SECONDS:
            publish(run, file)
            published_at = now
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        report(f"nothing was changed; the next round tries again: {error}")
    return (PAUSE_SECONDS if wait_seconds or waiting else IDLE_PAUSE_SECONDS), published_at


def main() -> None:
    file = Path(os.environ.get("NODE_FLEET_ROOT") or "/") / LIST
    wait_seconds, published_at = int(os.environ.get("IMAGE_WAIT_SECONDS") or 0), 0.0
    if not wait_seconds:
        file.unlink(missing_ok=True)
    while True:
        pause, published_at = work(kubectl, file, time.time(), wait_seconds=wait_seconds, published_at=published_at)
        time.sleep(pause)


if __name__ == "__main__":
    main()
