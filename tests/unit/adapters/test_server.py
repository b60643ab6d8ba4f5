"""Commands on the server: our documents only, checked values, and an answer for everything SSM can say."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from node_fleet.adapters.ec2 import Server
from node_fleet.adapters.server import ServerCommands
from node_fleet.domain.model.errors import InvalidInputError, ServerUnreachableError
from node_fleet.services import Services
from node_fleet.settings import Settings

SERVER = "i-0000000000000000f"
DRAIN = {"NodeName": "i-0123456789abcdef0", "OperationId": "down-1-100", "NotAfter": "1", "DrainTimeoutSeconds": "300"}


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> int:
        return int(self.time)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Ec2:
    def __init__(self) -> None:
        self.asked = 0
        self.instance_id = SERVER

    def server(self) -> Server:
        self.asked += 1
        return Server(instance_id=self.instance_id, private_ip="10.0.0.1")


class Ssm:
    """Records every call; answers from `answers`, the last one for ever."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.ping: str | None = "Online"
        self.answers: list[Any] = [{"Status": "Success", "StatusDetails": "Success", "ResponseCode": 0}]
        self.send_error: Exception | None = None
        self.cancel_error: Exception | None = None

    def describe_instance_information(self, **asked: Any) -> dict[str, Any]:
        self.calls.append(("describe", asked))
        return {"InstanceInformationList": [{"InstanceId": SERVER, "PingStatus": self.ping}] if self.ping else []}

    def send_command(self, **asked: Any) -> dict[str, Any]:
        self.calls.append(("send", asked))
        if self.send_error:
            raise self.send_error
        return {"Command": {"CommandId": "c-1"}}

    def get_command_invocation(self, **asked: Any) -> dict[str, Any]:
        self.calls.append(("get", asked))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        found: dict[str, Any] = answer
        return found

    def cancel_command(self, **asked: Any) -> dict[str, Any]:
        self.calls.append(("cancel", asked))
        if self.cancel_error:
            raise self.cancel_error
        return {}

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [asked for name, asked in self.calls if name == kind]


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "SendCommand")


@pytest.fixture
def ssm() -> Ssm:
    return Ssm()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(ssm: Ssm, clock: Clock) -> ServerCommands:
    return ServerCommands(ssm, Ec2(), Settings(), clock)


def test_a_command_goes_to_the_server_with_our_document_and_both_limits(server: ServerCommands, ssm: Ssm) -> None:
    assert server.send("DrainNode", {**DRAIN, "ExecutionTimeoutSeconds": "360"}) == "c-1"
    sent = ssm.of("send")[0]
    assert (sent["InstanceIds"], sent["DocumentName"], sent["TimeoutSeconds"]) == ([SERVER], "node-fleet-DrainNode", 30)
    assert sent["Parameters"]["ExecutionTimeoutSeconds"] == ["360"]
    assert sent["Parameters"]["NodeName"] == [DRAIN["NodeName"]]


@pytest.mark.parametrize("document", ["InspectNodes", "CheckNode", "ForgetNode"])
def test_short_commands_have_an_execution_limit_of_their_own(server: ServerCommands, ssm: Ssm, document: str) -> None:
    server.send(document, {})
    assert ssm.of("send")[0]["Parameters"]["ExecutionTimeoutSeconds"] == ["60"]


@pytest.mark.parametrize("name", ["-a", "a b", "$(reboot)", "a\n", "A" * 254, ""])
def test_a_bad_name_is_refused_before_anything_is_sent(server: ServerCommands, ssm: Ssm, name: str) -> None:
    with pytest.raises(InvalidInputError, match="NodeName"):
        server.send("CheckNode", {"NodeName": name})
    assert ssm.calls == []


@pytest.mark.parametrize("ping", [None, "ConnectionLost", "Inactive"])
def test_a_server_that_ssm_does_not_manage_is_told_as_that_and_nothing_is_sent(
    server: ServerCommands, ssm: Ssm, ping: str | None
) -> None:
    ssm.ping = ping
    lead = f"server_not_managed: the K3s server {SERVER} runs"
    with pytest.raises(ServerUnreachableError, match=f"{lead}.*its SSM agent is {ping or 'not registered'}"):
        server.send("InspectNodes", {})
    assert ssm.of("send") == []


def test_invalid_instance_id_is_not_reported_as_a_missing_instance(server: ServerCommands, ssm: Ssm) -> None:
    ssm.send_error = refusal("InvalidInstanceId")
    with pytest.raises(ServerUnreachableError, match="server_not_managed"):
        server.send("InspectNodes", {})


@pytest.mark.parametrize(
    "error", [refusal("InvalidDocument"), refusal("ThrottlingException"), ConnectTimeoutError(endpoint_url="x")]
)
def test_other_refusals_name_ssm_and_what_was_tried(server: ServerCommands, ssm: Ssm, error: Exception) -> None:
    ssm.send_error = error
    with pytest.raises(ServerUnreachableError, match="SSM: cannot send InspectNodes"):
        server.send("InspectNodes", {})


