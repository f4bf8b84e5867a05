"""The settings of an emulated provider: its speed, limits, tiers, batches, the wire, and how its answers differ."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from ..engine.settings import settings
from ..errors import ConfigurationError
from ._limit_headers import HeaderSpec, header_specs

Texts: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Seconds: TypeAlias = Annotated[float, Field(ge=0)]
Positive: TypeAlias = Annotated[float, Field(gt=0)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Whole: TypeAlias = Annotated[int, Field(ge=0)]
ErrorStatus: TypeAlias = Annotated[int, Field(ge=400, le=599)]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class Settings:
    """What all settings have: a form as JSON and one as text."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Make settings of what `to_json` returns, or of a part of it. Raises ConfigurationError."""
        try:
            made: Self = _adapter(cast(Any, cls)).validate_json(json.dumps(values, default=dataclasses.asdict))
        except ValidationError as error:
            wrong = error.errors()[0]
            name = ".".join(map(str, wrong["loc"]))
            raise ConfigurationError(f"{cls.__name__}: {name}: {wrong['msg'].removeprefix('Value error, ')}") from error
        except TypeError as error:
            raise ConfigurationError(f"{cls.__name__} takes JSON values: {error}") from error
        return made

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return the settings with other values, as Python objects or as JSON. Raises ConfigurationError."""
        return self.from_json({**self.to_json(), **values})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `name=value[;name=value…]`. Raises ConfigurationError."""
        return cls(**cls.parsed(text))

    @classmethod
    def parsed(cls, text: str) -> dict[str, Any]:
        """Read the same as values by name: `none` is None, and the values of a list are separated by commas."""
        fields: dict[str, Any] = cls.__pydantic_fields__  # type: ignore[attr-defined]
        values: dict[str, Any] = {}
        for part in filter(None, (piece.strip() for piece in text.split(";"))):
            name, _, given = (piece.strip() for piece in part.partition("="))
            if name not in fields:
                raise ConfigurationError(
                    f"unknown setting {name!r} of {cls.__name__}: the known ones are {', '.join(fields)}"
                )
            kind = fields[name].annotation
            try:
                if given == "none":
                    values[name] = None
                elif "tuple" in str(kind):
                    values[name] = tuple(piece.strip() for piece in given.split(",") if piece.strip())
                else:
                    values[name] = _adapter(kind).validate_strings(given)
            except ValidationError as error:
                message = error.errors()[0]["msg"].replace("Input should be", "takes")
                raise ConfigurationError(f"{cls.__name__}({name}=...) {message}, got {given!r}") from error
        return values

    def text_of_others(self, *names: str) -> str:
        """Write the settings that differ from their defaults, but for these, as `parse` reads them."""
        fields: tuple[Any, ...] = dataclasses.fields(self)  # type: ignore[arg-type]
        given = ((one.name, getattr(self, one.name), one.default) for one in fields if one.name not in names)
        return "".join(f";{name}={value}" for name, value, default in given if value != default)


@settings
class Quantiles(Settings):
    """A distribution as points (share, value) joined by straight lines, from share 0 to share 1.

    Raises ConfigurationError where the points do not rise from share 0 to share 1, or a value is negative.
    """

    points: Annotated[tuple[Annotated[tuple[Share, Seconds], Field(strict=False)], ...], Field(strict=False)] = (
        dataclasses.field(kw_only=False)
    )

    def __post_init__(self) -> None:
        if len(self.points) < 2 or self.points[0][0] != 0.0 or self.points[-1][0] != 1.0:
            raise ConfigurationError(f"quantile points must go from share 0 to share 1, got {self.points}")
        for (share, value), (next_share, next_value) in pairwise(self.points):
            if next_share <= share or next_value < value:
                raise ConfigurationError(
                    f"quantile points must rise, got ({share}, {value}) before ({next_share}, {next_value}): sort them"
                )

    @classmethod
    def constant(cls, value: float) -> Quantiles:
        """Return the distribution that always gives `value`."""
        return cls(((0.0, value), (1.0, value)))

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
        index = bisect_left(self.points, (share,))
        if index == 0:
            return self.points[0][1]
        if index == len(self.points):
            return self.points[-1][1]
        (low_share, low), (high_share, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (share - low_share) / (high_share - low_share)


PERIODS_S = {"minute": 60, "hour": 3_600, "day": 86_400}
UNITS = ("requests", "tokens")
_Pairs: TypeAlias = (
    Mapping[str, str] | Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False)]
)


