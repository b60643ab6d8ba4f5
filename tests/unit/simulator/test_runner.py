"""Executions through the real interpreter in virtual time: paths, edges, waits, retries, time limits, stops."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import importlib
import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.core.utils import iso_8601_datetime_with_milliseconds
from moto.stepfunctions.parser.api import HistoryEventType
from moto.stepfunctions.parser.asl.component.common.path.result_path import ResultPath
from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringJsonPath
from moto.stepfunctions.parser.asl.component.state.exec.state_task import state_task_lambda
from moto.stepfunctions.parser.asl.eval.states import States
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError
from moto.stepfunctions.parser.models import stepfunctions_parser_backends
from moto.stepfunctions.parser.quotas import MAX_STATE_SIZE_UTF8_BYTES

from simulator.aws import Cloud, InvocationKilledError
from simulator.aws.lambdas import ServiceFault
from simulator.aws.moto_patches import swapped
from simulator.aws.moto_patches.interpreter import text_of_time
from simulator.aws.moto_patches.speed import COPIED
from simulator.clock import VirtualClock
from simulator.report.graph import all_edges
from simulator.runner import Execution, RunnerError
from tests.support.simulated_aws import create_table

TOY = json.loads((Path(__file__).parents[2] / "fixtures" / "toy_machine.asl.json").read_text())
STOCK_INPUT, STOCK_PATH = States.get_input, StringJsonPath._eval_body
LOOK = "arn:aws:lambda:ap-southeast-1:123456789012:function:Look:1"


class MetricsMissingError(Exception):
    """A custom error, as the functions have them."""


class ThrottledError(Exception):
    """A custom error that the toy machine retries."""


class Script:
    """A handler that answers with the next of its answers; an exception is raised, a number is slept first."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.events: list[Any] = []
        self.times: list[float] = []

    def __call__(self, event: Any, context: Any) -> Any:
        self.events.append(event)
        self.times.append(time.time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int | float):
            time.sleep(answer)
            return {"go": "on"}
        return answer


def machine(cloud: Cloud, look: Any, work: Any = None, **settings: Any) -> None:
    cloud.lambdas.register("Look", look, **settings)
    cloud.lambdas.register("Work", work or Script({"done": True}))
    cloud.create_state_machine("toy", TOY)


def one_task(**fields: Any) -> dict[str, Any]:
    state = {"Type": "Task", "Resource": LOOK, "End": True, **fields}
    return {"StartAt": "Only", "States": {"Only": state}}


def test_a_quiet_execution_walks_its_path_and_keeps_inputs_and_outputs(cloud: Cloud) -> None:
    machine(cloud, Script({"go": "on"}))
    execution = cloud.runner.run({"trigger": "manual"}, "first")
    assert (execution.status, execution.path) == ("SUCCEEDED", ["Look", "Route", "Done"])
    assert execution.output == {"trigger": "manual", "look": {"go": "on"}}
    assert execution.output_of("Look") == execution.output
    assert execution.edges == {("Look", "Route"), ("Route", "Done")}
    assert execution.name == "first"


def test_each_of_many_similar_histories_is_kept_whole(cloud: Cloud) -> None:
    machine(cloud, Script({"go": "on"}))
    executions = [cloud.runner.run({"trigger": "manual", "text": "x" * number * 9_000}) for number in range(5)]
    for number, execution in enumerate(executions):
        assert execution.history[0].input == {"trigger": "manual", "text": "x" * number * 9_000}
        assert execution.path == ["Look", "Route", "Done"]
        assert len(execution.events) == execution.events_count


