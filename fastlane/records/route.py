"""What the record of a call says of the model that was chosen for it, and of its second chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .section import RecordSection


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingCandidate:
    """One model of the catalog, as the decision saw it. Seconds."""

    model: str
    """As the catalog names it."""
    provider: str
    origin: str
    quality: float | None
    """In the units of the catalog's index."""
    predicted_s: float | None = None
    """At the quantile that was asked for; None where it was not eligible."""
    connect_s: float | None = None
    upload_s: float | None = None
    first_token_s: float | None = None
    decode_s: float | None = None
    cached_tokens: int | None = None
    """Tokens of the prompt that its cache was expected to have."""
    why_not: str | None = None
    """Why it was not eligible; None where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """An upstream that was tried and left for the next one."""

    model: str
    """As the catalog names it."""
    origin: str
    why: str
    """"connection", "rate_limit", "server", "timeout", "empty", "denied", "too_long", "unfit" or
    "queue" (our own had no place for it): see docs/plays/routing.md."""
    after_s: float
    """Seconds that the call had taken by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRecord(RecordSection):
    """Which models could have answered a call, which one was chosen, and what came of it."""

    name: ClassVar[str] = "routing"

    asked: str
    """What stood in the place of the model: "fastlane/auto…"."""
    task: str | None
    min_quality: float | None
    min_pass_rate: float | None
    """With which, where there is one, evaluations of the task outweigh the index: see docs/catalog.md."""
    quantile: float
    reason: Literal["fastest", "only", "explored", "probed"]
    """Why the first choice was made."""
    candidates: tuple[RoutingCandidate, ...]
    """The eligible ones first, the fastest of them first, or who rests the shortest where all rest after failures; then
    the others."""
    chosen: str
    """The model that was tried first, as the catalog names it."""
    model: str | None
    """The model that answered, as the catalog names it; None where none did."""
    provider: str | None
    predicted_s: float | None
    """What was predicted for the first choice, at the quantile."""
    predicted_first_token_s: float | None
    """From the call's start to its first token, by the same prediction."""
    actual_s: float | None
    """What the call took, API end-to-end; None where no answer came."""
    fallbacks: tuple[Fallback, ...] = ()
    body_bytes: int = 0
    """Of the call's body as JSON, as the application gave it."""
    input_tokens: int = 0
    """Tokens of the prompt, as estimated for the decision."""
    price: float | None = None
    """What the answer cost by the catalog's prices, in the catalog's currency; None where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgingRecord(RecordSection):
    """Whether a call was given a second chance, and what came of it."""

    name: ClassVar[str] = "hedging"

    delay_s: float | None
    """Seconds without a first token after which a second attempt was to be made; None where none was."""
    hedged: bool
    """Whether it was made."""
    won: bool | None
    """Whether it brought the first content; None where it was not made."""
    why_not: str | None
    """Why no second attempt was to be made, or was not made though the first was late."""
    origin: str | None = None
    """Where the second attempt went."""
    model: str | None = None
    extra_input_tokens: int | None = None
    """Tokens of the prompt that the attempt which lost has read, estimated."""
    extra_output_tokens: int | None = None
    """Tokens that it had generated until it was reset, estimated."""
    extra_price: float | None = None
    """What that cost by the catalog's prices; None where there are none."""
