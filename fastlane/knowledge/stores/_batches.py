"""What several events of one store look like on their way to the others, and which of them are new."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

_VERSION = 1
# An entry of what is kept costs the same for one event as for many, and what is kept is counted in entries.
MOST_EVENTS = 32
MOST_EVENT_BYTES = 4_096
_MOST_BYTES = 2 * MOST_EVENTS * MOST_EVENT_BYTES
# Larger whole numbers are not safe in JSON.
_MOST_NUMBER = 2**53
_MOST_SENDERS = 4_096


class Queued(NamedTuple):
    """An event that is to be sent."""

    published_ns: int
    """Monotonic nanoseconds."""
    event: bytes
    """Its JSON."""


class Batch(NamedTuple):
    """Consecutive events of one sender."""

    sender: str
    first: int
    """Number of the first event: each sender counts its own."""
    events: Sequence[Any]
    """Pairs of an age in seconds and an event, as far as they are that."""


def written(sender: str, first: int, queued: Sequence[Queued], now_ns: int) -> bytes:
    """Return consecutive events, the first of them with this number, as one text of JSON."""
    events = (b"[%.3f,%b]" % (max(0, now_ns - one.published_ns) / 1e9, one.event) for one in queued)
    return b'{"version":%d,"sender":"%b","first":%d,"events":[%b]}' % (
        _VERSION,
        sender.encode(),
        first,
        b",".join(events),
    )


def read(data: object) -> Batch | None:
    """Return what `written` has made a text of; None for anything else, and for other versions."""
    if not isinstance(data, bytes) or len(data) > _MOST_BYTES:
        return None
    try:
        batch = orjson.loads(data)
    except ValueError:
        return None
    if not isinstance(batch, dict) or batch.get("version") != _VERSION:
        return None
    sender, first, events = batch.get("sender"), batch.get("first"), batch.get("events")
    if not isinstance(sender, str) or len(sender) > 64 or not isinstance(events, list):
        return None
    if type(first) is not int or not 0 <= first <= _MOST_NUMBER:
        return None
    return Batch(sender, first, events)


class Seen:
    """Up to which number every sender's events have been seen.

    An answer that is lost makes a sender send again, and who has been away reads again what is kept: that is how each
    event is handed on once all the same.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def skip(self, sender: str, until: int) -> None:
        """Take a sender's events before this number for seen."""
        following = max(until, self._next.pop(sender, 0))
        self._next[sender] = following  # as the latest
        if len(self._next) > _MOST_SENDERS:
            del self._next[next(iter(self._next))]

    def new(self, batch: Batch) -> Iterator[tuple[dict[str, Any], float]]:
        """Yield the events that have not been seen, each with its age in seconds when it was sent."""
        following = self._next.get(batch.sender, 0)
        self.skip(batch.sender, batch.first + len(batch.events))
        for one in batch.events[max(0, following - batch.first) :]:
            match one:
                case [(int() | float()) as age_s, dict() as event] if 0 <= age_s < math.inf:
                    yield event, float(age_s)
