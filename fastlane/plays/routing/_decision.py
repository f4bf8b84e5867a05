"""What was decided for one call, and on what grounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fastlane.knowledge.prediction._upstream import Upstream

Reason = Literal["fastest", "only", "explored", "probed"]
"""Why a model was chosen.

- fastest: the lowest predicted time of all that clear the bar
- only: no other was eligible
- explored: to see whether it is as fast as it may be by now
- probed: it had failed, and it is time to see whether it is back
"""


class Prediction(NamedTuple):
    """Seconds that a call is expected to take at an upstream, at the quantile that was asked for, part by part."""

    connect_s: float
    upload_s: float
    first_token_s: float
    """From the request's being there to the first token."""
    decode_s: float
    """From the first token to the last."""
    total_s: float
    """At the quantile; the parts are medians."""
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model of the catalog, as the decision saw it."""

    name: str
    """As the catalog names it."""
    upstream: Upstream
    prediction: Prediction | None = None
    """None where it was not eligible, unless it only rests after failures."""
    why_not: str | None = None
    """Why it was not eligible, in a few words; None where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome: `ranked[0]` is the choice, the others are what to fall back on, in order."""

    ranked: tuple[Candidate, ...]
    """Those that are eligible; empty where none is."""
    rejected: tuple[Candidate, ...]
    resting: tuple[Candidate, ...] = ()
    """Those that are left alone for now, beside others that are not: better than an error where all others fail."""
    reason: Reason | None
    """None where nothing is eligible."""
