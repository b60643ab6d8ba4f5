"""Prints what a deployment weighs and how long a synth takes: python tests/performance/bench_synth.py"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from cdk_app import packages, synth  # noqa: E402


def zipped_kb(folder: Path, scratch: Path) -> float:
    """Size of the folder as the zip that S3 would get."""
    archive = scratch / "size.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(p for p in folder.rglob("*") if "__pycache__" not in p.parts):
            file.write(path, path.relative_to(folder))
    return archive.stat().st_size / 1000


def timed(out: Path) -> float:
    """Seconds of one synth of cdk.json's clusters, in a process of its own, nothing kept from before but the layer."""
    began = time.perf_counter()
    synth._run(out, synth.project_context())
    return time.perf_counter() - began


def main() -> None:
    """Measure and print, each figure beside its limit."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        cold_layer = packages.CACHE / "layers" / packages.layer_hash()
        shutil.rmtree(cold_layer, ignore_errors=True)
        cold, warm = timed(scratch / "cold"), timed(scratch / "warm")
        templates = {p.name: p.stat().st_size / 1000 for p in sorted((scratch / "warm").glob("*.template.json"))}
        print(f"function package   {zipped_kb(packages.FUNCTIONS, scratch):8.1f} kB   (limit 300)")
        print(f"layer              {zipped_kb(packages.layer_folder(), scratch):8.1f} kB   (limit 3000)")
        for name, size in templates.items():
            print(f"{name:45s} {size:8.1f} kB   (limit 400)")
        print(f"synth, layer built {cold:8.1f} s    (limit 20)")
        print(f"synth, layer kept  {warm:8.1f} s    (limit 20)")


if __name__ == "__main__":
    main()
