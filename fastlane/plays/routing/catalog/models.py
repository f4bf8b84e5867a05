"""What is known of each model that a call may be routed to, and of the tasks that calls are for."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING
from fastlane.providers.facts import Accepted, Count, Seconds, Table, Text
from fastlane.providers.files import checked, content_of, explained, parsed
from fastlane.providers.origins import origin_of

from .scores import Score

Capability = Literal["tools", "vision", "json", "json_strict", "reasoning", "audio"]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
"""What a model may be able to do.

- tools: call functions
- vision: read images
- json: answer with some JSON object, where it is asked to
- json_strict: answer with JSON that is valid for a schema for sure
- reasoning: think before it answers, and take a request's `reasoning_effort`
- audio: audio input or output
"""


def _place(value: str) -> str:
    # What is wrong with an address may be a password in it: it is not quoted.
    if "@" in value or "?" in value or "#" in value:
        raise ValueError(f"{_PLACE}, got one with a user, a query or a fragment; keys belong into the environment")
    if origin_of(value) is None:
        raise ValueError(f"{_PLACE}, got something else")
    return value.rstrip("/")


def _variable(value: str) -> str:
    if not (value.isascii() and value.isidentifier()):
        # It may be a key: it is not quoted.
        raise ValueError(
            'expected the name of an environment variable, such as "EXAMPLE_API_KEY", got something else; where it is '
            "a key itself, put that into an environment variable, and its name here"
        )
    return value


def _score(value: Any) -> Score:
    if isinstance(value, Score):
        return value
    if isinstance(value, Mapping) and set(value) == {"passed", "count"}:
        return Score(value["passed"], value["count"])
    raise ValueError("expected a table such as { passed = 41, count = 60 }")


def _by_size(value: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    if len({tokens for tokens, _ in value}) != len(value):
        raise ValueError("expected one pair for each number of tokens")
    return tuple(sorted(value))


def _endpoint(value: str) -> str:
    if value not in GENERATING:  # calls of others are never routed
        raise ValueError(f"expected one of {', '.join(map(repr, sorted(GENERATING)))}")
    return value


# Where people put a key by mistake: what stands there is not quoted.
HIDDEN = frozenset({"api_key_env", "base_url", "api_key"})
_PLACE = 'expected an address such as "https://api.example.com/v1"'

Place = Annotated[str, AfterValidator(_place)]
Variable = Annotated[str, AfterValidator(_variable)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, le=1)]
Money = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Point = Annotated[tuple[Annotated[int, Field(ge=0)], Seconds], Field(strict=False)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]


class _Part(BaseModel):
    """A table of a catalog: what it does not know, it refuses."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    if not TYPE_CHECKING:

        def __init__(self, **data: Any) -> None:
            said = None
            try:
                super().__init__(**data)
            except ValidationError as error:
                name = data.get("name")
                where = f"{type(self).__name__} {name!r}" if isinstance(name, str) else type(self).__name__
                said = explained(error, where, HIDDEN)
            # Outside, so that pydantic's own error, which quotes what came, is nowhere on it.
            if said is not None:
                raise ConfigurationError(said)

        # What is validated as a part of another table is made without it, and its mistakes are named by their keys.
        __init__.__pydantic_base_init__ = True


class ModelPrice(_Part):
    """What 1,000,000 tokens cost, in the catalog's currency."""

    input: Money
    cached_input: Money | None = None
    """Of the prompt, where they are read from the provider's cache; None: as much as others."""
    output: Money

    def of(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0.0) -> float:
        """Return what a call costs. `cached_tokens` are those of the `input_tokens` that were read from the cache."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1_000_000


class Task(_Part):
    """What calls of one kind ask for, where they do not say so themselves, and how long their answers are."""

    min_quality: Number | None = None
    """In the units of the catalog's index."""
    min_pass_rate: Rate | None = None
    """The least share of the task's evaluations that a model has to have passed."""
    output_tokens: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Tokens that an answer usually has: what counts until answers have been seen."""


class CatalogModel(_Part):
    """One model at one provider. Raises ConfigurationError if something of it cannot be."""

    name: Text
    """How records, scores and the application call it: unique in its catalog."""
    model: Text = ""
    """As the provider knows it; where it is not given, the name."""
    provider: str = ""
    """For people."""
    base_url: Place | None = None
    """None: that of the client which makes the call, with its key and its headers."""
    api_key_env: Variable | None = None
    """The name of the environment variable in which the key stands; None: no key is needed, or the client has it."""
    facts: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")] | None = None
    """The slug of the provider facts that hold, where these do not know the base URL."""
    quality: Number | None = None
    """The index: one number for how good it is, in whatever units; None: not known, and below every bar."""
    scores: Table[Annotated[Score, PlainValidator(_score)]] = {}
    """By task: how often it has passed the application's evaluations already."""
    first_token_s: Annotated[tuple[Point, ...], Field(strict=False, min_length=1), AfterValidator(_by_size)]
    """Tokens of a prompt, and seconds to the first token of its answer, by size: what counts until calls were seen."""
    tokens_per_s: Seconds
    """How fast it generates: the same."""
    output_factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """How many times the tokens of others its answers have: more where it thinks aloud."""
    context_tokens: Count | None = None
    """Of prompt and answer together."""
    max_output_tokens: Count | None = None
    capabilities: Annotated[frozenset[Capability], Field(strict=False)] = frozenset()
    """Of `CAPABILITIES`."""
    endpoints: Annotated[tuple[Endpoint, ...], Field(strict=False, min_length=1)] = ("/chat/completions",)
    """Below the base URL."""
    parameters: Table[Accepted] = {}
    """Beyond the provider's facts: False: it refuses such a field; a list: what may stand there."""
    price: ModelPrice | None = None
    source: str = ""
    """Where all this stands."""
    checked: date | None = None
    """When it was checked."""

    def __hash__(self) -> int:
        return hash((self.name, self.model, self.base_url))

    @model_validator(mode="before")
    @classmethod
    def _named_twice(cls, data: Any) -> Any:
        return {"model": data.get("name"), **data} if isinstance(data, dict) and "name" in data else data

    @model_validator(mode="after")
    def _has_its_own_key(self) -> Self:
        if self.api_key_env is not None and self.base_url is None:
            raise ValueError(
                "expected a base_url beside api_key_env, got none: a model without one is asked with the key of the "
                "client that makes the call"
            )
        return self


