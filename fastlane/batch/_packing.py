"""When waiting jobs go as a batch, how many of them, and the lines of its file: no I/O, no clock.

The storage chooses the jobs: those of one endpoint and one model, in the order in which they were submitted, as many as
both limits bear. All providers whose files may hold several models bear files with one, so nobody is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ..providers import Fact, ProviderFacts
from ._jobs import Group, JobBody

_T = TypeVar("_T")

# Of every provider with batches of this shape that has been looked up, the lower bounds: where facts are silent.
_MOST_REQUESTS = 50_000
_MOST_BYTES = 100_000_000
_WINDOW_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMode:
    """What a provider's batches bear."""

    endpoints: tuple[str, ...] | None = None
    """None where nobody has said which: all are tried."""
    metadata: bool = True
    most_requests: int = _MOST_REQUESTS
    most_bytes: int = _MOST_BYTES
    window_s: float = _WINDOW_S

    def takes(self, endpoint: str) -> bool:
        """Whether requests to an endpoint, such as "/v1/chat/completions", can be left in a batch."""
        return self.endpoints is None or endpoint in self.endpoints


def mode_of(facts: ProviderFacts, *, forced: bool = False) -> BatchMode | None:
    """Return what a provider's batches bear; None where it has none of the usual shape, unless that is `forced`."""
    batch = facts.batch
    if not forced and (batch.shape is None or batch.shape.value != "openai"):
        return None
    return BatchMode(
        endpoints=None if batch.endpoints is None else batch.endpoints.value,
        metadata=_said(batch.metadata, otherwise=True),
        most_requests=_said(batch.most_requests, otherwise=_MOST_REQUESTS),
        most_bytes=_said(batch.most_bytes, otherwise=_MOST_BYTES),
        window_s=_said(batch.window_s, otherwise=_WINDOW_S),
    )


def _said(fact: Fact[_T] | None, *, otherwise: _T) -> _T:
    return otherwise if fact is None or fact.value is None else fact.value


@dataclass(frozen=True, slots=True)
class Room:
    """How much may go into one batch."""

    requests: int
    bytes: int

    def halved(self) -> Room:
        """Half of it, and one request at least: after a batch was refused for its size."""
        return Room(max(1, self.requests // 2), max(1, self.bytes // 2))

    def doubled(self, most: Room) -> Room:
        """Twice as much, and `most` at most: after a batch of this size was taken."""
        return Room(min(most.requests, self.requests * 2), min(most.bytes, self.bytes * 2))


def goes_at(group: Group, room: Room, linger_s: float) -> float:
    """Return when a group's jobs go: at once where they fill a batch, else a while after the first came.

    In seconds since the epoch, by the storage's clock.
    """
    full = group.requests >= room.requests or group.bytes >= room.bytes
    return group.oldest_at if full else group.oldest_at + linger_s


def lines(bodies: Iterable[JobBody]) -> Iterator[bytes]:
    """Yield the lines of a batch's file."""
    for one in bodies:
        yield line(one.job.custom_id, one.job.endpoint, one.body)


def line(custom_id: str, endpoint: str, body: bytes) -> bytes:
    """Return one of them. `body` is JSON of one line."""
    return b'{"custom_id":%b,"method":"POST","url":%b,"body":%b}\n' % (
        json.dumps(custom_id).encode(),
        json.dumps(endpoint).encode(),
        body,
    )
