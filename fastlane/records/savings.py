"""What a call was spared, and what that cost: read out of its record, each figure with how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..engine.call import CallRecord
    from .urgency import UrgencyRecord

Basis = Literal["measured", "reported", "estimated", "predicted"]
"""How a figure is known.

- measured: stamped or counted here
- reported: the provider's own word, or worked out of it with the catalog's prices
- estimated: counted here in place of the provider, such as tokens that never came
- predicted: what a model of the network says of what did not happen
"""

HedgeOutcome = Literal["won", "lost"]


class Entry(NamedTuple):
    """One figure of a call's savings."""

    name: str
    value: bool | int | float | str
    unit: str
    """"s", "By", "{token}", "{call}", "{attempt}", "currency", or "" for a word or a yes and no."""
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What was saved on one call and what was spent for that; None for what did not happen or is not known.

    A hedge's seconds are not in here: how long the attempt that lost would have taken, nobody knows.
    """

    connection_reused: bool | None = None
    """Whether the answering attempt found its connection open."""
    request_bytes: int | None = None
    """Of the bodies of all attempts, as sent."""
    response_bytes: int | None = None
    """Of the bodies of all answers, as received."""
    encoding_bytes: int | None = None
    """By which the body was smaller than its JSON; below 0 where it was larger. None where it went out as JSON."""
    encoding_s: float | None = None
    """Seconds by which the answer should have come earlier for that, CPU taken off."""
    encoding_cpu_s: float | None = None
    """Spent: CPU seconds for writing another form than JSON, also where it was not sent in the end."""
    cache_expected_tokens: int | None = None
    """Tokens of the prompt that the provider's cache should have held."""
    cache_read_tokens: int | None = None
    """Tokens of the prompt that were read from it."""
    curation_tokens: int | None = None
    """Tokens that were cut from the conversation."""
    short_names_tokens: int | None = None
    """Tokens that short names saved in the answer."""
    tokens_not_generated: int | None = None
    """Tokens between the early stop and the request's limit, which a model that runs on would have generated."""
    shared_tokens: int | None = None
    """Tokens, input and output, of an answer that was generated for an identical call."""
    rejected_answers: int | None = None
    """Spent: answers that were not valid, and were asked for again."""
    rejected_tokens: int | None = None
    """Spent: tokens of these answers and of their prompts."""
    rejected_estimated: bool = False
    """Whether some of these counts are estimates."""
    hedge: HedgeOutcome | None = None
    """Whether the second attempt brought the first content; None where none was made, or none brought any."""
    hedge_tokens: int | None = None
    """Spent: tokens that the attempt which lost has read and generated."""
    hedge_price: float | None = None
    """Spent: what that cost, in the catalog's currency."""
    fallbacks: int | None = None
    """Upstreams that were tried and left for the next one; None for a call that was not routed."""
    price: float | None = None
    """What the answer cost, in the catalog's currency; None for a call that was not routed."""
    tier_asked: str | None = None
    """The tier that the call asked for last; None without the `Urgency` play."""
    tier: str | None = None
    """The tier that served the call."""
    tier_downgraded: bool | None = None
    """Whether that is slower than the one asked for; None where one of them is not known."""
    queue_s: float | None = None
    """Spent: seconds in fastlane's own queue; None without the `Urgency` play."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is known, in the order of the fields, each with how it is known."""
        found = []
        for name, (unit, basis) in FIGURES.items():
            value = getattr(self, name)
            if value is not None:
                if name == "rejected_tokens" and self.rejected_estimated:
                    basis = "estimated"
                found.append(Entry(name, value, unit, basis))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """What is known as plain JSON data: {"encoding_bytes": {"value": 40960, "unit": "By", "basis": "measured"}}."""
        return {entry.name: {"value": entry.value, "unit": entry.unit, "basis": entry.basis} for entry in self.entries}


