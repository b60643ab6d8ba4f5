"""The cluster that a command addresses: the deployed one in an AWS account, or a simulated one (--local).

Both give the same services. The settings are those of the deployed functions, so that nothing is typed twice.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from cli import completion
from cli.configured import region_of
from cli.output import CommandError, WrongUseError, note, working
from node_fleet.services import Services
from node_fleet.settings import Settings

if TYPE_CHECKING:
    from simulator.runner import Execution

Answer = TypeVar("Answer")

DEFAULT_SCENARIO = "flash-sale"
NO_ANSWER_HINT = "check the network, the proxy and the region"
DEFAULT_CLUSTER = "node-fleet-prod"
CALL_SECONDS = 3600
DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")

ClusterOption = Annotated[
    str, typer.Option("--cluster", envvar="NODE_FLEET_CLUSTER", help="Cluster id, as in cdk.json.", show_envvar=True)
]
RegionOption = Annotated[
    str, typer.Option("--region", envvar="AWS_REGION", help="AWS region (from cdk.json, else from your AWS profile).")
]
LocalOption = Annotated[bool, typer.Option("--local", help="Use the simulator instead of AWS.")]
ScenarioOption = Annotated[
    str,
    typer.Option(
        "--scenario", autocompletion=completion.scenarios, help="With --local: the scenario, by name or file."
    ),
]
AtOption = Annotated[
    str, typer.Option("--at", help="With --local: time since the scenario began, such as 20m or 1h30m.")
]
ScenarioTimeOption = Annotated[
    str, typer.Option("--scenario-at", help="With --local: time since the scenario began, such as 20m or 1h30m.")
]
"""In place of AtOption where a command has a --at of its own."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


class InvocationError(CommandError):
    """A function of the cluster cannot be invoked, or failed."""


class Target(Protocol):
    """A cluster that commands can query."""

    services: Services
    place: str

    def call(self, work: Callable[[], Answer]) -> Answer:
        """Do work that may have to wait for the server."""

    def execution(self, name: str) -> Execution:
        """One execution with its history."""

    def start(self, name: str, data: dict[str, Any]) -> str:
        """Start the workflow; the execution's name."""

    def invoke(self, function: str, event: dict[str, Any]) -> Any:
        """Run one function of the cluster, named as its state, and return its answer.

        Raises:
            InvocationError: it cannot be invoked, or it failed.
        """

    def client(self, service: str, region: str = "") -> Any:
        """A boto3 client; by default in the region of the cluster."""

    def advance(self, seconds: float) -> bool:
        """Let virtual time pass; False when the scenario is over. The time of a deployed cluster passes by itself."""


@contextlib.contextmanager
def open_target(
    *, cluster: str = DEFAULT_CLUSTER, region: str = "", local: bool = False, scenario: str = "", at: str = "14m"
) -> Iterator[Target]:
    """The target that these options name, for the length of the block."""
    if local:
        with simulated(scenario or DEFAULT_SCENARIO, at) as target:
            yield target
    else:
        yield Deployed(cluster, region)


Opening = contextlib.AbstractContextManager[Target]


def on_cluster(
    *, at: str | Callable[[dict[str, Any]], str] = "14m", at_option: Any = AtOption
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that name a cluster. Its first argument opens the target: `with opening as target`.

    An option that the command has as a parameter too, such as `cluster`, is given to it as well. `at` is the default of
    --at: the moment of the scenario at which the command has something to show; a function takes the command's own
    arguments. at_option: the option itself.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            chosen = {option.name: given.pop(option.name) for option in options}
            if callable(at):
                chosen["at"] = chosen["at"] or at(given)
            shared = {name: value for name, value in chosen.items() if name in asked}
            command(open_target(**chosen), **given, **shared)

        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, default, annotation in (
                ("cluster", DEFAULT_CLUSTER, ClusterOption),
                ("region", "", RegionOption),
                ("local", False, LocalOption),
                ("scenario", DEFAULT_SCENARIO, ScenarioOption),
                ("at", "" if callable(at) else at, at_option),
            )
        ]
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        asked = {one.name for one in own}
        names = {one.name for one in options}
        parameters = [*(one for one in own if one.name not in names), *options]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


