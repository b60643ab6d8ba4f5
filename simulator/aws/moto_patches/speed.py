"""Patches that make moto quick: what it works out anew for each request is worked out once."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import functools
import importlib
import marshal
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from botocore.loaders import JSONFileLoader

from simulator.aws.moto_patches import expect, swapped

ASL = "moto.stepfunctions.parser.asl."
CLIENT_MODULES = tuple(
    ASL + "component.state.exec.state_task.service.state_task_service_" + name
    for name in ("aws_sdk", "dynamodb", "events", "sfn", "sns", "sqs", "unsupported")
)
TEXTS_KEPT = 64
ONE_FIELD = re.compile(r"\$\.[A-Za-z_]\w*")
ONLY_FIELDS = re.compile(r"\$(\.[A-Za-z_]\w*)+")
JSONPATH_MODULES = (ASL + "utils.json_path", ASL + "component.common.path.result_path")


@functools.lru_cache(maxsize=32)
def _cached_program(parse: Callable[[str], Any], definition: str) -> Any:
    return parse(definition)


@functools.lru_cache(maxsize=4096)
def _cached_path(parse: Callable[[str], Any], path: str) -> Any:
    return parse(path)


@functools.lru_cache(maxsize=64)
def _cached_client(make: Callable[..., Any], region: str, service: str) -> Any:
    return make(region=region, service=service)


_SCALARS = frozenset({str, int, float, bool, type(None), dt.datetime})


def json_copy(value: Any) -> Any:
    """A deep copy, many times quicker than copy.deepcopy where the value is JSON."""
    if type(value) in _SCALARS:
        return value
    try:
        return marshal.loads(marshal.dumps(value))
    except ValueError:  # an object of another kind is in it
        return copy_by_parts(value)


def copy_by_parts(value: Any) -> Any:
    """A deep copy of lists and dictionaries that shares their texts and numbers."""
    kind: Any = type(value)
    if kind is dict:
        return {key: item if type(item) in _SCALARS else copy_by_parts(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) in _SCALARS else copy_by_parts(item) for item in value]
    if kind in _SCALARS:
        return value
    return copy.deepcopy(value) if _has_its_own_way(kind) else _copy_of_object(value)


@functools.cache
def _has_its_own_way(kind: type) -> bool:
    """Whether copy.deepcopy would do more with it than copy its attributes."""
    reduced = any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce_ex__", "__reduce__"))
    slots = any(getattr(base, "__slots__", ()) for base in kind.__mro__)
    return reduced or slots or hasattr(kind, "__deepcopy__") or not hasattr(kind, "__dict__")


def _copy_of_object(value: Any) -> Any:
    made = object.__new__(type(value))
    made.__dict__.update(copy_by_parts(vars(value)))
    return made


def _same(value: Any) -> Any:
    return value


COPIED: dict[str, Callable[[Any], Any]] = {
    ASL + "eval.states": _same,
    ASL + "eval.environment": copy_by_parts,
    ASL + "component.common.string.string_expression": json_copy,
    ASL + "component.common.path.result_path": _same,
    ASL + "component.state.exec.execute_state": list,
}
"""By module: what stands for copy.deepcopy. Only a ResultPath writes into a payload, and it writes into a copy of its
own, so that payloads are shared; the context object, which changes, is copied.
"""


_texts: dict[int, tuple[Any, str]] = {}
"""By a payload's id: its text, and the payload itself, so that no other gets its id."""


def keep_text(payload: Any, text: str) -> str:
    """The text of a payload, which is asked for again: a state's input is the output of the one before."""
    if len(_texts) >= TEXTS_KEPT:
        _texts.clear()
    _texts[id(payload)] = payload, text
    return text


def _cached_texts(dump: Callable[..., str]) -> Callable[..., str]:
    """Whatever the separators that moto asks for: all events of a payload have the text that its function wrote."""

    def text_of(value: Any, *, separators: Any, **options: Any) -> str:
        known = _texts.get(id(value))
        return known[1] if known else keep_text(value, dump(value, **options))

    return text_of


def _joined_texts(is_within: Callable[[Any], bool], text_of: Callable[[Any], str]) -> Callable[[Any], bool]:
    """The size of the answer of Invoke, from the text of its payload, which the next event has as well."""

    def is_within_size_quota(value: Any) -> bool:
        if not (isinstance(value, dict) and "Payload" in value):
            return is_within(value)
        members = (f"{text_of(name)}: {text_of(item)}" for name, item in value.items())
        return is_within("{" + ", ".join(members) + "}")

    return is_within_size_quota


