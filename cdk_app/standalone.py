"""Plain CloudFormation: templates and zip files for those who deploy without the CDK's command line and bootstrap.

The templates are those of `cdk deploy`, but they take the bucket of the zip files as a parameter, and ask for no
bootstrap stack.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CONTEXT_KEY = "standalone"
"""True in the context of a synthesis whose stacks are standalone."""
BUCKET = "AssetBucket"
PREFIX = "node-fleet/"
ORDER = ("network", "cluster", "autoscaler", "observability")
"""The kinds of stacks, in the order in which they are created."""
_CHANGED_AT = (1980, 1, 1, 0, 0, 0)


def write(synthesised: Path, out: Path) -> list[Path]:
    """Write the templates, numbered in their order, and the zip files into a new folder.

    Returns the templates. A second call writes the same bytes.
    """
    shutil.rmtree(out, ignore_errors=True)
    assets = out / "assets"
    assets.mkdir(parents=True)
    for path in sorted(synthesised.glob("*.assets.json")):
        for source, name in _files(json.loads(path.read_text(encoding="utf-8"))):
            _zip(synthesised / source, assets / name)
    templates = []
    for path in synthesised.glob("*.template.json"):
        cluster, _, kind = path.name.removesuffix(".template.json").rpartition("-")
        target = out / cluster / f"{ORDER.index(kind) + 1}-{kind}.template.json"
        target.parent.mkdir(exist_ok=True)
        templates.append(Path(shutil.copyfile(path, target)))
    return sorted(templates)


def _files(manifest: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The folder and the name in the bucket of each zip file; the templates are listed too and are left out."""
    for file in manifest["files"].values():
        if file["source"]["packaging"] == "zip":
            (destination,) = file["destinations"].values()
            yield file["source"]["path"], destination["objectKey"].removeprefix(PREFIX)


def _zip(folder: Path, target: Path) -> None:
    """The folder as a zip file whose bytes depend on its files only."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _CHANGED_AT)
            entry.external_attr = (0o755 if path.stat().st_mode & 0o111 else 0o644) << 16
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