class Deployed:
    """The cluster in the account that the AWS profile names."""

    def __init__(self, cluster: str, region: str) -> None:
        self._cluster = cluster
        self._session = _session(region or region_of(cluster))
        self.place = f"{cluster} in {self._session.region_name}"
        self.services = Services(Settings.from_env(self._environment(cluster)))

    def _environment(self, cluster: str) -> dict[str, str]:
        """The environment of the deployed functions: the settings as they are in force."""
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as NoConnectionError

        name = f"{cluster}-AcquireLock"
        try:
            answer = self.client("lambda").get_function_configuration(FunctionName=name)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ResourceNotFoundException":
                hint = "give --cluster and --region, deploy first (README), or add --local to use the simulator"
                raise CommandError(f"no cluster {self.place}: there is no function {name}", hint=hint) from error
            raise CommandError(f"cannot read {name}: {code}", hint="check your AWS credentials") from error
        except (NoConnectionError, HTTPClientError) as error:
            raise CommandError(f"AWS does not answer: {error}", hint=NO_ANSWER_HINT) from error
        except BotoCoreError as error:
            hint = "set up AWS credentials, or add --local to use the simulator"
            raise CommandError(f"cannot ask AWS: {error}", hint=hint) from error
        found: dict[str, str] = answer["Environment"]["Variables"]
        return {**found, "AWS_REGION": str(self._session.region_name)}

    def call(self, work: Callable[[], Answer]) -> Answer:
        return work()

    def advance(self, seconds: float) -> bool:
        return True

    def client(self, service: str, region: str = "") -> Any:
        return self._session.client(service, region_name=region or None)

    def start(self, name: str, data: dict[str, Any]) -> str:
        machine = self.services.settings.state_machine_arn
        self.client("stepfunctions").start_execution(stateMachineArn=machine, name=name, input=json.dumps(data))
        return name

    def invoke(self, function: str, event: dict[str, Any]) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        name = f"{self._cluster}-{function}"
        try:
            answer = self.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
        except (ClientError, BotoCoreError) as error:
            hint = f"your credentials need lambda:InvokeFunction on {name}"
            raise InvocationError(f"the function {name} cannot be invoked: {error}", hint=hint) from error
        return _answer_of(name, json.loads(answer["Payload"].read()), is_failed="FunctionError" in answer)

    def execution(self, name: str) -> Execution:
        from botocore.exceptions import ClientError

        from simulator.runner import Execution

        arn = name if name.startswith("arn:") else self._arn(name)
        client = self.client("stepfunctions")
        try:
            found = client.describe_execution(executionArn=arn)
            pages = client.get_paginator("get_execution_history").paginate(executionArn=arn)
            events = [event for page in pages for event in page["events"]]
        except ClientError as error:
            hint = "node-fleet history lists the executions"
            raise CommandError(f"no execution {name}: {error.response['Error']['Code']}", hint=hint) from error
        stopped = found.get("stopDate")
        return Execution(
            arn=arn,
            name=found["name"],
            machine=found["stateMachineArn"].rsplit(":", 1)[-1],
            input=json.loads(found.get("input") or "{}"),
            started_at=found["startDate"].timestamp(),
            status=found["status"],
            ended_at=stopped.timestamp() if stopped else None,
            error=found.get("error"),
            cause=found.get("cause"),
            events_count=len(events),
            _events=lambda: events,
        )

    def _arn(self, name: str) -> str:
        return f"{self.services.settings.state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"