def _shared_input(get_input: Callable[..., Any]) -> Callable[..., Any]:
    """The whole input of a state as it is."""

    def whole(states: Any, query: str | None = None) -> Any:
        return states._states_data["input"] if query is None else get_input(states, query)

    return whole


def _copied(read: Callable[..., Any]) -> Callable[..., Any]:
    """What it answers, as a copy."""
    return lambda *arguments: json_copy(read(*arguments))


def _shared_path(module: Any) -> Callable[..., None]:
    """The value at a path in a payload, without a copy."""
    extract = expect(module, "extract_json", "path", "data")

    def evaluate(this: Any, env: Any) -> None:
        given = value = env.stack[-1]
        names = _field_names(this.json_path)
        for name in names or ():
            value = value.get(name, _MISSING) if type(value) is dict else _MISSING
        env.stack.append(extract(this.json_path, given) if names is None or value is _MISSING else value)

    return evaluate


_MISSING = object()


@functools.lru_cache(maxsize=4096)
def _field_names(path: str) -> tuple[str, ...] | None:
    """The names in a path of fields alone, none for the whole payload; None for another path."""
    if path == "$" or ONLY_FIELDS.fullmatch(path):
        return tuple(path.split(".")[1:])
    return None


def _copy_of_machine(machine: Any, memo: Any) -> Any:
    """The copy that an execution keeps. An update replaces attributes and changes none, so that both may share them."""
    made = copy.copy(machine)
    made.executions = []
    return made


def _own_input(evaluate: Callable[..., None]) -> Callable[..., None]:
    """A ResultPath writes into a copy: who has seen the input of the state keeps it as it was."""

    def evaluate_copy(path: Any, env: Any) -> None:
        if path.result_path_src not in (None, "$"):  # these two write nothing into the input
            given = env.states._states_data["input"]
            one_field = type(given) is dict and ONE_FIELD.fullmatch(path.result_path_src)
            env.states._states_data["input"] = dict(given) if one_field else json_copy(given)
        evaluate(path, env)

    return evaluate_copy


@contextlib.contextmanager
def quick_interpreter() -> Iterator[None]:
    """A definition is parsed once, a JSONPath once, a client made once; payloads are shared and written once."""
    parser = importlib.import_module(ASL + "parse.asl_parser").AmazonStateLanguageParser
    clients = importlib.import_module(ASL + "utils.boto_client")
    parse = expect(parser, "parse", "definition")
    make = expect(clients, "boto_client_for", "region", "service", "state_credentials")

    def client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        return _cached_client(make, region, service)

    with contextlib.ExitStack() as stack:
        cached = staticmethod(functools.partial(_cached_program, parse))
        stack.enter_context(swapped(parser, "parse", cached))
        for module in map(importlib.import_module, CLIENT_MODULES):
            stack.enter_context(swapped(module, "boto_client_for", client_for))
        for module in map(importlib.import_module, JSONPATH_MODULES):
            path = expect(module, "parse")
            stack.enter_context(swapped(module, "parse", functools.partial(_cached_path, path)))
        encoding = importlib.import_module(ASL + "utils.encoding")
        expect(encoding, "to_json_str", "obj", "separators")
        texts = _cached_texts(expect(encoding.json, "dumps"))
        stack.enter_context(swapped(encoding, "json", SimpleNamespace(dumps=texts)))
        task = importlib.import_module(ASL + "component.state.exec.state_task.state_task_lambda")
        within = _joined_texts(expect(task, "is_within_size_quota", "value"), encoding.to_json_str)
        stack.enter_context(swapped(task, "is_within_size_quota", within))
        states = importlib.import_module(ASL + "eval.states").States
        stack.enter_context(swapped(states, "get_input", _shared_input(expect(states, "get_input", "self", "query"))))
        for name in ("get_context", "extract"):
            stack.enter_context(swapped(states, name, _copied(expect(states, name, "self", "query"))))
        strings = importlib.import_module(ASL + "component.common.string.string_expression")
        stack.enter_context(swapped(strings.StringJsonPath, "_eval_body", _shared_path(strings), "self", "env"))
        result = importlib.import_module(ASL + "component.common.path.result_path").ResultPath
        stack.enter_context(swapped(result, "_eval_body", _own_input(expect(result, "_eval_body", "self", "env"))))
        models = importlib.import_module("moto.stepfunctions.parser.models")
        expect(models.copy, "deepcopy")
        stack.enter_context(swapped(models, "copy", SimpleNamespace(deepcopy=_copy_of_machine)))
        for name, copied in COPIED.items():
            module = importlib.import_module(name)
            expect(module.copy, "deepcopy")
            stack.enter_context(swapped(module, "copy", SimpleNamespace(deepcopy=copied)))
        yield