def test_a_state_that_shares_its_input_writes_the_same_history_as_one_that_copies_it(cloud: Cloud) -> None:
    """Each kind of state that puts its result into its input, with a retry and a caught error."""
    task = {"Type": "Task", "Resource": LOOK, "ResultPath": "$.deep.result"}
    item = {"StartAt": "Item", "States": {"Item": {**task, "End": True}}}
    retried = {"ErrorEquals": ["ThrottledError"], "IntervalSeconds": 1, "MaxAttempts": 2}
    caught = {"ErrorEquals": ["MetricsMissingError"], "ResultPath": "$.deep.error", "Next": "Pass"}
    states = {
        "Retry": {**task, "Retry": [retried], "Next": "Catch"},
        "Catch": {**task, "Catch": [caught], "Next": "Pass"},
        "Pass": {"Type": "Pass", "Parameters": {"all.$": "$"}, "ResultPath": "$.deep.copy", "Next": "Map"},
        "Map": {"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": item, "ResultPath": "$.mapped", "Next": "Both"},
        "Both": {"Type": "Parallel", "Branches": [item, item], "ResultPath": "$.both", "Next": "Last"},
        "Last": {**task, "InputPath": "$.deep", "OutputPath": "$.deep", "End": True},
    }
    given = {"deep": {"old": [1]}, "items": [{"deep": {}}, {"deep": {"old": 2}}]}

    def history() -> str:
        answers = [ThrottledError("slow down"), {"go": 1}, MetricsMissingError("none"), *({"go": n} for n in range(6))]
        cloud.lambdas.register("Look", Script(*answers))
        cloud.create_state_machine("toy", {"StartAt": "Retry", "States": states})
        execution = cloud.runner.run(given)
        assert execution.status == "SUCCEEDED"
        events = json.dumps([{**event, "timestamp": ""} for event in execution.events])
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "request id", events)

    shared = history()
    with contextlib.ExitStack() as stack:
        stack.enter_context(swapped(States, "get_input", STOCK_INPUT))
        for name in COPIED:
            stack.enter_context(swapped(importlib.import_module(name), "copy", copy))
        copied = history()
    assert shared == copied
    assert STOCK_INPUT is not States.get_input


def test_a_packed_history_is_the_one_before_it_was_packed() -> None:
    text = "a payload of several events" * 9
    given = [
        {
            "id": 1,
            "type": HistoryEventType.TaskStateExited,
            "at": None,
            "details": {"name": name, "output": text, "branches": (1, None)},
        }
        for name in "ab"
    ]
    execution = Execution(arn="arn", name="one", machine="toy", input={}, started_at=0.0)
    execution._events = lambda: given
    like = execution.pack(b"")
    assert execution.events == json.loads(json.dumps(given))
    assert {type(event["type"]) for event in execution.events} == {str}
    assert like.count(text.encode()) == 1


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    ("path", "output"),
    [("$.deep.new", {"deep": {"old": 1, "new": {"at": 2}}}), ("$", {"at": 2}), (None, {"deep": {"old": 1}})],
)
def test_a_result_is_written_into_a_copy_of_the_input_that_others_have_seen(path: str | None, output: Any) -> None:
    states = States({"Execution": {"Input": {"deep": {"old": 1}}}})  # type: ignore[typeddict-item]
    seen, env = states.get_input(), SimpleNamespace(states=states, stack=[{"at": 2}])
    ResultPath(path)._eval_body(env)  # type: ignore[arg-type]
    assert env.stack == [output]
    assert seen == {"deep": {"old": 1}}


@pytest.mark.usefixtures("cloud")
def test_the_text_of_a_payload_is_never_that_of_one_that_is_deleted() -> None:
    for number in range(200):  # a new dictionary gets the address of one that is deleted
        assert to_json_str({"number": number}) == json.dumps({"number": number})


def test_all_events_of_a_payload_share_its_text(cloud: Cloud) -> None:
    cloud.lambdas.register("Look", Script({"text": "x" * 99, "list": [1, 2]}))
    states = {"First": {"Type": "Task", "Resource": LOOK, "Next": "Second"}, "Second": {"Type": "Succeed"}}
    cloud.create_state_machine("two", {"StartAt": "First", "States": states})
    details = [part for event in cloud.runner.run().events for part in event.values() if isinstance(part, dict)]
    texts = [part[name] for part in details for name in ("input", "output") if "xxx" in part.get(name, "")]
    assert len(texts) == 5
    assert {id(text) for text in texts} == {id(texts[0])}


