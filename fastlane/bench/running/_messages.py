"""What the processes of a run say to each other: all of it can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.errors import FastlaneError

from ..recorded import Sample, SampleKey, Vitals


class RunFailedError(FastlaneError):
    """A run that gave no usable figures: the message says what happened. A worker says so too, as its last message."""


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request for a worker to send: at its place's intended time, or at once where it has none."""

    place: SampleKey
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settle:
    """Have a worker put its heap in order, and say so: it has sent its first request, and made what it needs."""


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's request is over; its Sample comes once the worker has time for it."""

    tag: str


@dataclass(frozen=True, slots=True)
class BeginCell:
    """Have a worker probe itself from now on."""


@dataclass(frozen=True, slots=True)
class EndCell:
    """Have a worker say how it fared since BeginCell."""

    cell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What a worker says first: its client was made."""

    client: str
    """Class of the client, such as "openai.AsyncOpenAI"."""
    plays: tuple[str, ...] | None
    """Fingerprints of the client's plays; None for a client that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnded:
    """The last event of a cell."""

    why: str
    """"finished", "ended early", "interrupted", or which part of the budget was spent."""
    duration_s: float
    abandoned: tuple[str, ...] = ()
    """Tags of requests that were cut off, of which there is no sample."""


@dataclass(frozen=True, slots=True)
class BlockDone:
    """Every arm has sent its request of one block: their samples, by the arm."""

    samples: Mapping[str, Sample]


Event = Sample | Vitals | BlockDone | CellEnded