FIGURES: dict[str, tuple[str, Basis]] = {
    "connection_reused": ("", "measured"),
    "request_bytes": ("By", "measured"),
    "response_bytes": ("By", "measured"),
    "encoding_bytes": ("By", "measured"),
    "encoding_s": ("s", "predicted"),
    "encoding_cpu_s": ("s", "measured"),
    "cache_expected_tokens": ("{token}", "estimated"),
    "cache_read_tokens": ("{token}", "reported"),
    "curation_tokens": ("{token}", "estimated"),
    "short_names_tokens": ("{token}", "estimated"),
    "tokens_not_generated": ("{token}", "estimated"),
    "shared_tokens": ("{token}", "reported"),
    "rejected_answers": ("{call}", "measured"),
    "rejected_tokens": ("{token}", "reported"),
    "hedge": ("", "measured"),
    "hedge_tokens": ("{token}", "estimated"),
    "hedge_price": ("currency", "estimated"),
    "fallbacks": ("{attempt}", "measured"),
    "price": ("currency", "reported"),
    "tier_asked": ("", "measured"),
    "tier": ("", "reported"),
    "tier_downgraded": ("", "reported"),
    "queue_s": ("s", "measured"),
}
"""Every figure's unit, and how it is known."""


def savings_of(record: CallRecord) -> Savings:
    """What was saved on a call, by its record."""
    encoding, cache, curation = record.encoding, record.prompt_cache, record.curation
    output, hedging, routing, urgency = record.output, record.hedging, record.routing, record.urgency
    encoded = encoding if encoding is not None and encoding.form != "json" else None
    rejected = output.rejected if output is not None else ()
    hedged = hedging is not None and hedging.hedged
    estimated = record.usage.estimated
    is_shared = urgency is not None and urgency.shared_with is not None
    return Savings(
        connection_reused=record.connection_reused,
        request_bytes=_sum(attempt.request_body_bytes for attempt in record.attempts),
        response_bytes=_sum(one.response_body_bytes for one in record.attempts if one.kind != "shared"),
        encoding_bytes=encoded.plain_bytes - encoded.sent_bytes if encoded is not None else None,
        encoding_s=encoded.predicted_saving_s if encoded is not None else None,
        encoding_cpu_s=encoding.cpu_s if encoding is not None and encoding.cpu_s > 0 else None,
        cache_expected_tokens=cache.expected_tokens if cache is not None else None,
        cache_read_tokens=record.usage.cached_tokens if not estimated and not is_shared else None,
        curation_tokens=curation.tokens_before - curation.tokens_after
        if curation is not None and curation.cuts
        else None,
        short_names_tokens=output.compact_saved_tokens if output is not None else None,
        tokens_not_generated=output.tokens_not_generated if output is not None and not is_shared else None,
        shared_tokens=_sum((record.usage.input_tokens, record.usage.output_tokens)) if is_shared else None,
        rejected_answers=len(rejected) or None,
        rejected_tokens=_sum(count for one in rejected for count in (one.input_tokens, one.output_tokens)),
        rejected_estimated=any(one.estimated for one in rejected),
        hedge=("won" if hedging.won else "lost")
        if hedged and hedging is not None and hedging.won is not None
        else None,
        hedge_tokens=(_sum((hedging.extra_input_tokens, hedging.extra_output_tokens)) if hedging is not None else None),
        hedge_price=hedging.extra_price if hedging is not None else None,
        fallbacks=len(routing.fallbacks) if routing is not None else None,
        price=routing.price if routing is not None else None,
        tier_asked=urgency.asked_tier if urgency is not None else None,
        tier=urgency.served_tier if urgency is not None else record.service_tier,
        tier_downgraded=_downgraded(urgency),
        queue_s=urgency.admission.waited_s if urgency is not None and urgency.admission is not None else None,
    )


def _downgraded(urgency: UrgencyRecord | None) -> bool | None:
    if urgency is None or urgency.asked_tier is None or urgency.served_tier is None:
        return None
    return urgency.downgraded


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None where nothing is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