def test_an_execution_keeps_the_definition_that_it_began_with(cloud: Cloud) -> None:
    machine(cloud, Script(5, {"go": "on"}))
    client, running = cloud.client("stepfunctions"), cloud.runner.start()
    cloud.clock.advance(1)
    client.update_state_machine(stateMachineArn=cloud.runner.default_machine, definition=json.dumps(one_task()))
    cloud.runner.finish(running)
    assert running.path == ["Look", "Route", "Done"]
    kept = stepfunctions_parser_backends[cloud.account][cloud.region].describe_execution(running.arn).state_machine
    assert json.loads(kept.definition) == TOY
    assert cloud.runner.run().path == ["Only"]


PATHS = ["$", "$.a", "$.a.b", "$.a.none", "$.a.list", "$.a.list[0]", "$.a.list.b", "$.gone", "$.a.b.gone", "$.a[*]"]


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("given", [{"a": {"b": 1, "none": None, "list": [{"b": 2}]}}, [{"a": 1}], "text", None])
@pytest.mark.parametrize("path", PATHS)
def test_a_path_leads_to_the_value_that_moto_finds(path: str, given: Any) -> None:
    def found(evaluate: Any) -> Any:
        env = SimpleNamespace(stack=[given])
        try:
            evaluate(StringJsonPath(path), env)
        except NoSuchJsonPathError as error:
            return str(error)
        return env.stack[-1]

    assert found(StringJsonPath._eval_body) == found(STOCK_PATH)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("missing", [1, 0, -1])
@pytest.mark.parametrize("answer", [{"StatusCode": 200, "Payload": {"text": "é"}}, ["é"]], ids=["answer", "list"])
def test_the_size_of_an_answer_is_that_of_its_whole_text(answer: Any, missing: int) -> None:
    length = MAX_STATE_SIZE_UTF8_BYTES - len(json.dumps(answer)) - missing
    longer = json.loads(json.dumps(answer).replace("\\u00e9", "\\u00e9" + "x" * length))
    assert len(json.dumps(longer)) == MAX_STATE_SIZE_UTF8_BYTES - missing
    assert state_task_lambda.is_within_size_quota(longer) == (missing > 0)


@given(at=st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(9999, 1, 1), timezones=st.just(dt.UTC)))
def test_an_event_has_the_time_that_moto_would_write(at: dt.datetime) -> None:
    assert text_of_time(at) == iso_8601_datetime_with_milliseconds(at)


def test_a_wait_state_passes_virtual_seconds_only(cloud: Cloud) -> None:
    look = Script({"go": "wait"}, {"go": "wait"}, {"go": "on"})
    machine(cloud, look)
    execution = cloud.runner.run()
    assert execution.path == ["Look", "Route", "Pause", "Look", "Route", "Pause", "Look", "Route", "Done"]
    assert execution.ended_at == execution.started_at + 20
    visit = execution.history[2]
    assert (visit.name, visit.type, visit.exited_at) == ("Pause", "Wait", visit.entered_at + 10)


def test_retries_back_off_in_virtual_time(cloud: Cloud) -> None:
    look = Script(ThrottledError("slow down"), ThrottledError("slow down"), {"go": "on"})
    machine(cloud, look)
    execution = cloud.runner.run()
    assert execution.status == "SUCCEEDED"
    assert [at - look.times[0] for at in look.times] == [0, 2, 6]


def test_an_error_of_the_lambda_service_is_retried_by_its_name(cloud: Cloud) -> None:
    machine(cloud, Script({"go": "on"}))
    cloud.lambdas.faults.append(ServiceFault(error="Lambda.TooManyRequestsException", count=2))
    execution = cloud.runner.run()
    assert (execution.status, execution.ended_at) == ("SUCCEEDED", execution.started_at + 6)


def test_a_custom_error_is_caught_by_the_name_of_its_class(cloud: Cloud) -> None:
    machine(cloud, Script(MetricsMissingError("Prometheus does not answer")))
    execution = cloud.runner.run()
    assert execution.path == ["Look", "Degraded", "Done"]
    assert ("Look", "Degraded") in execution.edges
    fault = execution.output["fault"]
    assert fault["Error"] == "MetricsMissingError"
    assert json.loads(fault["Cause"])["errorMessage"] == "Prometheus does not answer"


