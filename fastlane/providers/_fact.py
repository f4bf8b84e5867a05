"""What one fact is: a value, where that stands, and when somebody looked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

Evidence = Literal["documented", "source code", "reported", "measured", "not found"]


class FrozenMapping(Mapping[str, V_co]):
    """What a `dict` holds, for good: facts are shared by all clients of a process."""

    __slots__ = ("_items",)
    _items: dict[str, Any]

    def __init__(self, items: Mapping[str, V_co]) -> None:
        object.__setattr__(self, "_items", dict(items))

    def __getitem__(self, key: str) -> V_co:
        found: V_co = self._items[key]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: make another one")

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return type(self), (self._items,)


def frozen(value: Any) -> Any:
    """Return `value` with tuples where it has lists: TOML has no other sequence, and a fact does not change."""
    return tuple(frozen(one) for one in value) if isinstance(value, list | tuple) else value


def _readable(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("expected a text that is not empty")
    return value


def _address(value: str) -> str:
    if not value.startswith(("https://", "http://")) or any(letter.isspace() for letter in value):
        raise ValueError('expected one address that begins with "https://"')
    return value


def _endpoint(value: str) -> str:
    if not value.startswith("/") or value.endswith("/"):
        raise ValueError('expected a path below the base URL, such as "/chat/completions"')
    if re.match(r"/v\d+/", value):
        raise ValueError('expected a path below the base URL, such as "/chat/completions": leave the version out')
    return value


def _accepted(value: Any) -> Any:
    value = frozen(value)
    if isinstance(value, bool) or value == "ignored":
        return value
    if isinstance(value, tuple) and value and all(isinstance(one, bool | str | int) for one in value):
        return value
    raise ValueError(
        'expected true (accepted), false (refused), "ignored" (accepted without effect), or a list of what it may be'
    )


Text = Annotated[str, AfterValidator(_text)]
Address = Annotated[str, AfterValidator(_address)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
Texts = tuple[Text, ...]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Unit = Literal["ms", "s"]
ProviderPhase = Literal["queue", "prefill", "decode", "total"]
Tokens = Literal[
    "input",
    "cached",
    "cache_write",
    "cache_miss",
    "output",
    "reasoning",
    "accepted_prediction",
    "rejected_prediction",
    "total",
]
Table = Annotated[Mapping[str, V], BeforeValidator(_readable), AfterValidator(FrozenMapping)]
# mypy cannot say that a mapping's keys are texts of a kind; pydantic checks them.
ByEndpoint = Annotated[Mapping[Endpoint, V], BeforeValidator(_readable), AfterValidator(FrozenMapping)]
ByTokens = Annotated[Mapping[Tokens, Text], BeforeValidator(_readable), AfterValidator(FrozenMapping)]
Accepted = Annotated[bool | Literal["ignored"] | tuple[bool | str | int, ...], PlainValidator(_accepted)]


class Part(BaseModel):
    """A table of a file: what it does not know, it refuses."""

    # Strict: a file in which a number is written as a text has a mistake, and the next reader may not be as lenient.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Fact(Part, Generic[T]):
    """One thing that is known of a provider, where that stands, and when somebody looked.

    `evidence` is "documented" (by the provider), "source code" (of its SDK or server), "reported" (by a user or a third
    party), "measured" (by fastlane, against the real server) or "not found": looked for in vain, and then there is no
    `value`.
    """

    value: T | None = None
    source: Address | None = None
    checked: date
    evidence: Evidence
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: Any) -> Any:
        # A fact made as `Fact(...)`, without saying of what, is checked where it is put.
        if isinstance(data, Fact):
            return data if isinstance(data, cls) else data.written()
        return {**data, "value": frozen(data["value"])} if isinstance(data, dict) and "value" in data else data

    @model_validator(mode="after")
    def _supported(self) -> Fact[T]:
        if self.evidence == "not found":
            if self.value is not None:
                raise ValueError('expected no value, because evidence = "not found" says that there is none')
            if not self.note:
                raise ValueError("expected a note that says what was looked for and not found")
        elif self.value is None:
            raise ValueError('expected a value, or evidence = "not found"')
        elif self.source is None:
            raise ValueError("expected a source: the address of the page that says so")
        return self

    def __repr_name__(self) -> str:
        return "Fact"

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        # `Fact[bool]` is a class without a name in any module, and cannot be pickled; `Fact` can.
        return Fact.model_validate, (self.written(),)

    def written(self) -> dict[str, Any]:
        """Return what it was made of: its fields without those that say nothing."""
        return {name: value for name in Fact.model_fields if (value := getattr(self, name)) not in (None, "")}
