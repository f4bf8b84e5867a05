"""What a call was spared, and what that cost: read out of its record, each figure with how it is known."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from .ledger import Entry, Figure, sum_of_known
from .section import Recorded, queued_s_of, section_classes

HedgeOutcome = Literal["won", "lost"]

_OF_EVERY_CALL: dict[str, Figure] = {
    "connection_reused": Figure("", "measured"),
    "request_bytes": Figure("By", "measured", "bytes of requests' bodies, as sent"),
    "response_bytes": Figure("By", "measured", "bytes of answers' bodies, as received"),
    "cache_read_tokens": Figure("{token}", "reported", "prompt tokens read from caches"),
    "tier": Figure("", "reported"),
    "queue_s": Figure("s", "measured", "time in fastlane's own queues", is_spent=True),
}


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
    trimmed_tokens: int | None = None
    """Tokens that were cut from the conversation."""
    tokens_not_generated: int | None = None
    """Tokens between the early stop and the request's limit, which a model that runs on would have generated."""
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
    """Spent: seconds in fastlane's own queues; None without the plays `Urgency` and `RateLimits`."""
    further: tuple[Entry, ...] = ()
    """The figures of other plays, such as the application's own."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is known, in the order of the fields, each with how it is known."""
        table = figures()
        found = []
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None:
                figure = table[name]
                is_guess = name == "rejected_tokens" and self.rejected_estimated
                found.append(Entry(name, value, figure.unit, "estimated" if is_guess else figure.basis))
        return (*found, *self.further)

    def to_dict(self) -> dict[str, Any]:
        """What is known as plain JSON data: {"encoding_bytes": {"value": 40960, "unit": "By", "basis": "measured"}}."""
        return {entry.name: {"value": entry.value, "unit": entry.unit, "basis": entry.basis} for entry in self.entries}


FIELDS = tuple([one.name for one in fields(Savings) if one.name not in ("rejected_estimated", "further")])
"""The names of the figures that `Savings` has a field for."""


def figures() -> dict[str, Figure]:
    """Every figure: those of `Savings` in the order of its fields, then those of other plays."""
    found = dict(_OF_EVERY_CALL)
    for section in section_classes():
        found.update(section.figures)
    return {name: found[name] for name in (*FIELDS, *found) if name in found}


def savings_of(record: Recorded) -> Savings:
    """Read what was saved on a call out of its record."""
    cached = None if record.usage.estimated else record.usage.cached_tokens
    found: dict[str, Any] = {
        "connection_reused": record.connection_reused,
        "request_bytes": sum_of_known(attempt.request_body_bytes for attempt in record.attempts),
        "response_bytes": sum_of_known(one.response_body_bytes for one in record.attempts),
        "cache_read_tokens": cached,
        "tier": record.service_tier,
        "queue_s": queued_s_of(record.sections),
    }
    further = []
    for section in record.sections:
        for name, value in section.savings(record).items():
            if name in _SETTABLE:
                found[name] = value
            elif value is not None and (figure := section.figures.get(name)) is not None:
                further.append(Entry(name, value, figure.unit, figure.basis))
    return Savings(**found, further=tuple(further))


_SETTABLE = frozenset((*FIELDS, "rejected_estimated"))
