"""The provider's behaviour in time, as settings: how long it queues, prefills and decodes, and what it remembers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.emulator._distribution import Quantiles
from fastlane.emulator._manner import parse_manners
from fastlane.emulator._rate_limits import KeyRateLimits
from fastlane.emulator._tiers import STANDARD_TIERS, ServiceTier, check_tiers

from ..errors import ConfigurationError

# What the cache is made with.
_UNCHANGEABLE = frozenset(
    {
        "cache_minimum_tokens",
        "cache_block_tokens",
        "cache_expiry_s",
        "cache_machines",
        "cache_requests_per_key_per_minute",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderModel:
    """How one emulated provider spends time. Raises ConfigurationError for a setting that cannot work.

    A request waits for one of `concurrency` places, then prefills for `prefill_base_s` (drawn per request) plus
    `prefill_s_per_token` for every token that the prefix cache does not hold, then sends a token every
    `inter_token_s` (drawn once per request), each gap varied by up to ±`inter_token_jitter` of itself. With the chance
    `late_share` a request is late: its prefill takes `late_factor` times as long.
    """

    name: str = "custom"
    prefill_base_s: Quantiles | float = 0.0
    prefill_s_per_token: float = 0.0
    inter_token_s: Quantiles | float = 0.0
    inter_token_jitter: float = 0.0
    late_share: float = 0.0
    late_factor: float = 20.0
    concurrency: int = 1_024
    queue_places: int | None = None
    """How many requests may wait for one of the `concurrency` places; more are refused. None: any number, 0: none."""
    overload_status: int = 503
    overload_retry_after_s: float | None = None
    rate_limits: KeyRateLimits | None = None
    """What each API key may ask of each model; None: any number."""
    model_rate_limits: Mapping[str, KeyRateLimits] | Iterable[tuple[str, KeyRateLimits]] = ()
    """The same for single models, by their names."""
    prompt_cache: bool = True
    # OpenAI documents prefixes from 1,024 tokens in steps of 128, kept for 5 to 10 minutes of inactivity.
    cache_minimum_tokens: int = 1_024
    cache_block_tokens: int = 128
    cache_expiry_s: float = 300.0
    cache_machines: int = 1
    cache_requests_per_key_per_minute: float = 0
    """How many requests one machine takes for a prefix and its key before more are spread; 0: any number. OpenAI
    documents about 15."""
    service_tiers: tuple[ServiceTier, ...] = STANDARD_TIERS
    auto_tier: str = "default"
    """The tier of a request that asks for `auto`, or for none: OpenAI's project setting."""
    refuse_unknown_tiers: bool = False
    """Whether a tier that there is not is a 400; False: it is served as `default`."""
    default_output_tokens: int = 64
    reasoning_tokens: int = 32
    context_window_tokens: int = 1_000_000
    role_chunk_early: bool = False
    models: tuple[str, ...] = ()
    """The model names served; others get a 404. Empty: every name is served."""
    manner: str = "exact"
    """How it writes structured answers: `kind[;share=…]`, several separated by commas."""
    run_on_tokens: int = 4_096
    """Where an answer that runs on ends if the request sets no limit."""

    def __post_init__(self) -> None:
        for name in ("prefill_base_s", "inter_token_s"):
            value = getattr(self, name)
            if not isinstance(value, Quantiles):
                self._at_least(name, value, 0)
                object.__setattr__(self, name, Quantiles.constant(value))
        self._at_least("prefill_s_per_token", self.prefill_s_per_token, 0)
        self._at_least("inter_token_jitter", self.inter_token_jitter, 0)
        self._at_least("cache_expiry_s", self.cache_expiry_s, 0)
        self._at_least("cache_requests_per_key_per_minute", self.cache_requests_per_key_per_minute, 0)
        if self.inter_token_jitter > 1:
            raise ConfigurationError(
                f"inter_token_jitter must be a share from 0 to 1, got {self.inter_token_jitter}: 0.3 means ±30 %"
            )
        self._at_least("late_share", self.late_share, 0)
        self._at_least("late_factor", self.late_factor, 1)
        if self.late_share > 1:
            raise ConfigurationError(f"late_share must be a share from 0 to 1, got {self.late_share}: 0.01 means 1 %")
        for name in (
            "concurrency",
            "cache_minimum_tokens",
            "cache_block_tokens",
            "cache_machines",
            "default_output_tokens",
            "context_window_tokens",
            "run_on_tokens",
        ):
            self._at_least(name, getattr(self, name), 1)
        self._at_least("reasoning_tokens", self.reasoning_tokens, 0)
        parse_manners(self.manner)
        check_tiers(self.service_tiers, self.auto_tier)
        if self.queue_places is not None:
            self._at_least("queue_places", self.queue_places, 0)
        if self.overload_retry_after_s is not None:
            self._at_least("overload_retry_after_s", self.overload_retry_after_s, 0)
        if not isinstance(self.overload_status, int) or not 400 <= self.overload_status <= 599:
            raise ConfigurationError(f"overload_status must be from 400 to 599, got {self.overload_status!r}")
        pairs = self.model_rate_limits
        pairs = tuple(pairs.items() if isinstance(pairs, Mapping) else pairs)
        object.__setattr__(self, "model_rate_limits", pairs)
        for limits in (self.rate_limits, *(limits for _, limits in pairs)):
            if limits is not None and not isinstance(limits, KeyRateLimits):
                raise ConfigurationError(f"rate_limits must be KeyRateLimits, got {type(limits).__name__}")

    @staticmethod
    def _at_least(name: str, value: object, least: int) -> None:
        if not isinstance(value, int | float) or not math.isfinite(value) or value < least:
            raise ConfigurationError(f"{name} must be at least {least}, got {value!r}")

    @property
    def served(self) -> tuple[str, ...]:
        """The model names that it lists; one that serves every name lists its own."""
        return self.models or (self.name,)

    @property
    def limits_by_model(self) -> dict[str, KeyRateLimits]:
        """The rate limits of single models."""
        return dict(self.model_rate_limits)

    def tier(self, asked: str | None) -> ServiceTier:
        """Return the tier that a request gets; one that the provider does not know gets the default tier."""
        tiers = {name: tier for tier in self.service_tiers for name in (tier.name, *tier.aliases)}
        return tiers.get(asked or "default", tiers["default"])

    def changed(self, settings: Mapping[str, Any]) -> ProviderModel:
        """Return the model with other settings, of those that can change while it serves. Raises ConfigurationError."""
        known = {each.name for each in dataclasses.fields(self)} - _UNCHANGEABLE
        unknown = sorted(settings.keys() - known)
        if unknown:
            raise ConfigurationError(
                f"{unknown[0]} cannot be changed while it serves: what can is {', '.join(sorted(known))}"
            )
        return dataclasses.replace(self, **settings)

    def prefill_s(self, *, uncached_tokens: int, luck: float, tier: ServiceTier) -> float:
        """Return the seconds from leaving the queue to the first token; `luck` (0 to 1) picks the base's quantile."""
        assert isinstance(self.prefill_base_s, Quantiles)
        return (self.prefill_base_s.at(luck) + uncached_tokens * self.prefill_s_per_token) * tier.time_factor

    def mean_gap_s(self, *, luck: float, tier: ServiceTier) -> float:
        """Return the mean seconds between two tokens of one request; `luck` (0 to 1) picks the quantile."""
        assert isinstance(self.inter_token_s, Quantiles)
        return self.inter_token_s.at(luck) * tier.time_factor

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> ProviderModel:
        """Rebuild a model that `to_json` made."""
        return cls(**cls.values_of(settings))

    @staticmethod
    def values_of(settings: Mapping[str, Any]) -> dict[str, Any]:
        """Rebuild some settings that `to_json` made. Raises ConfigurationError for what cannot be."""
        values = dict(settings)
        try:
            for name in ("prefill_base_s", "inter_token_s"):
                if isinstance(values.get(name), Mapping):
                    values[name] = Quantiles(tuple(tuple(point) for point in values[name]["points"]))
            if "service_tiers" in values:
                values["service_tiers"] = tuple(ServiceTier(**tier) for tier in values["service_tiers"])
            if values.get("rate_limits") is not None:
                values["rate_limits"] = KeyRateLimits(**values["rate_limits"])
            if "model_rate_limits" in values:
                pairs = values["model_rate_limits"]
                pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
                values["model_rate_limits"] = tuple((name, KeyRateLimits(**limits)) for name, limits in pairs)
            if "models" in values:
                values["models"] = tuple(values["models"])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigurationError(f"settings of a provider must be as to_json writes them: {error}") from error
        return values
