"""The CDK's own command line deploys, updates and destroys the stacks of cdk.json against a moto server.

The server's additions to moto are named in tests/support/deployment, and the last tests here hold each to moto alone.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto.cloudformation import exceptions, parsing
from moto.cloudformation.models import CloudFormationBackend
from moto.ec2.models.vpcs import VPC

from cdk_app.synth import project_context, synthesise
from cdk_app.workflow import handlers
from node_fleet.settings import Settings
from tests.support.deployment.resource_types import ACCOUNT, REGION, TYPES
from tests.support.deployment.server import DELETIONS, PARTS
from tests.support.real_servers import answers, free_port, process, tool, wait_until

CLUSTER = "node-fleet-prod"
STACKS = [f"{CLUSTER}-{part}" for part in ("network", "cluster", "autoscaler", "observability")]
NOT_IN_MOTO = {"AWS::DLM::LifecyclePolicy": "moto.dlm"}
"""Types of services that moto lacks altogether, and the module that will show when it has them."""

TABLES = {Settings().state_table, Settings().history_table, Settings().events_table}


@dataclass(slots=True)
class Account:
    """The account behind the server, and what its commands printed."""

    endpoint: str
    environment: dict[str, str]
    printed: list[str] = field(default_factory=list)

    def cdk(self, *words: str) -> None:
        command = [tool("cdk"), *words]
        ended = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        self.printed.append(ended.stdout + ended.stderr)
        assert ended.returncode == 0, self.printed[-1][-3000:]

    def client(self, service: str) -> Any:
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION)

    def statuses(self) -> dict[str, str]:
        return {
            one["StackName"]: one["StackStatus"] for one in self.client("cloudformation").describe_stacks()["Stacks"]
        }

    def functions(self) -> dict[str, dict[str, Any]]:
        pages = self.client("lambda").get_paginator("list_functions").paginate()
        return {one["FunctionName"].removeprefix(f"{CLUSTER}-"): one for page in pages for one in page["Functions"]}

    def instances(self) -> list[dict[str, Any]]:
        reservations = self.client("ec2").describe_instances()["Reservations"]
        return [one for reservation in reservations for one in reservation["Instances"]]

    def definition(self, machine: str) -> str:
        arn = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{CLUSTER}-{machine}"
        text: str = self.client("stepfunctions").describe_state_machine(stateMachineArn=arn)["definition"]
        return text


@pytest.fixture(scope="module")
def assemblies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stacks of cdk.json, and the same with another limit and larger volumes of the workers."""
    changed = copy.deepcopy(project_context())
    changed["clusters"][0]["settings"]["max_workers"] = 12
    changed["clusters"][0]["workers"]["volume_gib"] = 25
    folders = {name: tmp_path_factory.mktemp("assembly") / name for name in ("first", "second")}
    synthesise(folders["first"])
    synthesise(folders["second"], changed)
    return folders


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """An empty account. Its address is `localhost`: with 127.0.0.1 moto looks the bucket of a template up wrongly."""
    folder, port = tmp_path_factory.mktemp("account"), free_port()
    root = Path(__file__).resolve().parents[2]
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(root / "functions")])}
    endpoint = f"http://localhost:{port}"
    environment = {**os.environ, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, "HOME": str(folder)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment |= {"CDK_DISABLE_CLI_TELEMETRY": "true", "PATH": path}
    command = [sys.executable, "-m", "tests.support.deployment.server", str(port)]
    with process(command, folder / "moto.log", paths):
        wait_until(lambda: answers(f"{endpoint}/moto-api/"), "the moto server")
        made = Account(endpoint, environment)
        yield made
        log = (folder / "moto.log").read_text()
        assert "Traceback" not in log, log[log.index("Traceback") :][:3000]


def settings_of(function: dict[str, Any]) -> Settings:
    return Settings.from_env({**function["Environment"]["Variables"], "AWS_REGION": REGION})


def deploy(account: Account, assembly: Path) -> None:
    account.cdk("deploy", "--all", "--app", str(assembly), "--require-approval", "never", "--progress", "events")


@pytest.fixture(scope="module")
def deployed(account: Account, assemblies: dict[str, Path]) -> Account:
    account.cdk("bootstrap", "--app", str(assemblies["first"]), f"aws://{ACCOUNT}/{REGION}")
    deploy(account, assemblies["first"])
    return account


@pytest.mark.whole
def test_every_stack_and_every_resource_of_its_template_is_created(
    deployed: Account, assemblies: dict[str, Path]
) -> None:
    assert deployed.statuses() == dict.fromkeys(["CDKToolkit", *STACKS], "CREATE_COMPLETE")
    for stack in STACKS:
        template = json.loads((assemblies["first"] / f"{stack}.template.json").read_text())
        pages = deployed.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
        summaries = [one for page in pages for one in page["StackResourceSummaries"]]
        made = {one["LogicalResourceId"]: one["ResourceType"] for one in summaries if one["ResourceType"]}
        wanted = {name: resource["Type"] for name, resource in template["Resources"].items()}
        assert made == {name: kind for name, kind in wanted.items() if kind not in NOT_IN_MOTO}


@pytest.mark.whole
def test_the_server_runs_with_its_address_its_role_and_no_worker_beside_it(deployed: Account) -> None:
    (server,) = deployed.instances()
    assert (server["State"]["Name"], server["InstanceType"]) == ("running", "t3.medium")
    assert server["PrivateIpAddress"] == "10.20.0.10"
    assert {"Key": "Role", "Value": "k3s-master"} in server["Tags"]
    assert len(server["SecurityGroups"]) == 1


@pytest.mark.whole
def test_every_subnet_has_a_block_of_its_own_in_the_ipv6_block_of_the_network(deployed: Account) -> None:
    subnets = [s for s in deployed.client("ec2").describe_subnets()["Subnets"] if not s["DefaultForAz"]]
    blocks = [s["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlock"] for s in subnets]
    assert len(deployed.client("ec2").describe_vpcs()["Vpcs"]) == 2
    assert len(subnets) == len(set(blocks)) == 4
    assert all(block.endswith("/64") for block in blocks)


@pytest.mark.whole
def test_the_tables_are_empty_and_billed_by_request(deployed: Account) -> None:
    dynamodb = deployed.client("dynamodb")
    assert set(dynamodb.list_tables()["TableNames"]) == TABLES
    for table in TABLES:
        described = dynamodb.describe_table(TableName=table)["Table"]
        assert (described["ItemCount"], described["BillingModeSummary"]["BillingMode"]) == (0, "PAY_PER_REQUEST")


@pytest.mark.whole
def test_every_handler_is_a_function_whose_environment_is_a_valid_set_of_settings(deployed: Account) -> None:
    functions = deployed.functions()
    assert set(functions) == set(handlers())
    (server,) = deployed.instances()
    for one in functions.values():
        settings = settings_of(one)
        assert (settings.cluster_id, settings.max_workers) == (CLUSTER, 10)
        assert server["SubnetId"] in settings.zones.values()


@pytest.mark.whole
@pytest.mark.parametrize("machine", ["autoscaler", "interruption"])
def test_each_state_machine_names_published_versions_of_functions_that_exist(deployed: Account, machine: str) -> None:
    definition = deployed.definition(machine)
    assert "${" not in definition
    arns = {state["Resource"] for state in json.loads(definition)["States"].values() if state["Type"] == "Task"}
    assert arns
    for arn in arns:
        assert deployed.client("lambda").get_function(FunctionName=arn)["Configuration"]["Version"] == "1"


@pytest.mark.whole
def test_the_rules_start_the_workflows_and_the_functions(deployed: Account) -> None:
    events = deployed.client("events")
    targets = {
        rule["Name"]: [target["Arn"] for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]]
        for rule in events.list_rules()["Rules"]
    }
    machine = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{CLUSTER}"
    assert targets[f"{CLUSTER}-autoscaler-trigger"] == [f"{machine}-autoscaler"]
    assert all(arn.startswith("arn:aws:") for arns in targets.values() for arn in arns)
    assert {rule["State"] for rule in events.list_rules()["Rules"]} == {"ENABLED"}