class LocalTarget:
    """A scenario that was simulated up to some moment; its clock stands still between commands."""

    def __init__(self, simulation: Any, place: str) -> None:
        self._simulation = simulation
        self.place = place
        lambdas = simulation.deployment.cloud.lambdas
        function = next(iter(simulation.deployment.resources.functions.values()))
        self.services = Services(Settings.from_env(lambdas.environment_of(function)))

    @property
    def clock(self) -> Any:
        return self._simulation.deployment.clock

    def call(self, work: Callable[[], Answer]) -> Answer:
        """Run `work` in virtual time, so that it can wait for a command on the server while the clock advances."""
        answers: list[Answer] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                answers.append(work())
            except Exception as error:
                errors.append(error)

        self.clock.spawn(run, name="command line")
        self._simulation.deployment.run_until(lambda: bool(answers or errors), limit_seconds=CALL_SECONDS)
        if errors:
            raise errors[0]
        if not answers:
            raise CommandError(f"the simulator did not answer within {CALL_SECONDS // 60} virtual minutes")
        return answers[0]

    def client(self, service: str, region: str = "") -> Any:
        return self._simulation.deployment.cloud.client(service)

    def advance(self, seconds: float) -> bool:
        scenario = self._simulation.scenario
        until = min(self.clock.now() + seconds, scenario.start_at + scenario.duration_seconds)
        self._simulation.deployment.run_until(until)
        return bool(until < scenario.start_at + scenario.duration_seconds)

    def start(self, name: str, data: dict[str, Any]) -> str:
        deployment = self._simulation.deployment
        execution = deployment.cloud.runner.start(data, name, machine=deployment.machine("autoscaler"))
        deployment.cloud.runner.finish(execution)
        return str(execution.name)

    def invoke(self, function: str, event: dict[str, Any]) -> Any:
        lambdas = self._simulation.deployment.cloud.lambdas
        name = f"{self.services.settings.cluster_id}-{function}"
        reply = self.call(lambda: lambdas.invoke(name, json.dumps(event).encode()))
        return _answer_of(name, reply.payload, is_failed=reply.function_error is not None)

    def execution(self, name: str) -> Execution:
        wanted = name.rsplit(":", 1)[-1]
        found: list[Execution] = [one for one in self._simulation.executions if one.name == wanted]
        if not found:
            last = self._simulation.executions[-1].name if self._simulation.executions else "none"
            raise CommandError(f"no execution {wanted}", hint=f"the last one is {last}; node-fleet history lists them")
        return found[-1]


@contextlib.contextmanager
def simulated(scenario_name: str, at: str) -> Iterator[LocalTarget]:
    """A scenario, simulated up to `at`."""
    with working("starting the simulator"):  # its packages take a second to load
        from cli.demo import read_scenario, suitable
        from simulator.simulation import Simulation

    scenario, seconds = read_scenario(scenario_name), seconds_of(at, "--at")
    if seconds > scenario.duration_seconds:
        whole = f"{scenario.duration_seconds / 60:.0f}m"
        raise WrongUseError(f"--at {at} is after the end of {scenario.name}", hint=f"it lasts {whole}")
    note(f"simulator: {scenario.name} after {at}")
    with contextlib.ExitStack() as stack:
        with working(f"simulating {at} of {scenario.name}") as report:
            share = scenario.duration_seconds / max(1, seconds)
            progress = lambda done, _: report(min(1.0, done * share))  # noqa: E731
            with suitable(scenario):
                simulation = stack.enter_context(Simulation(scenario, progress=progress))
            begin = simulation.deployment.clock.now()  # the start of the server has taken some seconds
            simulation.deployment.run_until(max(begin, scenario.start_at + seconds))
        yield LocalTarget(simulation, f"{scenario.name} in the simulator, after {at}")


def seconds_of(text: str, name: str) -> int:
    """'90s', '20m', '1h30m', '2d' in seconds."""
    match = DURATION.fullmatch(text.strip())
    if not match or not any(match.groups()):
        raise WrongUseError(f"{name} {text!r} is not a time", hint="type it like 30m, 2h or 1h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def _answer_of(function: str, payload: Any, *, is_failed: bool) -> Any:
    if is_failed:
        text = f"the function {function} failed: {payload.get('errorType')}: {payload.get('errorMessage')}"
        raise InvocationError(text, hint=f"its log is /aws/lambda/{function}")
    return payload


def maker_of_clients(region: str) -> Callable[..., Any]:
    """Makes boto3 clients with the operator's profile, in that region unless another is named."""
    session = _session(region)
    return lambda service, other="": session.client(service, region_name=other or None)


def _session(region: str) -> Any:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.Session(region_name=region or None)
    except BotoCoreError as error:
        raise CommandError(f"cannot use your AWS profile: {error}") from error
    if not session.region_name:
        hint = "give --region, set AWS_REGION, add the cluster to cdk.json, or add --local to use the simulator"
        raise CommandError("which AWS region is meant?", hint=hint)
    return session
