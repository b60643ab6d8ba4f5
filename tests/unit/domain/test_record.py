"""A record behaves as the dataclass with the same arguments does, and costs a start far less."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.record import field, record
from node_fleet.payload import from_payload, to_payload

NOTHING: list[str] = []


@record(frozen=True, slots=True, kw_only=True)
class Part:
    """A frozen record."""

    name: str
    count: int = 1
    share: float | None = None
    marks: dict[str, int] = field(default_factory=dict)


@record(slots=True)
class Basket:
    """A record that changes, filled by position."""

    owner: str
    parts: list[Part] = field(default_factory=list)
    note: str = field(default="", kw_only=True)


@record(frozen=True, slots=True, kw_only=True)
class One:
    """A single field."""

    value: Any


@record(frozen=True, slots=True, kw_only=True)
class Undocumented:
    value: int = 0


class Twins:
    """The same class twice: as a record and as a dataclass, under one name."""

    def __init__(self, annotations: dict[str, Any], defaults: dict[str, Any], **arguments: Any) -> None:
        def body() -> type:
            space = {"__module__": __name__, "__doc__": "A twin.", "__annotations__": dict(annotations), **defaults}
            return type("Twin", (), space)

        made: Any = record
        self.ours = made(slots=True, **arguments)(body())
        self.theirs = dataclasses.dataclass(slots=True, **arguments)(body())

    def same(self, action: Any) -> None:
        """Both answer alike, or both refuse with the same words."""
        assert _answer(action, self.ours) == _answer(action, self.theirs)


def _answer(action: Any, cls: type) -> Any:
    try:
        return action(cls)
    except Exception as error:
        return type(error), str(error)


FIELDS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3) | st.none(), max_size=5)
VALUES = st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 2), max_size=6)


@given(FIELDS, VALUES, VALUES, st.booleans(), st.booleans())
def test_a_record_answers_and_refuses_as_the_dataclass_does(
    fields: dict[str, int | None], first: dict[str, int], second: dict[str, int], frozen: bool, kw_only: bool
) -> None:
    ordered = dict(sorted(fields.items(), key=lambda item: item[1] is not None))  # those with defaults come last
    defaults = {name: default for name, default in ordered.items() if default is not None}
    twins = Twins(dict.fromkeys(ordered, "int"), defaults, frozen=frozen, kw_only=kw_only)
    twins.same(lambda cls: repr(cls(**first)))
    twins.same(lambda cls: repr(cls(*first.values())))
    twins.same(lambda cls: cls(**first) == cls(**second))
    twins.same(lambda cls: hash(cls(**first)))
    twins.same(lambda cls: {cls(**first): 1}[cls(**second)])
    twins.same(lambda cls: dataclasses.asdict(dataclasses.replace(cls(**first), **second)))
    twins.same(lambda cls: repr(copy.deepcopy(cls(**first))))
    known = {name: value for name, value in second.items() if name in fields}  # for others 3.11's has a TypeError
    twins.same(lambda cls: repr(_changed(cls(**first), known)))
    twins.same(lambda cls: repr(_deleted(cls(**first), known)))
    twins.same(lambda cls: (cls.__slots__, cls.__match_args__, cls.__doc__, str(inspect.signature(cls))))
    twins.same(lambda cls: get_type_hints(cls.__init__))
    twins.same(lambda cls: repr(cls.__dataclass_params__))


def _changed(value: Any, changes: dict[str, int]) -> Any:
    for name, to in changes.items():
        setattr(value, name, to)
    return value


def _deleted(value: Any, names: dict[str, int]) -> Any:
    for name in names:
        delattr(value, name)
    return dataclasses.is_dataclass(value)


def test_a_frozen_record_cannot_be_changed() -> None:
    part = Part(name="wheel")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'count'"):
        part.count = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'count'"):
        del part.count
    assert part.count == 1


def test_a_record_has_slots_only() -> None:
    assert Part.__slots__ == ("name", "count", "share", "marks")
    assert not hasattr(Basket("ann"), "__dict__")
    with pytest.raises(AttributeError):
        Basket("ann").colour = "red"  # type: ignore[attr-defined]


def test_records_are_equal_within_one_class_only() -> None:
    @record(frozen=True, slots=True, kw_only=True)
    class Other:
        value: Any

    assert One(value=1) == One(value=1)
    assert One(value=1) != One(value=2)
    assert One(value=1) != Other(value=1)
    assert One(value=1) != (1,)


def test_a_value_that_equals_nothing_is_the_same_in_the_same_record() -> None:
    """As in a dataclass, whose fields are compared as a tuple."""
    nan = float("nan")
    assert One(value=nan) == One(value=nan)


def test_a_changing_record_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'Basket'"):
        hash(Basket("ann"))


def test_every_default_of_a_factory_is_new() -> None:
    first, second = Basket("ann"), Basket("bob")
    first.parts.append(Part(name="wheel"))
    assert second.parts == []


def test_a_missing_an_unknown_and_a_positional_argument_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Part.__init__\(\) missing 1 required keyword-only argument: 'name'"):
        Part()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Part.__init__\(\) got an unexpected keyword argument 'nmae'"):
        Part(nmae="wheel")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional argument"):
        Part("wheel")  # type: ignore[misc]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize("value", [Part(name="wheel", marks={"a": 1}), Basket("ann", [Part(name="hub")], note="x")])
def test_a_record_can_be_copied_and_pickled(value: Any, again: Any) -> None:
    assert again(value) == value
    assert again(value) is not value


def test_a_record_goes_through_the_payload() -> None:
    part = Part(name="wheel", share=0.5, marks={"a": 1})
    assert from_payload(Part, to_payload(part)) == part


def test_a_record_that_holds_itself_can_be_shown() -> None:
    basket = Basket("ann")
    basket.parts.append(basket)  # type: ignore[arg-type]
    assert repr(basket) == "Basket(owner='ann', parts=[...], note='')"


def test_a_record_can_be_matched_by_position() -> None:
    match Basket("ann"):
        case Basket(owner, parts):
            assert (owner, parts) == ("ann", [])
        case _:
            pytest.fail("a basket matches")


def test_post_init_runs() -> None:
    @record(frozen=True, slots=True, kw_only=True)
    class Checked:
        count: int

        def __post_init__(self) -> None:
            if self.count < 0:
                raise ValueError("count is negative")

    assert Checked(count=1).count == 1
    with pytest.raises(ValueError, match="negative"):
        Checked(count=-1)


def test_init_is_compiled_once_there_are_many_values() -> None:
    first = Undocumented(value=3)
    assert not inspect.isfunction(vars(Undocumented)["__init__"])
    later = [Undocumented(value=3) for _ in range(1000)]
    assert inspect.isfunction(vars(Undocumented)["__init__"])
    assert {first, *later} == {Undocumented(value=3)}


def test_a_wrong_call_is_told_alike_before_and_after() -> None:
    @record(frozen=True, slots=True, kw_only=True)
    class Counted:
        count: int

    for _ in range(2):
        with pytest.raises(TypeError, match=r"Counted.__init__\(\) missing 1 required keyword-only argument: 'count'"):
            Counted()  # type: ignore[call-arg]
    assert [Counted(count=n).count for n in range(1000)] == list(range(1000))


def _with_class_variable() -> type:
    @record(frozen=True, slots=True, kw_only=True)
    class Wrong:
        known: ClassVar[list[str]] = NOTHING

    return Wrong


def _with_hidden_field() -> type:
    @record(frozen=True, slots=True, kw_only=True)
    class Wrong:
        password: str = dataclasses.field(default="", repr=False)

    return Wrong


def _with_own_repr() -> type:
    @record(frozen=True, slots=True, kw_only=True)
    class Wrong:
        def __repr__(self) -> str:
            return "wrong"

    return Wrong


def _with_frozen_parent() -> type:
    @record(frozen=True, slots=True, kw_only=True)
    class Wrong(Part):
        colour: str = ""

    return Wrong


@pytest.mark.parametrize("define", [_with_class_variable, _with_hidden_field, _with_own_repr, _with_frozen_parent])
def test_what_a_record_does_not_offer_is_refused_where_it_is_written(define: Any) -> None:
    with pytest.raises(TypeError):
        define()