ANSWERS = [
    # Status, StatusDetails, code -> shown, final, known
    ("Pending", "Pending", -1, "Pending", False, False),
    ("InProgress", "InProgress", -1, "InProgress", False, False),
    ("Delayed", "Delayed", -1, "Delayed", False, False),
    ("Cancelling", "Cancelling", -1, "Cancelling", False, False),
    ("Success", "Success", 0, "Success", True, True),
    ("Success", "Success", 3, "Success", True, True),
    ("Failed", "Failed", 1, "Failed", True, True),
    ("Failed", "Undeliverable", -1, "Undeliverable", True, False),
    ("Failed", "Terminated", -1, "Terminated", True, False),
    ("TimedOut", "Execution Timed Out", -1, "ExecutionTimedOut", True, False),
    ("TimedOut", "DeliveryTimedOut", -1, "DeliveryTimedOut", True, False),
    ("Cancelled", "Cancelled", -1, "Cancelled", True, False),
]


@pytest.mark.parametrize("row", ANSWERS)
def test_each_status_says_whether_it_is_final_and_known(
    server: ServerCommands, ssm: Ssm, row: tuple[str, str, int, str, bool, bool]
) -> None:
    status, details, code, shown, final, known = row
    ssm.answers = [{"Status": status, "StatusDetails": details, "ResponseCode": code, "StandardOutputContent": "x"}]
    result = server.result("c-1")
    assert (result.status, result.final, result.known, result.exit_code) == (shown, final, known, code)
    assert result.succeeded is (known and code == 0)


@pytest.mark.parametrize("tries", [1, 3, 8])
def test_a_command_that_ssm_does_not_show_yet_is_asked_for_again(
    server: ServerCommands, ssm: Ssm, clock: Clock, tries: int
) -> None:
    ssm.answers = [refusal("InvocationDoesNotExist")] * tries + [{"Status": "Success", "ResponseCode": 0}]
    assert server.run("CheckNode", {"NodeName": "a"}).succeeded
    assert len(clock.slept) == tries + 1


def test_a_short_command_is_waited_for_20_s_and_then_left_unknown(
    server: ServerCommands, ssm: Ssm, clock: Clock
) -> None:
    ssm.answers = [{"Status": "InProgress", "ResponseCode": -1}]
    result = server.run("InspectNodes", {})
    assert (result.final, result.succeeded, sum(clock.slept)) == (False, False, 20)


@pytest.mark.parametrize("length", [23_999, 24_000, 30_000])
def test_output_at_the_limit_is_not_whole(server: ServerCommands, ssm: Ssm, length: int) -> None:
    ssm.answers = [{"Status": "Success", "ResponseCode": 0, "StandardOutputContent": "x" * length}]
    assert server.result("c-1").succeeded is (length < 24_000)


def test_cancelling_what_is_over_or_unknown_is_no_error(server: ServerCommands, ssm: Ssm) -> None:
    server.cancel("c-1")
    ssm.cancel_error = refusal("InvalidCommandId")
    server.cancel("c-1")
    assert [c["CommandId"] for c in ssm.of("cancel")] == ["c-1", "c-1"]
    ssm.cancel_error = refusal("AccessDenied")
    with pytest.raises(ServerUnreachableError, match="cannot cancel"):
        server.cancel("c-1")


def test_polls_do_not_look_the_server_up_each_time(ssm: Ssm, clock: Clock) -> None:
    ec2 = Ec2()
    server = ServerCommands(ssm, ec2, Settings(), clock)
    for _ in range(5):
        server.result("c-1")
    assert ec2.asked == 1
    clock.time += 60
    server.result("c-1")
    assert ec2.asked == 2


@pytest.mark.parametrize(("stderr", "error"), [("", ""), ("the API does not answer\n", ": the API does not answer")])
def test_a_command_that_failed_leaves_its_question_without_an_answer(
    server: ServerCommands, ssm: Ssm, stderr: str, error: str
) -> None:
    ssm.answers = [{"Status": "Failed", "ResponseCode": 1, "StandardErrorContent": stderr}]
    said = "has no answer: SSM status Failed"
    check, pending, inspection = server.check("a"), server.list_pending(), server.inspect()
    assert (check.known, check.detail) == (False, f"the check of node a {said}")
    assert (pending.known, pending.detail) == (False, f"the list of pending pods {said}")
    assert (inspection.known, inspection.detail) == (False, f"the inspection of the nodes {said}{error}")


def test_an_answer_that_cannot_be_read_says_nothing_about_the_clock_of_the_server(
    server: ServerCommands, ssm: Ssm
) -> None:
    ssm.answers = [{"Status": "Success", "ResponseCode": 0, "StandardOutputContent": "nf1 cut"}]
    inspection = server.inspect()
    assert (inspection.known, inspection.seconds_ahead, inspection.clock_problem) == (False, 0, "")
    assert "cannot be read" in inspection.detail


def test_a_report_is_sent_once_and_a_command_that_the_run_needs_three_times() -> None:
    services = Services(Settings(region="eu-central-1"))
    attempts = [server._ssm.meta.config.retries["total_max_attempts"] for server in (services.reports, services.server)]
    assert attempts == [1, 3]