def _some(value: tuple[CatalogModel, ...]) -> tuple[CatalogModel, ...]:
    if not value:
        raise ValueError("expected at least one model, got none")
    twice = sorted(name for name, count in Counter(model.name for model in value).items() if count > 1)
    if twice:
        raise ValueError(f"expected each model to have a name of its own, got more than one {twice[0]!r}")
    return value


class Catalog(_Part):
    """The models that calls may be routed to. Raises ConfigurationError if something of it cannot be."""

    models: Annotated[tuple[CatalogModel, ...], Field(strict=False), AfterValidator(_some)]
    tasks: Table[Task] = {}
    currency: Text = "USD"
    """Of all prices."""
    snapshot: date | None = None
    """When its figures were taken."""

    if TYPE_CHECKING:
        # Lists become tuples, and tables become what does not change.
        def __init__(
            self,
            *,
            models: Sequence[CatalogModel],
            tasks: Mapping[str, Task] = ...,
            currency: str = ...,
            snapshot: date | None = ...,
        ) -> None: ...

    @model_validator(mode="after")
    def _scores_of_its_tasks(self) -> Self:
        for number, model in enumerate(self.models if self.tasks else ()):
            for task in model.scores:
                if task not in self.tasks:
                    raise ValueError(
                        f'models[{number}] ("{model.name}"): scores: expected one of the catalog\'s tasks '
                        f"({', '.join(map(repr, self.tasks))}), got {task!r}"
                    )
        return self

    @classmethod
    def load(cls, path: str | Path) -> Catalog:
        """Read a TOML file. Raises ConfigurationError: which file, model and key, what was expected, what came."""
        return checked(cls, parsed(content_of(Path(path), "a catalog"), str(path)), str(path), HIDDEN)

    @classmethod
    def example(cls) -> Catalog:
        """Return the one that the package brings: four models, each with its sources; see docs/catalog.md."""
        file = "example.toml"
        return checked(cls, parsed(resources.files(__package__).joinpath(file).read_bytes(), file), file, HIDDEN)

    def named(self, name: str) -> CatalogModel:
        """Return the model of that name. Raises ConfigurationError, which names those that there are."""
        found = self._by_name.get(name)
        if found is None:
            raise ConfigurationError(f"expected the name of a model ({', '.join(self._by_name)}), got {name!r}")
        return found

    def origin_of(self, model: CatalogModel) -> str:
        """Return "scheme://host:port" of a model; "" where it is asked at the client's own base URL."""
        return _origin(model.base_url) if model.base_url is not None else ""

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits that differ where catalogs differ."""
        plain = json.dumps(self.model_dump(warnings=False), default=_plain, sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:8]

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def _by_name(self) -> dict[str, CatalogModel]:
        return {model.name: model for model in self.models}

    def __repr__(self) -> str:
        # A play's repr is its fingerprint in every record: all models would be pages.
        return f"Catalog({len(self.models)} models, digest={self.digest!r})"

    __str__ = __repr__


@lru_cache(maxsize=1_000)
def _origin(base_url: str) -> str:
    found = origin_of(base_url)
    if found is None:
        raise ConfigurationError(f"{_PLACE}, got something else")
    host = f"[{found.host}]" if ":" in found.host else found.host
    return f"{found.scheme}://{host}:{found.port}"


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else str(value)
