"""The savings and costs of a call, read from its record, each figure with its basis."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from .ledger import Entry, Figure, sum_of_known
from .section import section_classes

if TYPE_CHECKING:
    from .record import CallRecord

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
    """The savings and costs of one call; None for what did not happen or is unknown.

    The seconds saved by a hedge are not included: how long the losing attempt would have taken is unknown.
    """

    connection_reused: bool | None = None
    """Whether the answering attempt reused a connection."""
    request_bytes: int | None = None
    """Bytes of the bodies of all attempts, as sent."""
    response_bytes: int | None = None
    """Bytes of the bodies of all responses, as received."""
    encoding_bytes: int | None = None
    """Bytes saved by encoding the body; negative if it was larger than its JSON. None if it was sent as JSON."""
    encoding_s: float | None = None
    """Seconds by which the answer should have come earlier for that, CPU taken off."""
    encoding_cpu_s: float | None = None
    """Spent: CPU seconds for encoding the body, even if it was sent as JSON in the end."""
    cache_expected_tokens: int | None = None
    """Tokens of the prompt that the provider's cache should have held."""
    cache_read_tokens: int | None = None
    """Tokens of the prompt that were read from it."""
    trimmed_tokens: int | None = None
    """Tokens that were cut from the conversation."""
    tokens_not_generated: int | None = None
    """Tokens between the early stop and the request's limit, which the model may have generated otherwise."""
    rejected_answers: int | None = None
    """Spent: invalid answers that were re-asked."""
    rejected_tokens: int | None = None
    """Spent: tokens of these answers and their prompts."""
    rejected_estimated: bool = False
    """Whether some of these counts are estimates."""
    hedge: HedgeOutcome | None = None
    """Whether the second attempt brought the first content; None where none was made, or none brought any."""
    hedge_tokens: int | None = None
    """Spent: input and output tokens of the losing attempt."""
    hedge_price: float | None = None
    """Spent: the price of these tokens, in the catalog's currency."""
    fallbacks: int | None = None
    """The number of upstreams that failed before the answering one; None for a call that was not routed."""
    price: float | None = None
    """The price of the answer, in the catalog's currency; None for a call that was not routed."""
    tier_asked: str | None = None
    """The last requested service tier; None without the `Urgency` play."""
    tier: str | None = None
    """The tier that served the call."""
    tier_downgraded: bool | None = None
    """Whether the served tier is slower than the requested one; None if one of them is unknown."""
    queue_s: float | None = None
    """Spent: seconds in fastlane's own queues; None without the plays `Urgency` and `RateLimits`."""
    further: tuple[Entry, ...] = ()
    """The figures of other plays, such as your own."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The known figures with their basis, in the order of the fields."""
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
        """Return the known figures as JSON: {"encoding_bytes": {"value": 40960, "unit": "By", "basis": "measured"}}."""
        return {entry.name: {"value": entry.value, "unit": entry.unit, "basis": entry.basis} for entry in self.entries}


FIELDS = tuple([one.name for one in fields(Savings) if one.name not in ("rejected_estimated", "further")])
"""The names of the figures that `Savings` has a field for."""


def figures() -> dict[str, Figure]:
    """Return every figure: those of `Savings` in the order of its fields, then those of other plays."""
    found = dict(_OF_EVERY_CALL)
    for section in section_classes():
        found.update(section.figures)
    return {name: found[name] for name in (*FIELDS, *found) if name in found}


def savings_of(record: CallRecord) -> Savings:
    """Read the savings of a call from its record."""
    cached = None if record.usage.estimated else record.usage.cached_tokens
    found: dict[str, Any] = {
        "connection_reused": record.connection_reused,
        "request_bytes": sum_of_known(attempt.request_body_bytes for attempt in record.attempts),
        "response_bytes": sum_of_known(one.response_body_bytes for one in record.attempts),
        "cache_read_tokens": cached,
        "tier": record.service_tier,
        "queue_s": record.queued_s,
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