def _pairs(headers: _Pairs) -> tuple[tuple[str, str], ...]:
    items = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name.lower(), value) for name, value in items)


@settings
class KeyRateLimits(Settings):
    """What one API key may ask of one model. Raises ConfigurationError for a setting that cannot work.

    A request is counted when it comes: as one request, and as the tokens of its prompt with those that it may generate
    at most. Over a limit it gets `status`, as from OpenAI.
    """

    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    requests_per_hour: Positive | None = None
    tokens_per_hour: Positive | None = None
    requests_per_day: Positive | None = None
    tokens_per_day: Positive | None = None
    window: Literal["bucket", "fixed", "sliding", "quantized"] = "bucket"
    """`bucket` refills evenly; `fixed` windows begin with the first request; `sliding` ones end now; `quantized` is a
    bucket whose limit per minute holds for each `quantum_s` as well, 1 request a second for 60 a minute."""
    burst: Positive = 1.0
    """How much a bucket holds: 1.0 is all of a minute's, an hour's or a day's limit."""
    quantum_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    counted: Literal["sum", "maximum", "prompt"] = "sum"
    """Tokens of a request when it comes: the prompt's and the most that may be generated (`sum`), the larger of both
    (`maximum`), or the prompt's alone (`prompt`)."""
    assumed_output_tokens: Whole = 0
    """The most that may be generated, of a request without a limit."""
    settled: bool = False
    """Whether at the end of the answer the tokens that were really used count, and the rest comes back."""
    cached_tokens_count: bool = True
    """Whether tokens found in the prompt cache stay counted when it is settled."""
    refused_count: bool = True
    """Whether a refused request counts as a request: "unsuccessful requests contribute to your per-minute limit"
    (https://help.openai.com/en/articles/5955604-how-can-i-so)."""
    per_key: bool = True
    """Whether each API key has its own limits; False: all share them."""
    headers: str | _Pairs = "usual"
    """The headers that report the limits: a family (see `HEADER_FAMILIES`), or each header and what it reports."""
    only_when_refused: bool = False
    """Whether only refusals have these headers."""
    retry_after: Literal["both", "seconds", "milliseconds", "none"] = "both"
    """The headers of a refusal: `retry-after` in whole seconds, `retry-after-ms`, both or none."""
    status: ErrorStatus = 429
    too_large_status: ErrorStatus = 429
    """The status of a request that exceeds the limit by itself."""
    quota_spent: bool = False
    """Whether every request is a 429 `insufficient_quota`."""

    def __post_init__(self) -> None:
        self.header_specs()

    def header_specs(self) -> tuple[HeaderSpec, ...]:
        """Return what each header reports."""
        return header_specs(self.headers if isinstance(self.headers, str) else _pairs(self.headers))

    def tokens_of(self, *, prompt: int, output: int | None, choices: int) -> int:
        """Return the tokens that a request counts as when it comes; `output` is the limit of each of its choices."""
        generated = (self.assumed_output_tokens if output is None else output) * choices
        if self.counted == "maximum":
            return max(prompt, generated)
        return prompt if self.counted == "prompt" else prompt + generated


