"""The settings of an emulated provider: its speed, limits, tiers, prompt cache, batches, dialect and faults as text."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeAlias, cast, get_args, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from ..engine.settings import Texts, settings
from ..errors import ConfigurationError

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Seconds: TypeAlias = Annotated[float, Field(ge=0)]
Positive: TypeAlias = Annotated[float, Field(gt=0)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Whole: TypeAlias = Annotated[int, Field(ge=0)]


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


class Settings:
    """What all settings have: a form as JSON. A value that cannot work is a ConfigurationError."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Make settings of what `to_json` returns, or of a part of it. Raises ConfigurationError."""
        return cls._checked("validate_json", as_json(values))

    @classmethod
    def _checked(cls, method: str, given: Any) -> Self:
        try:
            made: Self = getattr(_adapter(cast(Any, cls)), method)(given)
        except ValidationError as error:
            wrong = error.errors()[0]
            name = ".".join(str(part) for part in wrong["loc"])
            where = f"{cls.__name__}: {name}" if name else cls.__name__
            known = ""
            if wrong["type"] == "unexpected_keyword_argument":
                owner = _owner_of(cls, wrong["loc"])
                known = f"; its settings are {', '.join(one.name for one in dataclasses.fields(owner))}"
            raise ConfigurationError(f"{where}: {wrong['msg'].removeprefix('Value error, ')}{known}") from error
        return made

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return the settings with other values; of a mapping only the named entries change, and None removes one.

        Raises ConfigurationError.
        """
        return self.from_json(_merged(self.to_json(), json.loads(as_json(values))))


def _owner_of(cls: type[Settings], location: Sequence[int | str]) -> Any:
    """Return the class of the settings in which pydantic found something at this location."""
    owner: Any = cls
    for part in location[:-1]:
        hint = get_type_hints(owner).get(str(part))  # None for a key of a mapping
        owner = next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))), owner)
    return owner


def as_json(values: Mapping[str, Any]) -> str:
    """Write values of settings, and settings inside of them, as JSON. Raises ConfigurationError."""
    try:
        return json.dumps(
            values, default=lambda one: dict(one) if isinstance(one, Mapping) else dataclasses.asdict(one)
        )
    except TypeError as error:
        raise ConfigurationError(f"settings take JSON values: {error}") from error


def _merged(values: Any, changes: Any) -> Any:
    if not isinstance(values, dict) or not isinstance(changes, dict):
        return changes
    merged = {**values, **{name: _merged(values.get(name), change) for name, change in changes.items()}}
    return {name: value for name, value in merged.items() if value is not None}


class TextSettings(Settings):
    """Settings with a `kind` that can be written as text: `kind[=value][;name=value…]`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text, e.g. `status=429;retry_after=0.2`. Raises ConfigurationError."""
        kind, *parts = text.split(";")
        kind, equals, value = kind.partition("=")
        pairs = [("kind", kind), *([("value", value)] if equals else []), *(part.partition("=")[::2] for part in parts)]
        given = {name.strip(): value.strip() for name, value in pairs if name.strip()}
        return cls._checked("validate_strings", given)

    def __str__(self) -> str:
        """Write them as `parse` reads them."""
        text = ""
        value: Any
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != field.default:
                value = int(value) if isinstance(value, float) and value.is_integer() else value
                text += {"kind": str(value), "value": f"={value}"}.get(field.name, f";{field.name}={value}")
        return text


@settings
class Quantiles(Settings):
    """A distribution as points (share, value) joined by straight lines, rising from share 0 to share 1.

    Raises ConfigurationError if they do not.
    """

    points: Annotated[tuple[Annotated[tuple[Share, Seconds], Field(strict=False)], ...], Field(strict=False)] = (
        dataclasses.field(kw_only=False)
    )

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        rises = all(after[0] > before[0] and after[1] >= before[1] for before, after in pairwise(self.points))
        if len(shares) < 2 or shares[0] != 0.0 or shares[-1] != 1.0 or not rises:
            raise ConfigurationError(f"quantile points must rise from share 0 to share 1, got {self.points}: sort them")

    @classmethod
    def from_quartiles(cls, p25: float, p50: float, p75: float) -> Quantiles:
        """Return a distribution with these quartiles and tails as long as a normal curve's.

        The lower tail never falls below half of `p25`.
        """
        floor, below, above = p25 / 2, p50 - p25, p75 - p50
        # A normal curve's P5 lies 1.44 times as far from its P25 as the median does, and its P0.3 about 3 times as far.
        low = ((0.0, max(floor, p25 - 3.0 * below)), (0.05, max(floor, p25 - 1.44 * below)), (0.25, p25))
        return cls((*low, (0.5, p50), (0.75, p75), (0.95, p75 + 1.44 * above), (1.0, p75 + 3.0 * above)))

    def at(self, share: float) -> float:
        """Return the value that a share (0 to 1) of all draws does not exceed."""
        index = min(max(1, bisect_left(self.points, (share,))), len(self.points) - 1)
        (low_share, low), (high_share, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (share - low_share) / (high_share - low_share)


@settings
class KeyRateLimits(Settings):
    """What one API key may ask of one model in a minute.

    A request counts when it comes: as one request, and as the tokens of its prompt with those that its own limit lets
    it generate. Over a limit it gets a 429 with OpenAI's headers. A refused request counts as a request too:
    "unsuccessful requests contribute to your per-minute limit" (https://help.openai.com/en/articles/5955604-how-can-i-so).
    """

    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    window: Literal["bucket", "fixed", "quantized"] = "bucket"
    """`bucket` refills evenly; `fixed` windows of a minute begin with the first request; `quantized` is a bucket of
    which each second gives its share only, 1 request a second for 60 a minute."""
    burst: Positive = 1.0
    """How much a bucket holds: 1.0 is all of a minute's limit."""


@settings
class ServiceTier(Settings):
    """One service tier."""

    time_factor: Positive = 1.0
    """Multiplies prefill and decode times."""
    rank: int = 1
    """A higher rank leaves the queue first."""
    exhausted: Share = 0.0
    """The share of its requests that are refused: 429, `resource_unavailable`."""
    retry_after_s: Positive | None = None
    """`retry-after` of a refusal; None: no header."""


STANDARD_TIERS: Mapping[str, ServiceTier] = MappingProxyType(
    {
        "default": ServiceTier(time_factor=1.0, rank=1),
        "priority": ServiceTier(time_factor=0.6, rank=2),
        "flex": ServiceTier(time_factor=1.8, rank=0),
    }
)


@settings
class BatchSettings(Settings):
    """How batches are processed: by default as fast as this machine can.

    Which lines a share concerns follows from seed, batch and `custom_id`: a failed line may pass in another batch.
    Raises ConfigurationError if the shares are above 1 together.
    """

    duration_s: Seconds = 0.0
    """How long the lines of one batch take together, however many they are."""
    expires_after_s: Seconds = 86_400.0
    """The completion window as it is kept; requests name it `24h` all the same."""
    server_error_share: Share = 0.0
    """Lines that fail with 500."""
    rate_limited_share: Share = 0.0
    """Lines that fail with 429."""
    timeout_share: Share = 0.0
    """Lines without a response, whose error has the code `request_timeout`."""
    missing_share: Share = 0.0
    """Lines that are done, and are in neither file."""
    enqueued_tokens: Whole | None = None
    """The most prompt tokens of all unfinished batches of one model; a batch past it fails."""
    listing_delay_s: Seconds = 0.0
    """After how long a new file or batch shows in its list, which is eventually consistent."""
    missing_file_fails_late: bool = False
    """A batch of a missing file is created, and fails; otherwise it is refused with 400."""

    def __post_init__(self) -> None:
        if self.server_error_share + self.rate_limited_share + self.timeout_share + self.missing_share > 1:
            raise ConfigurationError("the shares of lines must not be above 1 together")


# They frame a response, or identify its record in the log.
_RESERVED = frozenset({"connection", "content-length", "content-type", "transfer-encoding", "x-request-id"})


@settings
class Dialect(Settings):
    """How one server differs from another. Raises ConfigurationError for a reserved header."""

    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Headers of every response; an empty value leaves out one that the emulator would send by itself
    (`openai-processing-ms`, `cache-control`)."""
    owned_by: str = "emulator"
    """Of every model that `GET /models` lists."""
    accepted_encodings: Annotated[tuple[Literal["json", "msgpack", "gzip"], ...], Field(strict=False)] = (
        "json", "msgpack", "gzip",
    )  # fmt: skip
    """The encodings of request bodies that are accepted; others get a 415."""
    initial_window_bytes: Annotated[int, Field(ge=1, le=2**31 - 1)] = 16 * 1_048_576
    """SETTINGS_INITIAL_WINDOW_SIZE of HTTP/2, so large by default that no upload ever waits for it."""
    max_concurrent_streams: Count = 100
    cached_tokens_path: Annotated[
        str,
        Field(
            pattern=r"^(standard|none|usage(\.[A-Za-z_]\w*)+)$",
            description="'standard', 'none' or a path like 'usage.prompt_cache_hit_tokens'",
        ),
    ] = "standard"
    """Where the usage counts cached tokens: `standard` as OpenAI has it, `none`, or a path that begins with `usage.`"""
    structured_outputs: bool = True
    """False: `response_format` and `text.format` are ignored, and the answer is prose."""
    refused_fields: Texts = ()
    """Fields of a body with which a request is refused (400), as by servers that do not know a field."""

    def __post_init__(self) -> None:
        if reserved := [name.lower() for name in self.headers if name.lower() in _RESERVED]:
            raise ConfigurationError(f"header {reserved[0]!r} is the emulator's own: leave it out")

    def with_headers(self, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return a response's headers: this dialect's replace its own of the same name."""
        headers = dict(own) | {name.lower(): value for name, value in self.headers.items()}
        return [(name, value) for name, value in headers.items() if value]


MANNERS = (
    "exact", "whitespace", "prose", "second", "fence", "talkative", "wrong_enum", "truncated", "echo", "tools",
)  # fmt: skip
"""How a model may write an answer: docs/emulator.md says what each does."""
RUNNING_ON = ("whitespace", "prose", "second")


@settings
class Manner(TextSettings):
    """One habit of a model: `share` of the answers have it, and `repairs` of re-asked ones.

    `tokens` is how far it runs on or thinks aloud; None: up to the limit of the request or of the model.
    """

    kind: str
    share: Share = 1.0
    repairs: Share = 0.0
    tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    def __post_init__(self) -> None:
        if self.kind not in MANNERS:
            raise ConfigurationError(f"unknown manner {self.kind!r}: the known ones are {', '.join(MANNERS)}")


@lru_cache(maxsize=256)
def parse_manners(text: str) -> tuple[Manner, ...]:
    """Read a comma-separated list of manners; none is exact. Raises ConfigurationError."""
    manners = tuple(Manner.parse(part) for part in text.split(",") if part.strip())
    running_on = [manner.kind for manner in manners if manner.kind in RUNNING_ON and manner.share == 1]
    if len(running_on) > 1:
        raise ConfigurationError(
            f"a model can run on in one way only, got {' and '.join(running_on)}: give each a share below 1"
        )
    return manners


@settings
class ProviderModel(Settings):
    """How one emulated provider behaves. Raises ConfigurationError for a setting that cannot work.

    A request waits for one of `concurrency` places, then prefills for `prefill_base_s` (drawn per request) plus
    `prefill_s_per_token` for every token that the prompt cache does not hold, then sends a token every
    `inter_token_s` (drawn once per request), each gap varied by up to ±`inter_token_jitter` of itself. With the chance
    `late_share` a request is late: its prefill takes `late_factor` times as long.
    """

    name: str = "custom"
    prefill_base_s: Quantiles | Seconds = 0.0
    prefill_s_per_token: Seconds = 0.0
    inter_token_s: Quantiles | Seconds = 0.0
    inter_token_jitter: Share = 0.0
    late_share: Share = 0.0
    late_factor: Annotated[float, Field(ge=1)] = 20.0
    concurrency: Count = 1_024
    queue_places: Whole | None = None
    """How many requests may wait for one of the `concurrency` places; more are a 503. None: any number, 0: none."""
    rate_limits: KeyRateLimits | None = None
    """What each API key may ask of each model; None: any number."""
    model_rate_limits: Mapping[str, KeyRateLimits] = dataclasses.field(default_factory=dict)
    """The same for single models, by their names."""
    prompt_cache: bool = True
    cache_expiry_s: Seconds = 300.0
    cache_machines: Count = 1
    cache_requests_per_key_per_minute: Seconds = 0
    """How many requests one machine takes for a prefix and its key before more are spread; 0: any number. OpenAI
    documents about 15."""
    service_tiers: Mapping[str, ServiceTier] = dataclasses.field(default_factory=lambda: dict(STANDARD_TIERS))
    """By name; `auto`, an unknown tier and none are served as `default`."""
    default_output_tokens: Count = 64
    reasoning_tokens: Whole = 32
    context_window_tokens: Count = 1_000_000
    models: Texts = ()
    """The model names served; others get a 404. Empty: every name is served."""
    manner: str = "exact"
    """How it writes structured answers: `kind[;share=…]`, several separated by commas."""
    run_on_tokens: Count = 4_096
    """Where an answer that runs on ends if the request sets no limit."""
    socket_lifetime_s: Seconds = 3_600.0
    """After how long a WebSocket is closed."""
    socket_message_bytes: Count = 256 * 1_048_576
    """How large a message on a WebSocket may be."""
    dialect: Dialect = Dialect()
    batches: BatchSettings = BatchSettings()

    def __post_init__(self) -> None:
        parse_manners(self.manner)
        if "default" not in self.service_tiers:
            raise ConfigurationError("service_tiers must hold one named 'default'")

    @property
    def served(self) -> Sequence[str]:
        """The model names that it lists; one that serves every name lists its own."""
        return self.models or (self.name,)

    def prefill_s(self, *, uncached_tokens: int, luck: float, tier: ServiceTier) -> float:
        """Return the seconds from leaving the queue to the first token; `luck` (0 to 1) picks the base's quantile."""
        return (_at(self.prefill_base_s, luck) + uncached_tokens * self.prefill_s_per_token) * tier.time_factor

    def mean_gap_s(self, *, luck: float, tier: ServiceTier) -> float:
        """Return the mean seconds between two tokens of one request; `luck` (0 to 1) picks the quantile."""
        return _at(self.inter_token_s, luck) * tier.time_factor


def _at(time_s: Quantiles | float, luck: float) -> float:
    return time_s.at(luck) if isinstance(time_s, Quantiles) else time_s


@cache
def _preset_tables() -> Mapping[str, dict[str, Any]]:
    text = resources.files("fastlane.emulator").joinpath("presets.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))


def presets() -> Mapping[str, str]:
    """Return what each preset is, by name. The figures and their sources are in presets.toml."""
    return {name: table["about"] for name, table in _preset_tables().items()}


def preset(name: str) -> ProviderModel:
    """Return a model by name. Raises ConfigurationError for an unknown one."""
    table = _preset_tables().get(name)
    if table is None:
        raise ConfigurationError(f"unknown preset {name!r}: the known ones are {', '.join(_preset_tables())}")
    values = {key: value for key, value in table.items() if key not in ("about", "sources")}
    for key in ("prefill_base_s", "inter_token_s"):
        if isinstance(values.get(key), dict) and "quartiles" in values[key]:
            values[key] = Quantiles.from_quartiles(*values[key]["quartiles"])
    return ProviderModel.from_json({"name": name, **values})


@settings
class Wire(Settings):
    """What is between a client and a server: how far apart they are, how wide the link is, how TCP fills it."""

    round_trip_time_s: Annotated[float, Field(ge=0, le=60)] = 0.04
    rate_bits_per_s: Annotated[float, Field(ge=1_000, description="bits per second from 1,000")] | None = None
    """Per connection and per direction; None: the link never limits."""
    slow_start: bool = True