def test_another_error_ends_in_the_fail_state_with_its_name_and_cause(cloud: Cloud) -> None:
    machine(cloud, Script(ValueError("bad value")))
    execution = cloud.runner.run()
    assert (execution.status, execution.error) == ("FAILED", "ValueError")
    assert json.loads(execution.cause or "")["errorMessage"] == "bad value"


def test_a_function_beyond_its_own_timeout_is_killed_as_lambda_does_it(cloud: Cloud) -> None:
    reached: list[str] = []

    def slow(event: Any, context: Any) -> Any:
        time.sleep(29)
        reached.append(f"{context.get_remaining_time_in_millis()} ms left")
        time.sleep(29)
        reached.append("after the timeout")

    machine(cloud, slow, timeout_seconds=30)
    execution = cloud.runner.run()
    assert reached == ["1000 ms left"]
    assert (execution.status, execution.error) == ("FAILED", "Sandbox.Timedout")
    assert execution.ended_at == execution.started_at + 30
    assert "timed out after 30.00 seconds" in (execution.cause or "")


def test_a_state_timeout_goes_on_while_the_function_finishes_behind_its_back(cloud: Cloud) -> None:
    effects: list[float] = []

    def slow(event: Any, context: Any) -> Any:
        time.sleep(80)
        effects.append(time.time())
        return {"go": "on"}

    machine(cloud, slow, timeout_seconds=300)
    execution = cloud.runner.run()
    assert (execution.error, execution.ended_at) == ("States.Timeout", execution.started_at + 60)
    assert effects == []
    cloud.clock.advance(60)
    assert effects == [execution.started_at + 80]
    assert execution.path == ["Look", "Failed"]


def test_a_killed_function_is_an_exit_error_and_its_finally_clause_has_no_effect(cloud: Cloud) -> None:
    create_table(cloud.client("dynamodb"), "state", "id")

    def put(name: str) -> None:
        boto3.client("dynamodb").put_item(TableName="state", Item={"id": {"S": name}})

    def handler(event: Any, context: Any) -> Any:
        try:
            put("first")
            put("second")
        finally:
            put("last")

    def die(call: Any) -> None:
        if call.parameters.get("Item") == {"id": {"S": "second"}}:
            raise InvocationKilledError("killed here")

    machine(cloud, handler)
    cloud.recorder.after_effect.append(die)
    execution = cloud.runner.run()
    assert execution.error == "Runtime.ExitError"
    items = cloud.client("dynamodb").scan(TableName="state")["Items"]
    assert sorted(item["id"]["S"] for item in items) == ["first", "second"]


@pytest.mark.parametrize(("answer", "after"), [({"go": "wait"}, 3), (ThrottledError("slow down"), 1)])
def test_a_stop_ends_a_wait_and_the_back_off_of_a_retry_at_once(cloud: Cloud, answer: Any, after: int) -> None:
    machine(cloud, Script(answer))
    execution = cloud.runner.start()
    cloud.clock.advance(after)
    cloud.runner.stop(execution, error="Operator", cause="by hand")
    cloud.runner.finish(execution)
    assert (execution.status, execution.ended_at) == ("ABORTED", execution.started_at + after)
    assert execution.events[-1]["type"] == "ExecutionAborted"


def test_a_stop_during_a_task_ends_the_execution_while_the_function_goes_on(cloud: Cloud) -> None:
    look = Script(40)
    machine(cloud, look, timeout_seconds=60)
    execution = cloud.runner.start()
    cloud.clock.advance(5)
    cloud.runner.stop(execution)
    cloud.runner.finish(execution)
    assert (execution.status, execution.ended_at) == ("ABORTED", execution.started_at + 5)
    cloud.clock.advance(60)
    assert [invocation.ended_at for invocation in cloud.lambdas.invocations] == [execution.started_at + 40]


def test_a_stop_before_the_first_state_ends_the_execution_without_entering_one(cloud: Cloud) -> None:
    look = Script({"go": "wait"})
    machine(cloud, look)
    execution = cloud.runner.start()
    cloud.runner.stop(execution)
    cloud.runner.finish(execution)
    assert (execution.status, execution.ended_at) == ("ABORTED", execution.started_at)
    assert [event["type"] for event in execution.events] == ["ExecutionStarted", "ExecutionAborted"]
    assert (execution.path, look.times) == ([], [])