@settings
class ServiceTier(Settings):
    """A service tier: `time_factor` multiplies prefill and decode times, a higher `rank` leaves the queue first.

    Raises ConfigurationError for a setting that cannot work.
    """

    name: Annotated[str, Field(min_length=1)]
    time_factor: Positive = 1.0
    rank: int = 1
    aliases: Texts = ()
    """Other names in requests, as OpenAI's `fast` is its `priority`."""
    shown_as: str | None = None
    """Its name in answers; None: the same."""
    places: Whole | None = None
    """How many of its requests are in at once, waiting ones too; None: any number."""
    beyond: Literal["refuse", "queue", "downgrade"] = "refuse"
    """What becomes of requests beyond its places: refused, queued until one is free, or served by `downgraded_to`."""
    exhausted: Share = 0.0
    """The share of its requests that are refused, whatever its places."""
    full_status: ErrorStatus = 429
    full_code: str = "resource_unavailable"
    full_retry_after_s: Positive | None = None
    """`retry-after` of a refusal; None: no header."""
    downgraded: Share = 0.0
    """The share of its requests that another tier serves."""
    downgraded_to: str = "default"
    ramp_tokens_per_minute: Positive | None = None
    """Requests that come after so many tokens within a minute are downgraded, counted as the rate limits count them.
    OpenAI moves priority requests down so, from 1,000,000 on
    (https://developers.openai.com/api/docs/guides/priority-processing)."""
    ramp_requests_per_minute: Positive | None = None
    """The same, counted in requests."""

    def __post_init__(self) -> None:
        if self.places == 0 and self.beyond == "queue":
            raise ConfigurationError(f"places of tier {self.name!r} must be at least 1 where others queue, got 0")

    @property
    def shown(self) -> str:
        """Its name in answers."""
        return self.shown_as or self.name

    @property
    def may_downgrade(self) -> bool:
        """Whether another tier may serve its requests."""
        ramps = self.ramp_tokens_per_minute is not None or self.ramp_requests_per_minute is not None
        return ramps or self.downgraded > 0 or (self.places is not None and self.beyond == "downgrade")

    @classmethod
    def named(cls, text: str) -> dict[str, Any]:
        """Read `flex;time_factor=2;exhausted=0.2` as values by name. Raises ConfigurationError."""
        name, _, rest = text.partition(";")
        return {"name": name.strip(), **cls.parsed(rest)}


STANDARD_TIERS = (
    ServiceTier(name="default", time_factor=1.0, rank=1),
    ServiceTier(name="priority", time_factor=0.6, rank=2, aliases=("fast",)),
    ServiceTier(name="flex", time_factor=1.8, rank=0),
)


def with_tier(tiers: tuple[ServiceTier, ...], values: Mapping[str, Any]) -> tuple[ServiceTier, ...]:
    """Return the tiers with one of them changed, or one more."""
    if all(tier.name != values["name"] for tier in tiers):
        return (*tiers, ServiceTier(**values))
    return tuple(tier.changed(values) if tier.name == values["name"] else tier for tier in tiers)


def _check_tiers(tiers: tuple[ServiceTier, ...], auto: str) -> None:
    names = [tier.name for tier in tiers]
    if "default" not in names:
        raise ConfigurationError(
            f"service_tiers must hold one named 'default', got {', '.join(names) or 'none'}: add it"
        )
    asked = [*names, *(alias for tier in tiers for alias in tier.aliases)]
    for name in asked:
        if asked.count(name) > 1 or name == "auto":
            raise ConfigurationError(f"service_tiers must each have names of their own but 'auto', got {name!r} again")
    if auto not in names:
        raise ConfigurationError(f"auto_tier must be one of {', '.join(names)}, got {auto!r}")
    by_name = {tier.name: tier for tier in tiers}
    for tier in tiers:
        below = by_name.get(tier.downgraded_to)
        if tier.may_downgrade and (below is None or below is tier or below.may_downgrade):
            raise ConfigurationError(
                f"downgraded_to of tier {tier.name!r} must be another tier that is not downgraded itself, got "
                f"{tier.downgraded_to!r}"
            )


def _checked_manner(text: str) -> str:
    from ._manner import parse_manners

    parse_manners(text)
    return text


# The cache is made with them.
_UNCHANGEABLE = frozenset(
    {"cache_minimum_tokens", "cache_block_tokens", "cache_expiry_s", "cache_machines",
     "cache_requests_per_key_per_minute"}
)  # fmt: skip


