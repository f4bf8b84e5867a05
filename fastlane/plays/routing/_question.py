"""What one call asks of the model that is to answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastlane.knowledge.prediction._upstream import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What lies between this process and an origin now."""

    connect_s: float = 0.0
    """Seconds until a connection is open; 0 where one is."""
    upload_s: float = 0.0
    """Seconds from the request's first byte leaving here to its last byte arriving there."""
    round_trip_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call, as far as the choice of its model depends on it."""

    task: str | None = None
    min_quality: float | None = None
    """The least quality, in the units of the catalog's index."""
    min_pass_rate: float | None = None
    """The least share of passed evaluations of the task, 0 to 1."""
    quantile: float = 0.5
    """Which quantile of the predicted time counts."""
    endpoint: str = "/chat/completions"
    needs: frozenset[str] = frozenset()
    """Abilities of `fastlane.plays.routing.catalog` that the call cannot do without."""
    body_bytes: int = 0
    """Of the request as JSON."""
    input_tokens: float = 0.0
    """Tokens of the prompt, estimated alike for all models."""
    output_tokens: float | None = None
    """Tokens that the answer is likely to have, where its form says so; None: as the task's answers have had."""
    max_output_tokens: int | None = None
    """The caller's own limit."""
    cached_tokens: Mapping[Upstream, float] = field(default_factory=dict)
    """Tokens of the prompt that an upstream is expected to have in its cache; 0 where it is not named."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """By origin; an origin that is not named is taken for open and near."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Names of catalog models that cannot answer this call, and why, beyond what the catalog says."""
