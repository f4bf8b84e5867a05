"""What is fuzzed: a reader, what has to be true of whatever it is fed, and inputs that it reads to the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


class WrongError(AssertionError):
    """A reader made of an input what it must not."""


def holds(truth: object, what: str, *told: object) -> None:
    """Raise WrongError, with what came, where something that has to be true is not."""
    if not truth:
        raise WrongError(": ".join((what, *(f"{one!r:.2000}" for one in told))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One reader."""

    name: str
    check: Callable[[bytes], None]
    """Raises, WrongError or anything that the reader should not have, where an input shows a defect."""
    seeds: Callable[[], Sequence[bytes]]
    """Inputs made by code, from which others are made."""
    grown: Mapping[str, Callable[[int], Callable[[], object]]] = field(default_factory=dict)
    """By name: work on an input of so many bytes, of which the time may grow as the input does and no faster."""
