"""Classes of service as settings: how fast each is, how many it serves at once, and what becomes of those beyond."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fastlane.emulator._rate_limits import parse_settings

from ..errors import ConfigurationError

Beyond = Literal["refuse", "queue", "downgrade"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTier:
    """A class of service: `time_factor` multiplies prefill and decode times, a higher `rank` leaves the queue first.

    Raises ConfigurationError for a setting that cannot work.
    """

    name: str
    time_factor: float = 1.0
    rank: int = 1
    aliases: tuple[str, ...] = ()
    """Other names by which requests ask for it, as OpenAI's `fast` is its `priority`."""
    shown_as: str | None = None
    """What answers call it; None: its name."""
    places: int | None = None
    """How many of its requests are in at once, waiting ones too; None: any number."""
    beyond: Beyond = "refuse"
    """What becomes of those beyond its places: refused, queued until one is free, or served by `downgraded_to`."""
    exhausted: float = 0.0
    """The share of its requests that are refused, whatever its places: 1.0 for all."""
    full_status: int = 429
    full_code: str = "resource_unavailable"
    full_retry_after_s: float | None = None
    """What a refusal says of when to come again; None: nothing."""
    downgraded: float = 0.0
    """The share of its requests that another tier serves."""
    downgraded_to: str = "default"
    ramp_tokens_per_minute: float | None = None
    """Requests that come when more tokens than so many were asked for within a minute are downgraded, counted as the
    rate limits count them; None: never. OpenAI moves priority requests down so, from 1,000,000 on
    (https://developers.openai.com/api/docs/guides/priority-processing)."""
    ramp_requests_per_minute: float | None = None
    """The same, counted in requests."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("a service tier's name must not be empty, got '': name it as requests ask for it")
        if not (math.isfinite(self.time_factor) and self.time_factor > 0):
            raise ConfigurationError(
                f"time_factor of tier {self.name!r} must be above 0, got {self.time_factor}: 1.0 is the usual speed"
            )
        for share in ("exhausted", "downgraded"):
            if not 0 <= getattr(self, share) <= 1:
                raise ConfigurationError(
                    f"{share} of tier {self.name!r} must be a share from 0 to 1, got {getattr(self, share)}"
                )
        if self.beyond not in get_args(Beyond):
            raise ConfigurationError(
                f"beyond of tier {self.name!r} must be one of {', '.join(get_args(Beyond))}, got {self.beyond!r}"
            )
        if self.places is not None and self.places < 0:
            raise ConfigurationError(f"places of tier {self.name!r} must be at least 0, got {self.places}")
        if self.places == 0 and self.beyond == "queue":
            raise ConfigurationError(f"places of tier {self.name!r} must be at least 1 where others queue, got 0")
        if not 400 <= self.full_status <= 599:
            raise ConfigurationError(
                f"full_status of tier {self.name!r} must be from 400 to 599, got {self.full_status}"
            )
        for name in ("ramp_tokens_per_minute", "ramp_requests_per_minute", "full_retry_after_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigurationError(f"{name} of tier {self.name!r} must be above 0, got {value}")
        object.__setattr__(self, "aliases", tuple(self.aliases))

    @property
    def shown(self) -> str:
        """What answers call it."""
        return self.shown_as or self.name

    @property
    def may_downgrade(self) -> bool:
        """Whether another tier may serve its requests."""
        ramps = self.ramp_tokens_per_minute is not None or self.ramp_requests_per_minute is not None
        return ramps or self.downgraded > 0 or (self.places is not None and self.beyond == "downgrade")

    @classmethod
    def settings(cls, text: str) -> dict[str, Any]:
        """Read `flex;time_factor=2;exhausted=0.2` as a tier's settings by name. Raises ConfigurationError."""
        name, _, rest = text.partition(";")
        return {"name": name.strip(), **parse_settings(cls, rest, f"tier {name.strip()!r}")}


STANDARD_TIERS = (
    ServiceTier(name="default", time_factor=1.0, rank=1),
    ServiceTier(name="priority", time_factor=0.6, rank=2, aliases=("fast",)),
    ServiceTier(name="flex", time_factor=1.8, rank=0),
)


def check_tiers(tiers: tuple[ServiceTier, ...], auto: str) -> None:
    """Raise ConfigurationError for tiers that do not go together."""
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


def with_tier(tiers: tuple[ServiceTier, ...], settings: Mapping[str, Any]) -> tuple[ServiceTier, ...]:
    """Return the tiers with one of them changed, or one more."""
    changed: list[ServiceTier] = []
    found = False
    for tier in tiers:
        if tier.name == settings["name"]:
            tier, found = dataclasses.replace(tier, **settings), True
        changed.append(tier)
    return tuple(changed) if found else (*changed, ServiceTier(**settings))