@settings
class ProviderModel(Settings):
    """How one emulated provider spends time. Raises ConfigurationError for a setting that cannot work.

    A request waits for one of `concurrency` places, then prefills for `prefill_base_s` (drawn per request) plus
    `prefill_s_per_token` for every token that the prefix cache does not hold, then sends a token every
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
    """How many requests may wait for one of the `concurrency` places; more are refused. None: any number, 0: none."""
    overload_status: ErrorStatus = 503
    overload_retry_after_s: Seconds | None = None
    rate_limits: KeyRateLimits | None = None
    """What each API key may ask of each model; None: any number."""
    model_rate_limits: Mapping[str, KeyRateLimits] = dataclasses.field(default_factory=dict)
    """The same for single models, by their names."""
    prompt_cache: bool = True
    # OpenAI documents prefixes from 1,024 tokens in steps of 128, kept for 5 to 10 minutes of inactivity.
    cache_minimum_tokens: Count = 1_024
    cache_block_tokens: Count = 128
    cache_expiry_s: Seconds = 300.0
    cache_machines: Count = 1
    cache_requests_per_key_per_minute: Seconds = 0
    """How many requests one machine takes for a prefix and its key before more are spread; 0: any number. OpenAI
    documents about 15."""
    service_tiers: Annotated[tuple[ServiceTier, ...], Field(strict=False)] = STANDARD_TIERS
    auto_tier: str = "default"
    """The tier of a request that asks for `auto`, or for none: OpenAI's project setting."""
    refuse_unknown_tiers: bool = False
    """Whether an unknown tier is a 400; False: it is served as `default`."""
    default_output_tokens: Count = 64
    reasoning_tokens: Whole = 32
    context_window_tokens: Count = 1_000_000
    role_chunk_early: bool = False
    models: Texts = ()
    """The model names served; others get a 404. Empty: every name is served."""
    manner: Annotated[str, AfterValidator(_checked_manner)] = "exact"
    """How it writes structured answers: `kind[;share=…]`, several separated by commas."""
    run_on_tokens: Count = 4_096
    """Where an answer that runs on ends if the request sets no limit."""

    def __post_init__(self) -> None:
        _check_tiers(self.service_tiers, self.auto_tier)

    @property
    def served(self) -> tuple[str, ...]:
        """The model names that it lists; one that serves every name lists its own."""
        return self.models or (self.name,)

    def tier(self, asked: str | None) -> ServiceTier:
        """Return the tier that a request gets; an unknown one is the default tier."""
        tiers = {name: tier for tier in self.service_tiers for name in (tier.name, *tier.aliases)}
        return tiers.get(asked or "default", tiers["default"])

    def changed(self, values: Mapping[str, Any]) -> ProviderModel:
        """Return the model with other settings, of those that can change while it serves. Raises ConfigurationError."""
        known = {each.name for each in dataclasses.fields(self)} - _UNCHANGEABLE
        if unknown := sorted(values.keys() - known):
            raise ConfigurationError(
                f"{unknown[0]} cannot be changed while it serves: what can is {', '.join(sorted(known))}"
            )
        return self.from_json({**self.to_json(), **values})

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


MAXIMUM_FILE_BYTES = 512 * 1_048_576
"""Of one upload: OpenAI takes files of up to 512 MB."""


@settings
class BatchSettings(Settings):
    """Files and batches of one emulated provider. Raises ConfigurationError for a setting that cannot work.

    By default a batch is done as fast as this machine can. Times are in seconds, shares from 0 to 1; which lines a
    share concerns follows from seed, batch and `custom_id`, so that a line that failed has another chance in another
    batch.
    """

    validation_s: Seconds = 0.0
    """How long a batch stays `validating`, at least."""
    lines_per_s: Positive | None = None
    """How many lines of one batch are done in a second; None: as many as can be."""
    duration_s: Seconds | None = None
    """How long the lines of one batch take together, however many they are; instead of `lines_per_s`."""
    finalizing_s: Seconds = 0.0
    """How long it stays `finalizing`."""
    cancelling_s: Seconds = 0.0
    """How long it stays `cancelling`; OpenAI documents up to 10 minutes."""
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
    maximum_requests: Count = 50_000
    maximum_bytes: Count = 209_715_200
    """Of a batch's input file: OpenAI's 200 MB."""
    maximum_in_progress: Count = 100
    """Batches that are processed at once; more wait in `validating`."""
    enqueued_tokens: Whole | None = None
    """The most prompt tokens of all unfinished batches of one model; a batch past it fails."""
    file_listing_delay_s: Seconds = 0.0
    """After how long an upload shows in the list of files, which is eventually consistent."""
    batch_listing_delay_s: Seconds = 0.0
    """The same of batches."""
    missing_file_fails_late: bool = False
    """A batch of a missing file is created, and fails; otherwise it is refused with 400."""
    storage_bytes: Count = 2 * 1_073_741_824
    """Of all files together, in memory; an upload past it is refused."""

    def __post_init__(self) -> None:
        if self.lines_per_s is not None and self.duration_s is not None:
            raise ConfigurationError(f"give lines_per_s or duration_s, got {self.lines_per_s} and {self.duration_s}")
        if self.server_error_share + self.rate_limited_share + self.timeout_share + self.missing_share > 1:
            raise ConfigurationError("the shares of lines must not be above 1 together")

    def due(self, seconds: float, lines: int) -> int:
        """Return how many of a batch's lines are due this many seconds after it has begun."""
        rate = self._rate(lines)
        return lines if rate is None else min(lines, int(seconds * rate))

    def next_due_s(self, done: int, lines: int) -> float:
        """Return how many seconds after it has begun another line is due."""
        rate = self._rate(lines)
        return 0.0 if rate is None else (done + 1) / rate

    def _rate(self, lines: int) -> float | None:
        return lines / self.duration_s if self.duration_s else self.lines_per_s


