"""A real headless Chromium, driven over the WebDriver protocol by ChromeDriver; no further package is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tools.npm_packages import PackagesMissingError, installed

KEYS = {"ArrowDown": "\ue015", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowLeft": "\ue012", "Enter": "\ue007"}
PHONE = {"width": 390, "height": 844, "pixelRatio": 2.0}
STARTED_SECONDS = 20
AXE = Path(__file__).parents[1] / "axe"


@dataclass(slots=True)
class Browser:
    """One session. Scripts are function bodies that may return JSON."""

    base: str

    def open(self, path: Path) -> None:
        self.visit(path.resolve().as_uri())

    def visit(self, address: str) -> None:
        self._post("/url", {"url": address})

    def resize(self, width: int, height: int) -> None:
        """The size of the page in CSS pixels, also narrower than a window can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._post("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def run(self, script: str) -> Any:
        return self._post("/execute/sync", {"script": script, "args": []})

    def violations(self) -> list[str]:
        """What axe-core finds against the rules of accessibility: contrast, names, roles, keyboard."""
        try:
            source = installed(AXE) / "node_modules" / "axe-core" / "axe.min.js"
        except PackagesMissingError as error:
            missing(f"npm did not bring axe-core: {error}")
        self.run(source.read_text(encoding="utf-8"))
        script = (
            "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(found => done(found.violations))"
        )
        found = self._post("/execute/async", {"script": script, "args": []})
        return [f"{one['id']}: {one['help']}: {node['html'][:160]}" for one in found for node in one["nodes"]]

    def press(self, *keys: str) -> None:
        """As a person would: each key goes down and up on whatever has the focus."""
        actions: list[dict[str, str]] = []
        for key in keys:
            value = KEYS.get(key, "\ue004" if key == "Tab" else key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def dark(self, on: bool) -> None:
        value = "dark" if on else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self._post("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def screenshot(self) -> bytes:
        with urllib.request.urlopen(f"{self.base}/screenshot", timeout=30) as answer:
            return base64.b64decode(json.load(answer)["value"])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return _post(self.base + path, body)


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]


def missing(text: str) -> NoReturn:
    """Without a program the test is skipped with the reason, and fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


def programs() -> tuple[str, str]:
    """Chromium and its driver; without them the tests are skipped by name, and fail in CI."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if all(found):
        return str(found[0]), str(found[1])
    missing("chromium and chromedriver were not found (Debian: chromium, chromium-driver): the pages are not looked at")


@contextmanager
def browser(profile: Path, *, phone: bool = False) -> Iterator[Browser]:
    """A session of its own, ended with its driver."""
    chromium, driver = programs()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        _wait(base)
        session = _post(f"{base}/session", {"capabilities": {"alwaysMatch": _wanted(chromium, profile, phone)}})
        address = f"{base}/session/{session['sessionId']}"
        try:
            yield Browser(address)
        finally:
            urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=30).close()
    finally:
        process.terminate()
        process.wait(20)


def _wanted(chromium: str, profile: Path, phone: bool) -> dict[str, Any]:
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
    options: dict[str, Any] = {"binary": chromium, "args": [*arguments, "--window-size=1200,1000"]}
    if phone:
        options["mobileEmulation"] = {"deviceMetrics": PHONE}
    return {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}


def _wait(base: str) -> None:
    until = time.monotonic() + STARTED_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{base}/status", timeout=2) as answer:
                if json.load(answer)["value"]["ready"]:
                    return
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.05)