@pytest.mark.whole
def test_alarms_secrets_and_parameters_are_there(deployed: Account) -> None:
    topics = {one["TopicArn"] for one in deployed.client("sns").list_topics()["Topics"]}
    alarms = deployed.client("cloudwatch").describe_alarms()["MetricAlarms"]
    assert alarms and all(set(one["AlarmActions"]) <= topics and one["AlarmActions"] for one in alarms)
    secrets = {one["Name"] for one in deployed.client("secretsmanager").list_secrets()["SecretList"]}
    assert {Settings().prometheus_secret, Settings().slack_secret} <= secrets
    assert deployed.client("ssm").get_parameters_by_path(Path="/node-fleet", Recursive=True)["Parameters"]


@pytest.fixture(scope="module")
def updated(deployed: Account, assemblies: dict[str, Path]) -> Account:
    deploy(deployed, assemblies["second"])
    return deployed


@pytest.mark.whole
def test_an_update_changes_only_what_the_new_configuration_changes(updated: Account) -> None:
    assert updated.statuses() == {
        "CDKToolkit": "CREATE_COMPLETE",
        STACKS[0]: "CREATE_COMPLETE",
        **dict.fromkeys(STACKS[1:], "UPDATE_COMPLETE"),
    }
    (server,) = updated.instances()
    assert server["State"]["Name"] == "running"
    assert {settings_of(one).max_workers for one in updated.functions().values()} == {12}


@pytest.mark.whole
def test_after_an_update_the_workflow_runs_new_versions_and_the_old_ones_stay(updated: Account) -> None:
    arn = json.loads(updated.definition("autoscaler"))["States"]["Decide"]["Resource"]
    versions = updated.client("lambda").list_versions_by_function(FunctionName=f"{CLUSTER}-Decide")["Versions"]
    assert arn.endswith(":2")
    assert [one["Version"] for one in versions] == ["$LATEST", "1", "2"]