TIMINGS: Mapping[str, str] = {
    "time_info": "`time_info` of the answer or its last chunk, as Cerebras has it",
    "usage": "`queue_time`, `prompt_time`, `completion_time` and `total_time` of the usage, as Groq has them",
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?|")
# They frame an answer, or identify its record in the log.
_RESERVED = frozenset({"connection", "content-length", "content-type", "transfer-encoding", "x-request-id"})


@settings
class Dialect(Settings):
    """How one server's answers differ from another's. Raises ConfigurationError for a setting that cannot work.

    `headers` go out with every answer, as a mapping or as pairs; an empty value leaves out one that the emulator
    would send by itself (`openai-processing-ms`, `cache-control`).
    """

    headers: _Pairs = ()
    owned_by: str = "emulator"
    """Of every model that `GET /models` lists."""
    says_accepted: bool = False
    """Whether a 415 names what is accepted: `accept-encoding` (RFC 9110, 15.5.16, and RFC 7694) or `accept`."""
    timing: Annotated[
        tuple[Literal["time_info", "usage"], ...], Field(strict=False, description="some of time_info and usage")
    ] = ()
    """Where the server reports its own times, in seconds; see `TIMINGS`."""
    cached_tokens_path: Annotated[
        str,
        Field(
            pattern=r"^(standard|none|usage(\.[A-Za-z_]\w*)+)$",
            description="'standard', 'none' or a path like 'usage.prompt_cache_hit_tokens'",
        ),
    ] = "standard"
    """Where the usage counts cached tokens: `standard` as OpenAI has it, `none`, or a path that begins with `usage.`"""
    service_tier_path: Annotated[
        str,
        Field(pattern=r"^(usage\.)?[A-Za-z_]\w*$", description="'standard', 'none', a field, or 'usage.' and a field"),
    ] = "standard"
    """Where an answer names the tier that served it: `standard` as OpenAI has it, `none`, a field, or `usage.` and one.
    Of streams, in another place than the standard one, the last chunk."""
    structured_outputs: bool = True
    """False: `response_format` and `text.format` are ignored, and the answer is prose."""
    refused_fields: Texts = ()
    """Fields of a body with which a request is refused (400), as by servers that do not know a field."""

    def __post_init__(self) -> None:
        for name, value in _pairs(self.headers):
            if not _HEADER_NAME.fullmatch(name):
                raise ConfigurationError(f"a header's name must be letters, digits and dashes, got {name!r}")
            if name in _RESERVED:
                raise ConfigurationError(f"header {name!r} is the emulator's own: leave it out")
            if not _HEADER_VALUE.fullmatch(value):
                raise ConfigurationError(f"header {name!r} must have a value of visible ASCII, got {value!r}")

    def spoken(self, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return an answer's headers: its own, where this dialect has none of that name, then this dialect's."""
        given = _pairs(self.headers)
        replaced = {name for name, _ in given}
        return [*(header for header in own if header[0] not in replaced), *(header for header in given if header[1])]


@settings
class Wire(Settings):
    """What is between a client and a server: how far apart they are, how wide the link is, how TCP fills it."""

    round_trip_time_s: Annotated[float, Field(ge=0, le=60)] = 0.04
    rate_bits_per_s: Annotated[float, Field(ge=1_000, description="bits per second from 1,000")] | None = None
    """Per connection and per direction; None: the link never limits."""
    slow_start: bool = True
    initial_window_segments: Count = 10
    """RFC 6928; what Linux, macOS and Windows use."""
    segment_bytes: Annotated[int, Field(ge=1, le=65_535)] = 1_448
    """An Ethernet MTU of 1500 less the IPv4 and TCP headers and the timestamp option."""
    restart_after_idle: bool = True
    """Linux's default (net.ipv4.tcp_slow_start_after_idle=1): the client that waited for a model starts over."""