def test_the_time_limit_of_the_machine_ends_it_as_timed_out(cloud: Cloud) -> None:
    cloud.lambdas.register("Look", Script({}))
    wait = {"StartAt": "Long", "TimeoutSeconds": 25, "States": {"Long": {"Type": "Wait", "Seconds": 99, "End": True}}}
    cloud.create_state_machine("limited", wait)
    execution = cloud.runner.run()
    assert (execution.status, execution.ended_at) == ("TIMED_OUT", execution.started_at + 25)


def test_a_parallel_state_runs_its_branches_side_by_side(cloud: Cloud) -> None:
    work = Script({"done": True})
    machine(cloud, Script({"go": "both"}), work)
    execution = cloud.runner.run()
    assert execution.ended_at == execution.started_at + 30
    assert [at - execution.started_at for at in work.times] == [5, 30]
    assert {("Both", "Slow"), ("Both", "Quick"), ("Slow", "SlowWork"), ("Both", "Done")} <= execution.edges


def test_a_map_state_runs_every_item(cloud: Cloud) -> None:
    work = Script({"done": True})
    machine(cloud, Script({"go": "each", "items": [1, 2, 3]}), work)
    execution = cloud.runner.run()
    assert work.events == [1, 2, 3]
    assert execution.output["each"] == [{"done": True}] * 3
    assert ("Each", "One") in execution.edges


def test_the_toy_machine_is_walked_on_every_edge_it_draws(cloud: Cloud) -> None:
    look = Script({"go": "wait"}, {"go": "both"})
    machine(cloud, look)
    runs = [cloud.runner.run()]
    for answer in ({"go": "each", "items": [1]}, {"go": "on"}, MetricsMissingError("gone"), ValueError("bad")):
        look.answers = [answer]
        runs.append(cloud.runner.run())
    assert set().union(*(run.edges for run in runs)) == all_edges(TOY)


def test_two_executions_interleave_the_same_way_every_time() -> None:
    def run() -> list[tuple[float, str, Any]]:
        with Cloud(VirtualClock()) as cloud:
            seen: list[tuple[float, str, Any]] = []

            def look(event: Any, context: Any) -> Any:
                time.sleep(event["pace"])
                seen.append((time.time(), context.aws_request_id, event["n"]))
                return {"go": "wait"} if len(seen) < 12 else {"go": "on"}

            machine(cloud, look)
            runs = [cloud.runner.start({"n": n, "pace": pace}) for n, pace in enumerate((3, 3, 7))]
            cloud.clock.run_until(lambda: not any(run.running for run in runs), limit=cloud.clock.now() + 900)
            return seen

    first = run()
    assert len(first) > 6
    assert first == run()


def test_each_function_sees_its_own_environment_and_no_other(cloud: Cloud) -> None:
    seen: list[tuple[str | None, str | None, str | None]] = []

    def spy(event: Any, context: Any) -> Any:
        seen.append((os.environ.get("ONE"), os.environ.get("TWO"), os.environ.get("AWS_LAMBDA_FUNCTION_NAME")))
        time.sleep(5)
        seen.append((os.environ.get("ONE"), os.environ.get("TWO"), os.environ.get("AWS_LAMBDA_FUNCTION_NAME")))
        return {}

    cloud.lambdas.register("First", spy, environment={"ONE": "1"})
    cloud.lambdas.register("Second", spy, environment={"TWO": "2"})
    cloud.clock.spawn(lambda: cloud.lambdas.invoke("First", b"{}"))
    cloud.clock.spawn(lambda: cloud.lambdas.invoke("Second", b"{}"))
    cloud.clock.advance(10)
    assert seen == [("1", None, "First"), (None, "2", "Second")] * 2
    assert "ONE" not in os.environ
    assert "TWO" not in os.environ


def test_payloads_cross_real_json_and_their_sizes_are_known(cloud: Cloud) -> None:
    machine(cloud, Script({"go": "on", "pair": (1, 2), "text": "ä" * 100}))
    execution = cloud.runner.run()
    assert execution.output["look"]["pair"] == [1, 2]
    assert cloud.lambdas.payload_bytes["Look"] > 600


