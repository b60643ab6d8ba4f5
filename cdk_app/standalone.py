"""Plain CloudFormation: templates and zip files for those who deploy without the CDK's command line and bootstrap.

The templates are those of `cdk deploy`, but they take the bucket of the zip files as a parameter, and ask for no
bootstrap stack.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from cdk_app.packages import pack

CONTEXT_KEY = "standalone"
"""True in the context of a synthesis whose stacks are standalone."""
BUCKET = "AssetBucket"
PREFIX = "node-fleet/"
ORDER = ("network", "cluster", "autoscaler", "observability")
"""The kinds of stacks, in the order in which they are created."""


def write(synthesised: Path, out: Path) -> list[Path]:
    """Write the templates, numbered in their order, and the zip files into a new folder.

    Returns the templates. A second call writes the same bytes.
    """
    shutil.rmtree(out, ignore_errors=True)
    assets = out / "assets"
    assets.mkdir(parents=True)
    for path in sorted(synthesised.glob("*.assets.json")):
        for source, name in _files(path):
            (pack if source.is_dir() else shutil.copyfile)(source, assets / name)
    templates = []
    for path in synthesised.glob("*.template.json"):
        cluster, _, kind = path.name.removesuffix(".template.json").rpartition("-")
        target = out / cluster / f"{ORDER.index(kind) + 1}-{kind}.template.json"
        target.parent.mkdir(exist_ok=True)
        templates.append(Path(shutil.copyfile(path, target)))
    return sorted(templates)


def _files(manifest: Path) -> Iterable[tuple[Path, str]]:
    """The source and the name in the bucket of each zip file; the templates are listed too and are left out."""
    for file in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
        (destination,) = file["destinations"].values()
        name = destination["objectKey"].removeprefix(PREFIX)
        if name.endswith(".zip"):
            yield manifest.parent / file["source"]["path"], name
