"""The code asset contains only the functions, and Lambda can load the layer."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from cdk_app import packages
from tests.cdk.conftest import NEW, App

ROOT = Path(__file__).parents[2]


def pins(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(re.split("==| ;| --hash", line)[:2] for line in lines if "==" in line)  # type: ignore[misc]


def code_asset(app: App) -> Path:
    functions = app.resources(f"{NEW}-autoscaler", "AWS::Lambda::Function").values()
    key: str = next(iter(functions))["Code"]["S3Key"]
    return app.folder / f"asset.{key.removesuffix('.zip')}"


def test_the_package_is_functions_and_no_more(app: App) -> None:
    shipped = {p.relative_to(code_asset(app)).as_posix() for p in code_asset(app).rglob("*") if p.is_file()}
    source = {p.relative_to(packages.FUNCTIONS).as_posix() for p in packages.FUNCTIONS.rglob("*.py")}
    assert shipped == source


def names_in_layer() -> list[str]:
    return zipfile.ZipFile(packages.layer_file()).namelist()


def test_the_layer_is_pinned_as_the_tests_are() -> None:
    tested = pins(ROOT / "requirements.txt")
    assert {name: tested.get(name) for name in pins(packages.LAYER_PINS)} == pins(packages.LAYER_PINS)


def test_every_package_of_the_layer_is_pinned_by_its_hash() -> None:
    lines = [line for line in packages.LAYER_PINS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line)] == []


@pytest.mark.parametrize("pin", ["idna==3.20", f"idna==3.20 --hash=sha256:{'0' * 64}"], ids=["no hash", "another file"])
def test_a_package_without_its_hash_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pin: str) -> None:
    wrong = tmp_path / "pins.txt"
    wrong.write_text(pin)
    monkeypatch.setattr(packages, "LAYER_PINS", wrong)
    with pytest.raises(packages.PackagingError, match=r"(?i)hash"):
        packages._install(tmp_path / "python")
    assert not (tmp_path / "python").exists()


def test_the_layer_brings_what_functions_import_beyond_the_runtime() -> None:
    found = {name.split("/")[1] for name in names_in_layer() if name.startswith("python/")}
    assert {"requests", "tzdata", "aws_lambda_powertools"} <= found
    assert "boto3" not in found


def test_native_code_in_the_layer_is_for_arm_and_the_runtime() -> None:
    native = [Path(name).name for name in names_in_layer() if name.endswith(".so")]
    assert [n for n in native if "aarch64" not in n or not re.search("313|abi3", n)] == []


def test_a_layer_is_named_by_its_pins_and_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    file = packages.layer_file()
    monkeypatch.setattr(packages, "_install", lambda target: pytest.fail("built again"))
    assert packages.layer_file() == file
    assert file.name == f"{packages.layer_hash()}.zip"


def test_other_pins_are_another_layer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = packages.layer_hash()
    other = tmp_path / "pins.txt"
    other.write_text("requests==1.0\n", encoding="utf-8")
    monkeypatch.setattr(packages, "LAYER_PINS", other)
    assert packages.layer_hash() != before


def test_a_package_that_is_not_to_be_had_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = tmp_path / "pins.txt"
    wrong.write_text(f"nothing @ file://{tmp_path}/nothing-1.0-py3-none-any.whl\n", encoding="utf-8")
    monkeypatch.setattr(packages, "LAYER_PINS", wrong)
    monkeypatch.setattr(packages, "CACHE", tmp_path)
    with pytest.raises(packages.PackagingError, match=r"nothing-1\.0"):
        packages.layer_file()


def test_packages_and_templates_stay_small(app: App, tmp_path: Path) -> None:
    assert zipped(code_asset(app), tmp_path) < 408_100
    assert packages.layer_file().stat().st_size < 3_000_000
    for name, template in app.templates.items():
        assert len(json.dumps(template)) < 600_000, name  # CloudFormation takes 1 MB from S3


def zipped(folder: Path, tmp_path: Path) -> int:
    archive = tmp_path / "size.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    return archive.stat().st_size
