"""Reads synthesised CloudFormation templates and resolves their intrinsic functions, without an AWS.

It answers what a template says. What a resource is called in the simulated AWS comes from the `Names` it is given.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from node_fleet.domain.model.value_class import value_class

NO_VALUE = object()
SUBSTITUTION = re.compile(r"\$\{([^!}][^}]*)\}")
FAKE_PARAMETERS = {
    "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>": "ami-12345678",
    "AWS::EC2::Image::Id": "ami-12345678",
}


class TemplateError(ValueError):
    """A template has a part that cannot be resolved here."""


@value_class
class Resource:
    """One resource of one stack, its properties as written."""

    stack: str
    logical_id: str
    type: str
    properties: Mapping[str, Any]

    @property
    def address(self) -> str:
        return f"{self.stack}.{self.logical_id}"


class Names(Protocol):
    """What Ref and Fn::GetAtt of a resource give."""

    def ref(self, resource: Resource) -> Any: ...

    def attribute(self, resource: Resource, name: str) -> Any: ...


@value_class
class FunctionSpec:
    """A Lambda function of the template."""

    address: str
    logical_id: str
    name: str
    handler: str
    environment: dict[str, str]
    timeout_seconds: float
    memory_mib: int
    role: str


@value_class
class RuleSpec:
    """An EventBridge rule: a pattern or a schedule, and its targets as written but resolved."""

    name: str
    pattern: dict[str, Any] | None
    schedule: str | None
    targets: list[dict[str, Any]]
    enabled: bool


@value_class
class StateMachineSpec:
    """A state machine with its substitutions made."""

    address: str
    logical_id: str
    name: str
    definition: str


class FakeNames:
    """Stable made-up names, for reading a template where nothing is created."""

    def __init__(self, region: str = "ap-southeast-1", account: str = "123456789012") -> None:
        self._region = region
        self._account = account

    def ref(self, resource: Resource) -> str:
        own = resource.properties.get("Name") or resource.properties.get(f"{resource.type.split('::')[-1]}Name")
        name = own if isinstance(own, str) else resource.logical_id
        if resource.type in ("AWS::SNS::Topic", "AWS::StepFunctions::StateMachine", "AWS::SecretsManager::Secret"):
            return self.arn(resource, name)
        if resource.type.startswith("AWS::EC2::"):
            kind = {"Subnet": "subnet", "SecurityGroup": "sg", "LaunchTemplate": "lt", "VPC": "vpc"}
            prefix = kind.get(resource.type.removeprefix("AWS::EC2::"), "ec2")
            return f"{prefix}-{hashlib.sha256(resource.address.encode()).hexdigest()[:17]}"
        return name

    def attribute(self, resource: Resource, name: str) -> str:
        if name == "Arn" or name.endswith("Arn"):
            ref = str(self.ref(resource))
            return ref if ref.startswith("arn:") else self.arn(resource, ref)
        return {"LatestVersionNumber": "1", "DefaultVersionNumber": "1", "Version": "1"}.get(
            name, f"{resource.logical_id}.{name}"
        )

    def arn(self, resource: Resource, name: str) -> str:
        service = resource.type.split("::")[1].lower()
        return f"arn:aws:{service}:{self._region}:{self._account}:{name}"


@dataclass(slots=True, kw_only=True)
class Template:
    """Stacks that belong together and do not change. Call `named` to resolve against names of your own."""

    stacks: dict[str, dict[str, Any]]
    region: str = "ap-southeast-1"
    account: str = "123456789012"
    parameters: dict[str, str] = field(default_factory=dict)
    names: Names = field(default_factory=FakeNames)
    _exports: dict[str, tuple[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _plain: set[int] = field(default_factory=set, init=False, repr=False, compare=False)
    """The ids of the parts of the stacks that hold no intrinsic function."""

    @classmethod
    def load(cls, source: Path | Iterable[Path], **settings: Any) -> Self:
        """From template files, or from a directory that holds *.template.json (cdk.out)."""
        paths = [source] if isinstance(source, Path) else list(source)
        files = [file for path in paths for file in (sorted(path.glob("*.template.json")) if path.is_dir() else [path])]
        if not files:
            raise TemplateError(f"no *.template.json in {', '.join(map(str, paths))}: run the synth first")
        stacks = {file.name.removesuffix(".template.json"): json.loads(file.read_text()) for file in files}
        return cls(stacks=stacks, **settings)

    def __post_init__(self) -> None:
        for stack in self.stacks.values():
            self._note_plain(stack)

    def _note_plain(self, value: Any) -> bool:
        if type(value) not in (dict, list):
            return True
        names = list(value) if type(value) is dict else []
        parts = [self._note_plain(part) for part in (value.values() if names else value)]
        plain = all(parts) and not any(name == "Ref" or name.startswith("Fn::") for name in names)
        if plain:
            self._plain.add(id(value))
        return plain

    def named(self, names: Names) -> Self:
        self.names = names
        self._exports.clear()
        return self

    def resources(self, *types: str) -> Iterator[Resource]:
        """The resources of these types, or all, in the order of the template."""
        for stack, body in self.stacks.items():
            for logical_id, raw in body.get("Resources", {}).items():
                if (not types or raw["Type"] in types) and self._wanted(stack, raw):
                    yield self.resource(stack, logical_id)

    def resource(self, stack: str, logical_id: str) -> Resource:
        raw = self.stacks[stack].get("Resources", {}).get(logical_id)
        if raw is None:
            raise TemplateError(f"{stack}: no resource, parameter or pseudo parameter {logical_id!r}")
        return Resource(stack=stack, logical_id=logical_id, type=raw["Type"], properties=raw.get("Properties", {}))

    def properties(self, resource: Resource) -> dict[str, Any]:
        resolved: dict[str, Any] = self.resolve(resource.stack, resource.properties)
        return dict(resolved)

    def resolve(self, stack: str, value: Any) -> Any:
        """value with every intrinsic function replaced by what it gives. Parts without one are not copied."""
        if id(value) in self._plain:
            return value
        if type(value) is list:
            found = [item if type(item) is str else self.resolve(stack, item) for item in value]
            return [item for item in found if item is not NO_VALUE]
        if type(value) is not dict:
            return value
        if len(value) == 1:
            (name, argument), *_ = value.items()
            if name == "Ref" or name.startswith("Fn::"):
                return self._intrinsic(stack, name, argument)
        resolved = {key: item if type(item) is str else self.resolve(stack, item) for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item is not NO_VALUE}

    def functions(self) -> list[FunctionSpec]:
        """The functions of this project: those whose handler lies in the handlers package."""
        found = []
        for resource in self.resources("AWS::Lambda::Function"):
            handler = resource.properties.get("Handler", "")
            if not isinstance(handler, str) or not re.match(r"(functions[./])?handlers[./]", handler):
                continue
            properties = self.properties(resource)
            found.append(
                FunctionSpec(
                    address=resource.address,
                    logical_id=resource.logical_id,
                    name=properties.get("FunctionName", resource.logical_id),
                    handler=handler.removeprefix("functions").lstrip("./").replace("/", "."),
                    environment={k: str(v) for k, v in properties.get("Environment", {}).get("Variables", {}).items()},
                    timeout_seconds=float(properties.get("Timeout", 3)),
                    memory_mib=int(properties.get("MemorySize", 128)),
                    role=str(properties.get("Role", "")),
                )
            )
        return found

    def state_machines(self) -> list[StateMachineSpec]:
        return [self._state_machine(resource) for resource in self.resources("AWS::StepFunctions::StateMachine")]

    def rules(self) -> list[RuleSpec]:
        """Rules and EventBridge Scheduler schedules, in one form."""
        rules = [self._rule(resource) for resource in self.resources("AWS::Events::Rule")]
        return rules + [self._schedule(resource) for resource in self.resources("AWS::Scheduler::Schedule")]

    def _state_machine(self, resource: Resource) -> StateMachineSpec:
        properties = self.properties(resource)
        definition = properties.get("DefinitionString")
        if definition is None and "Definition" in properties:
            definition = json.dumps(properties["Definition"])
        if not isinstance(definition, str):
            raise TemplateError(f"{resource.address}: the definition is not in the template")
        substitutions = {k: str(v) for k, v in properties.get("DefinitionSubstitutions", {}).items()}
        text = SUBSTITUTION.sub(lambda match: substitutions.get(match[1], match[0]), definition)
        left = sorted(set(SUBSTITUTION.findall(text)))
        if left:
            raise TemplateError(f"{resource.address}: no substitution for {', '.join(left)}")
        name = properties.get("StateMachineName", resource.logical_id)
        return StateMachineSpec(address=resource.address, logical_id=resource.logical_id, name=name, definition=text)

    def _rule(self, resource: Resource) -> RuleSpec:
        properties = self.properties(resource)
        return RuleSpec(
            name=properties.get("Name", resource.logical_id),
            pattern=properties.get("EventPattern"),
            schedule=properties.get("ScheduleExpression"),
            targets=properties.get("Targets", []),
            enabled=properties.get("State", "ENABLED") == "ENABLED",
        )

    def _schedule(self, resource: Resource) -> RuleSpec:
        properties = self.properties(resource)
        return RuleSpec(
            name=properties.get("Name", resource.logical_id),
            pattern=None,
            schedule=properties["ScheduleExpression"],
            targets=[properties["Target"]],
            enabled=properties.get("State", "ENABLED") == "ENABLED",
        )

    def _wanted(self, stack: str, raw: Mapping[str, Any]) -> bool:
        return "Condition" not in raw or self._condition(stack, raw["Condition"])

    def _condition(self, stack: str, name: str) -> bool:
        return bool(self.resolve(stack, self.stacks[stack]["Conditions"][name]))

    def _intrinsic(self, stack: str, name: str, argument: Any) -> Any:
        if name not in INTRINSICS:
            raise TemplateError(f"{stack}: {name} is not known here")
        return INTRINSICS[name](self, stack, argument)

    def _ref(self, stack: str, name: str) -> Any:
        if name.startswith("AWS::"):
            return self._pseudo(stack, name)
        if name in self.stacks[stack].get("Parameters", {}):
            return self._parameter(stack, name)
        return self.names.ref(self.resource(stack, name))

    def _pseudo(self, stack: str, name: str) -> Any:
        known = {
            "AWS::Region": self.region,
            "AWS::AccountId": self.account,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": stack,
            "AWS::StackId": f"arn:aws:cloudformation:{self.region}:{self.account}:stack/{stack}/0",
            "AWS::NoValue": NO_VALUE,
        }
        if name not in known:
            raise TemplateError(f"{stack}: no resource, parameter or pseudo parameter {name!r}")
        return known[name]

    def _parameter(self, stack: str, name: str) -> Any:
        declared = self.stacks[stack]["Parameters"][name]
        if name in self.parameters:
            return self.parameters[name]
        return FAKE_PARAMETERS.get(declared["Type"], declared.get("Default", ""))

    def _get_att(self, stack: str, argument: Any) -> Any:
        logical_id, _, name = argument.partition(".") if isinstance(argument, str) else (argument[0], ".", argument[1])
        return self.names.attribute(self.resource(stack, logical_id), name)

    def _sub(self, stack: str, argument: Any) -> str:
        text, variables = (argument, {}) if isinstance(argument, str) else (argument[0], argument[1])

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name in variables:
                return str(self.resolve(stack, variables[name]))
            return str(self._get_att(stack, name) if "." in name else self._ref(stack, name))

        return SUBSTITUTION.sub(value, text).replace("${!", "${")

    def _import(self, name: str) -> Any:
        if not self._exports:
            self._exports.update(
                (self.resolve(stack, output["Export"]["Name"]), (stack, output["Value"]))
                for stack, body in self.stacks.items()
                for output in body.get("Outputs", {}).values()
                if "Export" in output
            )
        if name not in self._exports:
            raise TemplateError(f"Fn::ImportValue: no stack exports {name!r}; load all stacks together")
        return self.resolve(*self._exports[name])

    def _stack_output(self, stack: str, name: str) -> Any:
        output = self.stacks.get(stack, {}).get("Outputs", {}).get(name)
        if output is None:
            raise TemplateError(f"Fn::GetStackOutput: stack {stack!r} has no output {name!r}; load all stacks together")
        return self.resolve(stack, output["Value"])

    def _find_in_map(self, stack: str, argument: list[Any]) -> Any:
        table, first, second = (self.resolve(stack, part) for part in argument[:3])
        return self.stacks[stack]["Mappings"][table][first][second]


INTRINSICS: dict[str, Callable[[Template, str, Any], Any]] = {
    "Ref": Template._ref,
    "Fn::GetAtt": Template._get_att,
    "Fn::Join": lambda t, at, a: a[0].join(str(part) for part in t.resolve(at, a[1])),
    "Fn::Sub": Template._sub,
    "Fn::ImportValue": lambda t, at, a: t._import(t.resolve(at, a)),
    "Fn::GetStackOutput": lambda t, at, a: t._stack_output(a["StackName"], a["OutputName"]),
    "Fn::Select": lambda t, at, a: t.resolve(at, a[1])[int(t.resolve(at, a[0]))],
    "Fn::Split": lambda t, at, a: str(t.resolve(at, a[1])).split(a[0]),
    "Fn::If": lambda t, at, a: t.resolve(at, a[1] if t._condition(at, a[0]) else a[2]),
    "Fn::Equals": lambda t, at, a: t.resolve(at, a[0]) == t.resolve(at, a[1]),
    "Fn::And": lambda t, at, a: all(t.resolve(at, a)),
    "Fn::Or": lambda t, at, a: any(t.resolve(at, a)),
    "Fn::Not": lambda t, at, a: not t.resolve(at, a)[0],
    "Fn::GetAZs": lambda t, at, a: [f"{t.region}{zone}" for zone in "abc"],
    "Fn::Base64": lambda t, at, a: base64.b64encode(str(t.resolve(at, a)).encode()).decode(),
    "Fn::FindInMap": Template._find_in_map,
    "Fn::ToJsonString": lambda t, at, a: json.dumps(t.resolve(at, a)),
    "Fn::Cidr": lambda t, at, a: [f"10.0.{number}.0/24" for number in range(int(t.resolve(at, a[1])))],
}
