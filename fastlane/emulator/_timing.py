"""A provider's own times of one answer, in the fields in which providers tell them."""

from __future__ import annotations

from collections.abc import Collection

from fastlane.emulator._reply import CREATED, NO_EXTRAS, Extras


def timing_fields(
    kinds: Collection[str], *, begun_ns: int, admitted_ns: int, first_token_ns: int, ended_ns: int
) -> Extras:
    """Return the fields of these kinds (see `Dialect.timing`), in seconds, from moments of one clock."""
    if not kinds:
        return NO_EXTRAS
    # A model without delays has its first token due before the request has left the queue.
    first_token_ns = min(max(first_token_ns, admitted_ns), ended_ns)
    times = {
        "queue_time": (admitted_ns - begun_ns) / 1e9,
        "prompt_time": (first_token_ns - admitted_ns) / 1e9,
        "completion_time": (ended_ns - first_token_ns) / 1e9,
        "total_time": (ended_ns - begun_ns) / 1e9,
    }
    return Extras(
        answer={"time_info": {**times, "created": CREATED}} if "time_info" in kinds else {},
        usage=times if "usage" in kinds else {},
    )