def test_a_function_that_gets_the_answer_of_another_gets_a_copy_of_its_own(cloud: Cloud) -> None:
    def change(event: Any, context: Any) -> Any:
        event["list"].append(2)
        return event

    cloud.lambdas.register("First", Script({"list": [1]}))
    cloud.lambdas.register("Second", change)
    answer = cloud.lambdas.invoke("First", b"{}")
    assert cloud.lambdas.invoke("Second", answer.text.encode()).payload == {"list": [1, 2]}
    assert answer.payload == {"list": [1]}


@pytest.mark.parametrize(
    ("answer", "error", "path"),
    [
        ({"go": {1, 2}}, "Runtime.MarshalError", ["Look", "Failed"]),
        ({"go": "on", "text": "x" * 270_000}, "States.DataLimitExceeded", ["Look"]),
    ],
    ids=["no JSON", "over 256 kB, which no catcher sees"],
)
def test_an_answer_that_cannot_be_passed_on_fails_the_execution(
    cloud: Cloud, answer: Any, error: str, path: list[str]
) -> None:
    machine(cloud, Script(answer))
    execution = cloud.runner.run()
    assert (execution.status, execution.error, execution.path) == ("FAILED", error, path)


def test_a_path_that_is_not_there_is_a_runtime_error_that_no_catcher_sees(cloud: Cloud) -> None:
    cloud.lambdas.register("Look", Script({}))
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "After"}]
    definition = one_task(Parameters={"x.$": "$.missing"}, Catch=catch)
    definition["States"]["After"] = {"Type": "Succeed"}
    cloud.create_state_machine("broken", definition)
    execution = cloud.runner.run({"there": 1})
    assert (execution.status, execution.error, execution.path) == ("FAILED", "States.Runtime", ["Only"])


def test_what_a_function_prints_is_its_log(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    def chatty(event: Any, context: Any) -> Any:
        print("deciding")
        time.sleep(1)
        print("decided")
        return {"go": "on"}

    machine(cloud, chatty)
    cloud.runner.run()
    assert list(cloud.lambdas.lines("Look")) == ["deciding", "decided"]
    assert capsys.readouterr().out == ""


def test_a_function_may_start_and_describe_executions(cloud: Cloud) -> None:
    def starter(event: Any, context: Any) -> Any:
        client = boto3.client("stepfunctions")
        arn = client.start_execution(stateMachineArn=event["machine"], name="child", input="{}")["executionArn"]
        time.sleep(1)
        return {"status": client.describe_execution(executionArn=arn)["status"]}

    machine(cloud, Script({"go": "on"}))
    cloud.lambdas.register("Starter", starter)
    payload = json.dumps({"machine": cloud.runner.default_machine}).encode()
    assert cloud.lambdas.invoke("Starter", payload).payload == {"status": "SUCCEEDED"}
    assert [execution.name for execution in cloud.runner.executions] == ["child"]


def test_every_call_is_recorded_with_who_made_it_and_when(cloud: Cloud) -> None:
    def caller(event: Any, context: Any) -> Any:
        time.sleep(3)
        boto3.client("sts").get_caller_identity()
        return {"go": "on"}

    machine(cloud, caller)
    start = cloud.clock.now()
    cloud.runner.run()
    (call,) = cloud.recorder.of("GetCallerIdentity")
    assert (call.function, call.at, call.service, call.error) == ("Look", start + 3, "sts", None)


def test_asking_for_a_state_that_was_not_entered_says_where_it_went(cloud: Cloud) -> None:
    machine(cloud, Script({"go": "on"}))
    execution = cloud.runner.run()
    with pytest.raises(RunnerError, match="Look > Route > Done"):
        execution.output_of("Pause")


def test_a_thousand_finished_executions_leave_few_in_moto(cloud: Cloud) -> None:
    cloud.lambdas.register("Look", Script({}))
    cloud.create_state_machine("small", one_task())
    for _ in range(250):
        cloud.runner.run()
    listed = cloud.client("stepfunctions").list_executions(stateMachineArn=cloud.runner.default_machine, maxResults=900)
    assert len(listed["executions"]) == 200
    assert len(cloud.runner.executions) == 250
    assert cloud.runner.executions[0].path == ["Only"]
