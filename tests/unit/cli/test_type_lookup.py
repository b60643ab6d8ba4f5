"""What EC2 is asked for requirements, and the record of its answer. botocore checks each request against its model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from cdk_app.config import ConfigurationError
from cdk_app.recorded_types import CONTEXT_KEY, FILE_NAME
from cli import configured, preflight, type_record, type_table
from cli import main as program
from cli.configured import configured_clusters
from cli.live_prices import CurrentPrices
from cli.output import CommandError
from cli.type_lookup import request_of, types_of_ec2
from cli.type_record import Recording, record_types
from cli.type_table import Source, show_types
from node_fleet.domain.cost.prices import Price, PriceList
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.settings import Settings

REGION, NOW = "ap-southeast-1", 1_772_366_400.0
REQUIRED = {"vcpus": [2, 4], "memory_gib": [2, 8], "excluded": ["t2.*"]}
LOOKUP = "get_instance_types_from_instance_requirements"


def request(**changed: Any) -> dict[str, Any]:
    wanted = {
        "VCpuCount": {"Min": 2, "Max": 4},
        "MemoryMiB": {"Min": 2048, "Max": 8192},
        "BurstablePerformance": "included",
        "InstanceGenerations": ["current", "previous"],
        "AcceleratorCount": {"Max": 0},
        "ExcludedInstanceTypes": ["t2.*"],
    }
    return {
        "ArchitectureTypes": ["x86_64"],
        "VirtualizationTypes": ["hvm"],
        "InstanceRequirements": {**wanted, **changed},
    }


@dataclass
class Account:
    """EC2 behind a stub, and prices without the Price List API."""

    asked: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ec2 = boto3.client("ec2", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
        self.stub = Stubber(self.ec2)
        self.stub.activate()

    def answer(self, *types: str, token: str = "", asked: dict[str, Any] | None = None) -> None:
        found: dict[str, Any] = {"InstanceTypes": [{"InstanceType": kind} for kind in types]}
        self.stub.add_response(LOOKUP, {**found, **({"NextToken": token} if token else {})}, asked or request())

    def client(self, service: str, region: str = "") -> Any:
        assert (service, region) == ("ec2", "")
        return self.ec2

    def prices(self, client: Any, region: str, types: Any, zones: tuple[str, ...], now: float) -> CurrentPrices:
        """The shipped prices, and one of a type that has none."""
        self.asked.append(tuple(types))
        shipped = PriceList.shipped(region)
        more = {("m7i-flex.large", market): Price(usd=0.001) for market in ("spot", "on-demand")}
        return CurrentPrices(prices=replace(shipped, instances={**shipped.instances, **more}))


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    found = Account()
    monkeypatch.setattr(type_record, "live_prices", found.prices)
    monkeypatch.setattr(type_table, "live_prices", found.prices)
    return found


Configure = Callable[..., Path]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    def write(settings: dict[str, Any], **cluster: Any) -> Path:
        path = tmp_path / "cdk.json"
        clusters = [{"cluster_id": "shop", "settings": settings, **cluster}]
        path.write_text(json.dumps({"context": {"clusters": clusters}}), encoding="utf-8")
        return path

    monkeypatch.setattr(configured, "configuration_file", lambda: tmp_path / "cdk.json")
    monkeypatch.setattr(type_record, "configuration_file", lambda: tmp_path / "cdk.json")
    return write


def record(account: Account) -> Recording:
    return record_types("shop", lambda region: account.client, NOW)


def test_ec2_is_asked_with_every_attribute_and_every_page_of_its_answer_counts(account: Account) -> None:
    requirements = InstanceRequirements(vcpus=(2, 4), memory_gib=(2, 8), excluded=("t2.*",))
    account.answer("t3.small", "c6i.large", token="more")
    account.answer("m6i.large", asked={**request(), "NextToken": "more"})
    assert types_of_ec2(account.ec2, requirements) == ("c6i.large", "m6i.large", "t3.small")


def test_a_range_without_an_end_has_no_maximum_and_no_exclusion_is_sent_empty() -> None:
    asked = request_of(InstanceRequirements(architecture="arm64", burstable="excluded", generations=("current",)))
    assert asked["ArchitectureTypes"] == ["arm64"]
    assert asked["InstanceRequirements"] == {
        "VCpuCount": {"Min": 0},
        "MemoryMiB": {"Min": 0},
        "BurstablePerformance": "excluded",
        "InstanceGenerations": ["current"],
        "AcceleratorCount": {"Max": 0},
    }


def test_the_record_has_the_cheapest_types_of_ec2_and_the_configuration_uses_them(
    account: Account, configure: Configure
) -> None:
    configure({"instance_requirements": {**REQUIRED, "max_types": 2}})
    account.answer("c6i.large", "m7i-flex.large", "t3.small", "z1d.large", "c5n.large")
    found = record(account)
    assert account.asked == [("c6i.large", "m7i-flex.large", "t3.small")], "the others have no known size"
    assert (found.record.instance_types, found.earlier) == (("m7i-flex.large", "t3.small"), ())
    assert json.loads(found.path.read_text(encoding="utf-8")) == {
        CONTEXT_KEY: {
            "shop": {
                "region": REGION,
                "requirements": {**REQUIRED, "max_types": 2},
                "instance_types": ["m7i-flex.large", "t3.small"],
                "asked_on": "2026-03-01",
            }
        }
    }
    (cluster,) = configured_clusters()
    assert cluster.settings.instance_types == ("m7i-flex.large", "t3.small")


def test_a_second_record_keeps_the_rest_of_the_file_and_names_the_earlier_types(
    account: Account, configure: Configure
) -> None:
    path = configure({"instance_requirements": REQUIRED}).with_name(FILE_NAME)
    others = {"acknowledged": 1, CONTEXT_KEY: {"other": {"instance_types": ["t3.large"]}}}
    path.write_text(json.dumps(others), encoding="utf-8")
    account.answer("t3.small")
    record(account)
    account.answer("t3.small", "t3a.small")
    assert record(account).earlier == ("t3.small",)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["acknowledged"] == 1
    assert list(kept[CONTEXT_KEY]) == ["other", "shop"]


def test_without_a_record_the_shipped_table_decides_and_preflight_warns(
    account: Account, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = configure({"instance_requirements": {**REQUIRED, "max_types": 2}})
    monkeypatch.setattr(preflight, "configuration_file", lambda: path)
    (cluster,) = configured_clusters()
    assert cluster.settings.instance_types == ("t3a.small", "t3.small")
    finding = preflight.recorded(cluster)
    assert (finding.verdict, finding.fix) == ("warn", "node-fleet types --record --cluster shop")
    account.answer("t3.small")
    record(account)
    assert preflight.recorded(*configured_clusters()).verdict == "ok"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"requirements": {"vcpus": [2, 2], "memory_gib": [2, 8]}}, "has the types for"),
        ({"region": "eu-west-1"}, "in eu-west-1, and cdk.json requires"),
        ({"instance_types": []}, "has no list instance_types"),
        ({"instance_types": "t3.small"}, "has no list instance_types"),
        ({"instance_types": ["t3.small", "t4g.small"]}, "x86_64 and arm64 cannot share one image"),
    ],
)
def test_a_record_that_does_not_fit_the_configuration_is_refused(
    configure: Configure, changed: dict[str, Any], reason: str
) -> None:
    path = configure({"instance_requirements": REQUIRED}).with_name(FILE_NAME)
    kept = {"region": REGION, "requirements": REQUIRED, "instance_types": ["t3.small"], "asked_on": "2026-03-01"}
    path.write_text(json.dumps({CONTEXT_KEY: {"shop": {**kept, **changed}}}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=reason) as refused:
        configured_clusters()
    assert len(refused.value.problems) == 1
    assert refused.value.problems[0].startswith("clusters[shop].settings: ")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_file_of_the_record_is_named(configure: Configure, text: str) -> None:
    configure({"instance_requirements": REQUIRED}).with_name(FILE_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=FILE_NAME):
        configured_clusters()


@pytest.mark.parametrize(
    ("settings", "answer", "reason"),
    [
        ({"instance_types": ["t3.small"]}, None, "has no instance_requirements that can be read"),
        ({"instance_requirements": {"vcpus": [2, 1], "memory_gib": [1, 2]}}, None, "no instance_requirements that can"),
        ({"instance_requirements": REQUIRED, "min_workers": 99}, None, "min_workers=99 must be at most max_workers=10"),
        ({"instance_requirements": REQUIRED}, (), f"EC2 in {REGION} selects no type"),
        ({"instance_requirements": REQUIRED}, ("z1d.large", "m7i.large"), "selects 2 types, of which none has a size"),
        (
            {"instance_requirements": REQUIRED, "cpu_credits": "standard"},
            ("t3.small", "c6i.large"),
            "cpu_credits=standard with instance_types=t3.small,c6i.large",
        ),
    ],
)
def test_what_cannot_be_recorded_is_named_and_nothing_is_written(
    account: Account, configure: Configure, settings: dict[str, Any], answer: tuple[str, ...] | None, reason: str
) -> None:
    path = configure(settings)
    if answer is not None:
        account.answer(*answer)
    with pytest.raises(CommandError) as refused:
        record(account)
    assert reason in refused.value.text
    assert not path.with_name(FILE_NAME).exists()


def test_a_refusal_of_ec2_names_the_permission_and_nothing_is_recorded(account: Account, configure: Configure) -> None:
    path = configure({"instance_requirements": REQUIRED})
    account.stub.add_client_error(LOOKUP, "UnauthorizedOperation")
    with pytest.raises(CommandError) as refused:
        record(account)
    assert "ec2:GetInstanceTypesFromInstanceRequirements" in refused.value.hint
    assert not path.with_name(FILE_NAME).exists()


def test_a_cluster_that_the_configuration_does_not_have_is_named(account: Account, configure: Configure) -> None:
    configure({"instance_requirements": REQUIRED}, cluster_id="warehouse")
    with pytest.raises(CommandError, match=r"cdk\.json has no cluster shop"):
        record(account)


def shown(account: Account, capsys: pytest.CaptureFixture[str], **given: Any) -> tuple[dict[str, str], list[str]]:
    """Why each type is excluded, and the problems."""
    settings = Settings.from_mapping({"region": REGION, "instance_requirements": REQUIRED})
    source = Source(settings=settings, zones=(f"{REGION}a",), client=account.client, now=NOW)
    show_types(source, given, ("c7g.medium",), (250, 128), as_json=True)
    found = json.loads(capsys.readouterr().out)
    return {one["instance_type"]: one["excluded"] for one in found["types"]}, found["problems"]


def test_the_preview_follows_the_selection_of_ec2(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.answer("t3.small", "m7i-flex.large", "t2.small", "z1d.large")
    excluded, problems = shown(account, capsys)
    assert [kind for kind, why in excluded.items() if not why] == ["m7i-flex.large", "t3.small", "t2.small"]
    assert excluded["t3a.small"] == "EC2 does not select it"
    assert excluded["z1d.large"] == "its size is not known"
    assert (excluded["c7g.medium"], excluded["t3.micro"]) == ("arm64, not x86_64", "1 GiB, under 2")
    (problem,) = problems
    assert "the requirements stand for m7i-flex.large, t3.small, t2.small today" in problem


def test_the_preview_says_when_ec2_could_not_be_asked(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.stub.add_client_error(LOOKUP, "UnauthorizedOperation")
    excluded, problems = shown(account, capsys)
    assert excluded["t3a.small"] == ""
    (problem,) = problems
    assert problem.startswith("EC2 did not select types (UnauthorizedOperation; your credentials need ec2:GetInstance")


def test_options_stand_in_place_of_the_configured_requirements(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.answer("t3.large", asked=request(VCpuCount={"Min": 1, "Max": 2}))
    excluded, problems = shown(account, capsys, vcpus=(1.0, 2.0))
    assert [kind for kind, why in excluded.items() if not why] == ["t3.large"]
    assert problems == []


@pytest.fixture
def command(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command types for the cluster shop of the configuration."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(type_table, "maker_of_clients", lambda region: account.client)

    def run(*words: str, cluster: str = "shop") -> tuple[int, str, str]:
        code = program.main(["types", "--cluster", cluster, *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_command_records_and_names_what_changes(
    account: Account, configure: Configure, command: Callable[..., tuple[int, str, str]]
) -> None:
    configure({"instance_requirements": REQUIRED})
    account.answer("t3.small", "t3a.small")
    code, out, _ = command("--record")
    assert code == 0
    assert "recorded in cdk.context.json: t3a.small, t3.small (added: t3a.small, t3.small)" in out
    account.answer("t3.small", "t3.medium")
    assert "t3.small, t3.medium (added: t3.medium; removed: t3a.small)" in command("--record")[1]
    account.answer("t3.medium", "t3.small")
    assert "(the same types as before)" in command("--record")[1]
    account.answer("t3.small")
    found = json.loads(command("--record", "--json")[1])
    assert (found["instance_types"], found["earlier"]) == (["t3.small"], ["t3.small", "t3.medium"])


@pytest.mark.parametrize(
    "words", [["--vcpus", "2"], ["--local"], ["--region", "eu-west-1"], ["c7i.large"], ["--burstable"]]
)
def test_a_record_takes_no_other_option(
    configure: Configure, command: Callable[..., tuple[int, str, str]], words: list[str]
) -> None:
    path = configure({"instance_requirements": REQUIRED})
    code, _, err = command("--record", *words)
    assert code == 2 and "give it alone" in err
    assert not path.with_name(FILE_NAME).exists()


def test_the_configuration_is_previewed_before_a_deployment_with_an_account_and_without(
    account: Account, configure: Configure, command: Callable[..., tuple[int, str, str]]
) -> None:
    configure({"instance_requirements": REQUIRED})
    code, out, _ = command("--configured", "--local")
    assert code == 0
    assert '{"vcpus":[2,4],"memory_gib":[2,8],"excluded":["t2.*"]}, by the shipped table' in " ".join(out.split())
    account.answer("t3.small")
    code, out, err = command("--configured")
    assert code == 0 and ", by EC2" in out
    assert "the requirements stand for t3.small today: node-fleet types --record" in " ".join(err.split())
    code, _, err = command("--configured", "--local", cluster="nope")
    assert code == 1 and "cdk.json has no cluster nope" in err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--architecture", "arm"], "--architecture 'arm' is not known; give x86_64 or arm64"),
        (["--generation", "new"], "--generation 'new' is not known; give current or previous"),
        (["--exclude", "m5.[x]"], "excluded='m5.[x]': expected a type such as m5.large or m5.*"),
    ],
)
def test_a_wrong_option_is_one_line_with_what_is_right(
    configure: Configure, command: Callable[..., tuple[int, str, str]], words: list[str], hint: str
) -> None:
    configure({"instance_requirements": REQUIRED})
    code, _, err = command("--configured", "--local", *words)
    assert code == 2 and hint in err and err.count("\n") == 1


def test_git_keeps_the_record() -> None:
    ignored = (Path(__file__).parents[3] / ".gitignore").read_text(encoding="utf-8").split()
    assert FILE_NAME not in ignored