@pytest.mark.whole
def test_after_an_update_a_new_version_of_the_launch_template_has_the_larger_volume(updated: Account) -> None:
    pages = updated.client("ec2").describe_launch_templates()["LaunchTemplates"]
    (workers,) = (one for one in pages if one["LatestVersionNumber"] == 2)
    newest = updated.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=workers["LaunchTemplateId"], Versions=["$Latest"]
    )["LaunchTemplateVersions"][0]
    assert newest["LaunchTemplateData"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 25


@pytest.fixture(scope="module")
def destroyed(updated: Account, assemblies: dict[str, Path]) -> Account:
    (server,) = updated.instances()
    updated.client("ec2").modify_instance_attribute(
        InstanceId=server["InstanceId"], DisableApiTermination={"Value": False}
    )
    updated.cdk("destroy", "--all", "--force", "--app", str(assemblies["second"]))
    return updated


@pytest.mark.whole
def test_destroy_leaves_the_tables_and_nothing_that_runs(destroyed: Account) -> None:
    assert destroyed.statuses() == {"CDKToolkit": "CREATE_COMPLETE"}
    assert set(destroyed.client("dynamodb").list_tables()["TableNames"]) == TABLES
    assert {one["State"]["Name"] for one in destroyed.instances()} <= {"terminated"}
    assert destroyed.functions() == {}
    assert destroyed.client("events").list_rules()["Rules"] == []
    assert [vpc["CidrBlock"] for vpc in destroyed.client("ec2").describe_vpcs()["Vpcs"]] == ["172.31.0.0/16"]


def plain(name: str) -> Any:
    return parsing.get_model_map().get(name)


def unsupported(name: str, method: str) -> bool:
    return hasattr(getattr(plain(name), method), "__isabstractmethod__")


def fails(error: type[Exception], call: Callable[[], object]) -> bool:
    with pytest.raises(error):
        call()
    return True


DIFFERENT: dict[str, Callable[[], bool]] = {
    "AWS::EC2::Instance": lambda: (
        "LaunchTemplate" not in inspect.getsource(plain("AWS::EC2::Instance").create_from_cloudformation_json)
    ),
    "AWS::Lambda::Version": lambda: not hasattr(plain("AWS::Lambda::Version"), "physical_resource_id"),
    "AWS::Lambda::LayerVersion": lambda: not hasattr(plain("AWS::Lambda::LayerVersion"), "physical_resource_id"),
    "AWS::Lambda::Permission": lambda: unsupported("AWS::Lambda::Permission", "update_from_cloudformation_json"),
}
"""Types that moto makes differently from AWS: true while it does."""

MISSING: dict[str, Callable[[], bool]] = {
    "Fn::GetStackOutput and Fn::Cidr": lambda: all(
        parsing.clean_json({name: []}, {}) == {name: []} for name in ("Fn::GetStackOutput", "Fn::Cidr")
    ),
    "AWS::EC2::VPC Ipv6CidrBlocks": lambda: fails(
        exceptions.UnformattedGetAttTemplateException,
        lambda: VPC.get_cfn_attribute(SimpleNamespace(), "Ipv6CidrBlocks"),
    ),
    "order of a change set": lambda: "Topological" not in inspect.getsource(parsing.ResourceMap.update),
    "AWS::EC2::Subnet Ipv6CidrBlock": lambda: (
        "associate_subnet" not in inspect.getsource(plain("AWS::EC2::Subnet").create_from_cloudformation_json)
    ),
    "AWS::StepFunctions::StateMachine DefinitionSubstitutions": lambda: (
        "Substitutions" not in inspect.getsource(plain("AWS::StepFunctions::StateMachine"))
    ),
    "change sets that do not exist": lambda: not hasattr(exceptions, "ChangeSetNotFound"),
    "previous values of parameters": lambda: (
        "startswith" not in inspect.getsource(parsing.ResourceMap.parse_ssm_parameter)
    ),
    "deletion of all types, in order": lambda: all(
        unsupported(name, "delete_from_cloudformation_json") and not hasattr(plain(name), "delete")
        for name in DELETIONS
    ),
    "outputs and failures of a change set": lambda: (
        "output_map" not in inspect.getsource(CloudFormationBackend.execute_change_set)
    ),
}
"""The other additions: true while moto lacks it."""


@pytest.mark.parametrize("name", [one.name for one in TYPES])
def test_moto_still_lacks_each_added_resource_type(name: str) -> None:
    assert DIFFERENT[name]() if name in DIFFERENT else plain(name) is None


@pytest.mark.parametrize("name", PARTS)
def test_moto_still_lacks_each_other_addition(name: str) -> None:
    assert MISSING[name]()


@pytest.mark.parametrize("name", NOT_IN_MOTO)
def test_moto_still_lacks_the_services_whose_resources_are_left_out(name: str) -> None:
    assert importlib.util.find_spec(NOT_IN_MOTO[name]) is None
