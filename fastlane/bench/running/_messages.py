"""What the processes of a run send to each other: all of it can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.errors import FastlaneError

from ..recorded import SampleKey


class RunFailedError(FastlaneError):
    """A run that gave no usable figures: the message says what happened. It is the last message of a worker."""


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request for a worker to send: at its intended time, or at once if it has none."""

    place: SampleKey
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's request has ended; its Sample comes once the worker has time for it."""

    tag: str


@dataclass(frozen=True, slots=True)
class BeginCell:
    """Order a worker to collect garbage and then probe itself. The worker sends it back when it has begun."""


@dataclass(frozen=True, slots=True)
class EndCell:
    """Order a worker to send the samples that it has kept, and its Vitals since BeginCell."""

    cell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The first message of a worker: its client was made; see ArmInfo."""

    client: str
    plays: tuple[str, ...] | None
