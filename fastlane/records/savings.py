"""The savings and costs of a call, read from its record, each figure with its basis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .ledger import Entry, Figure, sum_of_known
from .section import section_classes

if TYPE_CHECKING:
    from .record import CallRecord

_OF_EVERY_CALL: dict[str, Figure] = {
    "connection_reused": Figure("", "measured"),
    "request_bytes": Figure("By", "measured", "bytes of requests' bodies, as sent"),
    "response_bytes": Figure("By", "measured", "bytes of answers' bodies, as received"),
    "cache_read_tokens": Figure("{token}", "reported", "prompt tokens read from caches"),
    "tier": Figure("", "reported"),
    "queue_s": Figure("s", "measured", "time in fastlane's own queues", is_spent=True),
}


def figures() -> dict[str, Figure]:
    """Return every figure: those of all calls, then those of plays."""
    found = dict(_OF_EVERY_CALL)
    for section in section_classes():
        found.update(section.figures)
    return found


def savings_of(record: CallRecord) -> dict[str, Entry]:
    """Read the savings and costs of a call from its record, by figure. What is unknown or did not happen is absent.

    The seconds saved by a hedge are not included: how long the losing attempt would have taken is unknown.
    """
    known: dict[str, Any] = {
        "connection_reused": record.connection_reused,
        "request_bytes": sum_of_known(attempt.request_body_bytes for attempt in record.attempts),
        "response_bytes": sum_of_known(one.response_body_bytes for one in record.attempts),
        "cache_read_tokens": None if record.usage.estimated else record.usage.cached_tokens,
        "tier": record.service_tier,
        "queue_s": record.queued_s,
    }
    found = _entries(known, _OF_EVERY_CALL)
    for section in record.sections:
        found.update(_entries(section.savings(record), section.figures))
    return found


def _entries(known: Mapping[str, Any], table: Mapping[str, Figure]) -> dict[str, Entry]:
    found = {}
    for name, value in known.items():
        figure = table.get(name)
        if isinstance(value, Entry):
            found[name] = value
        elif figure is not None and value is not None:
            found[name] = Entry(name, value, figure.unit, figure.basis)
    return found
