"""synth --standalone: the templates of `cdk deploy` without the bootstrap, and zip files that they find."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdk_app import standalone, synth
from tests.cdk.conftest import App
from tests.support.definition_checks import lint_template

BUCKET = re.compile(r"cdk-hnb659fds-assets-\$\{AWS::AccountId\}-[a-z0-9-]+")


@pytest.fixture(scope="module")
def usual(app: App) -> dict[str, Any]:
    """The templates of a new cluster and of an attached one, by stack."""
    return app.templates


@pytest.fixture(scope="module")
def synthesised(both_context: dict[str, Any]) -> Path:
    """The folder of the same app, synthesised as a standalone one."""
    context = {**both_context, standalone.CONTEXT_KEY: True}
    return synth.synthesise(context=context)[0].parent


@pytest.fixture(scope="module")
def written(synthesised: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("standalone") / "out"
    standalone.write(synthesised, out)
    return out


def of_stack(path: Path) -> str:
    """out/CLUSTER/3-autoscaler.template.json -> CLUSTER-autoscaler."""
    return f"{path.parent.name}-{path.name.split('.')[0].split('-', 1)[1]}"


def comparable(template: dict[str, Any], change: Callable[[str], str] = lambda text: text) -> Any:
    """The template without parameters and rules. The id of a function's version is a hash that includes the bucket."""
    text = json.dumps({key: value for key, value in template.items() if key not in ("Parameters", "Rules")})
    return json.loads(change(re.sub(r"(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}", r"\1", text)))


def in_own_bucket(text: str) -> str:
    """The text of a deployed template with the zip files where a standalone one expects them."""
    return re.sub(r"\b([0-9a-f]{64}\.zip)", rf"{standalone.PREFIX}\1", BUCKET.sub("${AssetBucket}", text))


def test_a_standalone_template_differs_from_the_deployed_one_in_the_place_of_its_zip_files_only(
    usual: dict[str, Any], written: Path
) -> None:
    found = {of_stack(path): json.loads(path.read_text(encoding="utf-8")) for path in written.glob("*/*.template.json")}
    assert found.keys() == usual.keys()
    for stack, template in found.items():
        assert comparable(template) == comparable(usual[stack], in_own_bucket), stack
        expected = ["AssetBucket"] if "AssetBucket" in json.dumps(template["Resources"]) else []
        assert "Rules" not in template and list(template.get("Parameters", {})) == expected, stack


def test_every_zip_file_that_a_template_names_is_there_and_no_other(written: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in written.glob("*/*.template.json")]
    named = {name for text in texts for name in re.findall(rf"{standalone.PREFIX}([0-9a-f]{{64}}\.zip)", text)}
    assert {path.name for path in (written / "assets").iterdir()} == named
    assert not any("hnb659fds" in text or "cdk-bootstrap" in text for text in texts)


def test_the_templates_are_numbered_in_the_order_in_which_their_exports_are_read(written: Path) -> None:
    for cluster in (path for path in written.iterdir() if path.name != "assets"):
        exported: set[str] = set()
        for path in sorted(cluster.iterdir()):
            text = path.read_text(encoding="utf-8")
            assert set(re.findall(r'"Fn::ImportValue": ?"([^"]+)"', text)) <= exported, path
            outputs = json.loads(text).get("Outputs", {}).values()
            exported |= {one["Export"]["Name"] for one in outputs if "Export" in one}


def test_the_zip_files_have_the_handlers_and_the_bytes_follow_their_content(
    written: Path, synthesised: Path, tmp_path: Path
) -> None:
    names = {name for path in (written / "assets").iterdir() for name in zipfile.ZipFile(path).namelist()}
    assert {"handlers/decide.py", "node_fleet/settings/settings.py"} <= names
    standalone.write(synthesised, tmp_path / "again")
    for path in (written / "assets").iterdir():
        assert (tmp_path / "again" / "assets" / path.name).read_bytes() == path.read_bytes()


def test_cfn_lint_accepts_the_parameter(written: Path) -> None:
    (cluster,) = synth.project_context()["clusters"]
    template = (written / cluster["cluster_id"] / "2-cluster.template.json").read_text(encoding="utf-8")
    assert lint_template(json.loads(template)) == []


def test_the_command_writes_the_clusters_of_cdk_json_and_says_what_follows(
    synthesised: Path,
    both_context: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = {**synth.project_context(), **both_context}
    monkeypatch.setattr(synth, "project_context", lambda: context)
    assert synth.main(["--standalone", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "3-autoscaler.template.json" in out and "4 zip files" in out and "docs/standalone.md" in out
    assert {path.name for path in synthesised.glob("*.template.json")} == {
        f"{of_stack(path)}.template.json" for path in (tmp_path / "out").glob("*/*.template.json")
    }