@functools.cache
def _model(load: Callable[[JSONFileLoader, str], Any], path: str) -> Any:
    return load(JSONFileLoader(), path)


@contextlib.contextmanager
def shared_models() -> Iterator[None]:
    """The model of a service is read once: each session of botocore, and moto, keep their own, 20 MiB for EC2 alone."""
    load = expect(JSONFileLoader, "load_file", "self", "file_path")
    with swapped(JSONFileLoader, "load_file", lambda _, file_path: _model(load, file_path)):
        yield


@contextlib.contextmanager
def quick_start() -> Iterator[None]:
    """moto starts without handlers for the methods of HTTP that no caller uses: 150 for each, at every start."""
    models = importlib.import_module("moto.core.models")
    expect(models, "RESPONSES_METHODS")
    with swapped(models, "RESPONSES_METHODS", ["GET", "POST"]):
        yield


def forget_ec2() -> None:
    """Drop EC2's regions, before moto ends and after it.

    A reset makes the default network of each region once more. The reset of another service may make a region again,
    which no later reset finds.
    """
    importlib.import_module("moto.ec2.models").ec2_backends.clear()


_attributes: dict[Any, tuple[str, ...]] = {}
"""By the kind of an object and a field of an answer: the attributes that may hold the field."""


@functools.lru_cache(maxsize=8)
def _private_key(make: Callable[..., Any], *arguments: Any) -> Any:
    return make(*arguments)


@contextlib.contextmanager
def quick_dispatch() -> Iterator[None]:
    """What moto works out anew, worked out once: methods, a reply's fields, an item's size, the keys of SNS and KMS."""
    responses = importlib.import_module("moto.core.responses")
    picker = importlib.import_module("moto.core.serialize").XFormedAttributePicker
    names = expect(responses, "method_names_from_class", "clazz")
    keys = expect(picker, "get_possible_keys", "self", "context")
    subscription = importlib.import_module("moto.sns.models").Subscription
    new_key = expect(subscription, "private_key", "self").__wrapped__
    kms = importlib.import_module("moto.kms.models")
    disk_key = expect(kms, "generate_private_key", "key_spec")
    offerings = importlib.import_module("moto.ec2.models.instance_types").InstanceTypeOfferingBackend
    matches = expect(offerings, "matches_filters", "self", "offering", "filters", "location_type")
    items = importlib.import_module("moto.dynamodb.models.dynamo_type")
    expect(items.LimitedSizeDict, "__setitem__", "self", "key", "value")

    def possible_keys(this: Any, context: Any) -> tuple[str, ...]:
        shape = context.shape
        asked = (type(context.obj), shape, getattr(shape, "parent", None), context.key)
        if asked not in _attributes:
            _attributes[asked] = tuple(dict.fromkeys(keys(this, context)))
        return _attributes[asked]

    def matches_filters(this: Any, offering: Any, filters: Any, location_type: str) -> bool:
        if filters.keys() == {"instance-type"}:  # each RunInstances asks this for 800 types
            return offering["InstanceType"] in filters["instance-type"]
        return bool(matches(this, offering, filters, location_type))

    def make_item(this: Any, hash_key: Any, range_key: Any, attrs: dict[str, Any]) -> None:
        """moto adds up the size of the whole item for each attribute: here once, with the last one."""
        this.hash_key, this.range_key, this.attrs = hash_key, range_key, items.LimitedSizeDict()
        for place, (name, value) in enumerate(attrs.items(), start=1):
            put = dict.__setitem__ if place < len(attrs) else items.LimitedSizeDict.__setitem__
            put(this.attrs, name, items.DynamoType(value))

    with (
        swapped(items.Item, "__init__", make_item, "self", "hash_key", "range_key", "attrs"),
        swapped(responses, "method_names_from_class", functools.lru_cache(maxsize=None)(names)),
        swapped(picker, "get_possible_keys", possible_keys),
        swapped(offerings, "matches_filters", matches_filters),
        swapped(subscription, "private_key", lambda _: _private_key(new_key, None)),
        swapped(kms, "generate_private_key", functools.partial(_private_key, disk_key)),
    ):
        yield
