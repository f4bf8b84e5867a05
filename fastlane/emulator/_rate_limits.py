"""Rate limits as settings: how much in a minute, an hour and a day, how it is counted, and how a refusal is told."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from fastlane.emulator._limit_headers import HeaderSpec, header_specs
from fastlane.emulator._meters import WindowKind

from ..errors import ConfigurationError

Counted = Literal["sum", "maximum", "prompt"]
RetryAfter = Literal["both", "seconds", "milliseconds", "none"]

PERIODS_S = {"minute": 60, "hour": 3_600, "day": 86_400}
"""For how long a limit can hold."""
UNITS = ("requests", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRateLimits:
    """What one API key may ask of one model. Raises ConfigurationError for a setting that cannot work.

    A request is counted when it comes: as one request, and as the tokens of its prompt with those that it may generate
    at most. Over a limit it is answered with `status`, as OpenAI does it.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    requests_per_hour: float | None = None
    tokens_per_hour: float | None = None
    requests_per_day: float | None = None
    tokens_per_day: float | None = None
    window: WindowKind = "bucket"
    """`bucket` refills evenly; `fixed` windows begin with the first request; `sliding` ones end now; `quantized` is a
    bucket whose limit per minute holds for each `quantum_s` as well, 1 request a second for 60 a minute."""
    burst: float = 1.0
    """How much a bucket holds: 1.0 is all of a minute's, an hour's or a day's limit."""
    quantum_s: float = 1.0
    counted: Counted = "sum"
    """Tokens of a request when it comes: the prompt's and the most that may be generated (`sum`), the larger of both
    (`maximum`), or the prompt's alone (`prompt`)."""
    assumed_output_tokens: int = 0
    """The most that may be generated, of a request that does not say."""
    settled: bool = False
    """Whether the tokens that were really used count from the end of the answer on, and the rest comes back."""
    cached_tokens_count: bool = True
    """Whether tokens found in the prompt cache stay counted when it is settled."""
    refused_count: bool = True
    """Whether a refused request counts as a request: "unsuccessful requests contribute to your per-minute limit"
    (https://help.openai.com/en/articles/5955604-how-can-i-so)."""
    per_key: bool = True
    """Whether each API key has limits of its own; False: all share them."""
    headers: str | Mapping[str, str] | Iterable[tuple[str, str]] = "usual"
    """What every answer tells of the limits: a family (see `HEADER_FAMILIES`), or each header and what it says."""
    only_when_refused: bool = False
    """Whether only refusals have these headers."""
    retry_after: RetryAfter = "both"
    """What a refusal says of when to come again: `retry-after` in whole seconds, `retry-after-ms`, both or nothing."""
    status: int = 429
    too_large_status: int = 429
    """The status of a request that the limit is too small for, whenever it comes."""
    quota_spent: bool = False
    """Whether the account has nothing left to pay with: every request is a 429 `insufficient_quota`."""

    def __post_init__(self) -> None:
        for name in (f"{unit}_per_{period}" for unit in UNITS for period in PERIODS_S):
            value = getattr(self, name)
            if value is not None:
                _above(name, value, 0)
        _above("burst", self.burst, 0)
        _above("quantum_s", self.quantum_s, 0)
        if self.quantum_s > 60:
            raise ConfigurationError(f"quantum_s must be at most 60 seconds, got {self.quantum_s}")
        for name, kinds in (("window", WindowKind), ("counted", Counted), ("retry_after", RetryAfter)):
            if getattr(self, name) not in get_args(kinds):
                raise ConfigurationError(
                    f"{name} must be one of {', '.join(get_args(kinds))}, got {getattr(self, name)!r}"
                )
        if not isinstance(self.assumed_output_tokens, int) or self.assumed_output_tokens < 0:
            raise ConfigurationError(f"assumed_output_tokens must be at least 0, got {self.assumed_output_tokens!r}")
        for name in ("status", "too_large_status"):
            if not isinstance(getattr(self, name), int) or not 400 <= getattr(self, name) <= 599:
                raise ConfigurationError(f"{name} must be from 400 to 599, got {getattr(self, name)!r}")
        if not isinstance(self.headers, str):
            pairs = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
            object.__setattr__(self, "headers", tuple((name.lower(), says) for name, says in pairs))
        self.header_specs()

    def header_specs(self) -> tuple[HeaderSpec, ...]:
        """Return what each header says."""
        # They are a name or pairs from `__post_init__` on.
        return header_specs(cast("str | tuple[tuple[str, str], ...]", self.headers))

    def tokens_of(self, *, prompt: int, output: int | None, choices: int) -> int:
        """Return the tokens that a request counts as when it comes; `output` is the limit of each of its choices."""
        generated = (self.assumed_output_tokens if output is None else output) * choices
        if self.counted == "maximum":
            return max(prompt, generated)
        return prompt if self.counted == "prompt" else prompt + generated

    @classmethod
    def parse(cls, text: str) -> KeyRateLimits:
        """Read `requests_per_minute=600;tokens_per_minute=60000;window=fixed`; `yes` and `no` for what is either."""
        return cls(**parse_settings(cls, text, "rate limits"))


def parse_settings(kind: type[Any], text: str, of: str) -> dict[str, Any]:
    """Read `name=value` separated by semicolons, each value by what its field holds. Raises ConfigurationError."""
    known = {each.name: each for each in dataclasses.fields(kind)}
    settings: dict[str, Any] = {}
    for part in text.split(";"):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name:
            continue
        if name not in known:
            raise ConfigurationError(f"unknown setting {name!r} of {of}: the known ones are {', '.join(sorted(known))}")
        settings[name] = _value(name, str(known[name].type), value, of)
    return settings


def _value(name: str, annotation: str, value: str, of: str) -> object:
    if annotation == "bool":
        if value not in ("yes", "no"):
            raise ConfigurationError(f"{name} of {of} must be yes or no, got {value!r}")
        return value == "yes"
    if annotation.startswith(("int", "float")):
        if value == "none" and annotation.endswith("None"):
            return None
        try:
            return int(value) if annotation.startswith("int") else float(value)
        except ValueError as error:
            raise ConfigurationError(f"{name} of {of} must be a number, got {value!r}") from error
    if annotation.startswith("tuple"):
        return tuple(piece.strip() for piece in value.split(",") if piece.strip())
    return value


def _above(name: str, value: object, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= least:
        raise ConfigurationError(f"{name} must be above {least}, got {value!r}: leave it out for no limit")
