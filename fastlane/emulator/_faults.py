"""Faults on demand: what can go wrong, and which faults strike a request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from random import Random
from typing import Literal

from fastlane.emulator.settings import Count, Seconds, Share, TextSettings, Whole

from ..engine.settings import settings
from ..errors import ConfigurationError

KINDS = (
    "status", "stall", "drop", "reset", "goaway", "malformed", "slow_headers", "idle_close", "idle_fin", "truncate",
    "no_done", "no_usage", "early_role", "keepalive", "refuse", "disconnect", "hang", "delayed", "lost_answer",
    "misparse", "evict", "slow_reader",
)  # fmt: skip
"""What can go wrong: docs/emulator.md says what each does."""
_VALUE_NEEDED = frozenset({"status", "slow_headers", "idle_close", "idle_fin", "keepalive", "delayed", "slow_reader"})
_BEFORE_THE_BODY_IS_READ = frozenset({"disconnect", "hang"})
_RANGES = {"status": (400, 599), "keepalive": (0.001, math.inf)}
_WORDS: Mapping[str, tuple[str | None, ...]] = {"goaway": ("graceful", "hard"), "misparse": (None, "all")}


@settings
class Fault(TextSettings):
    """One thing that goes wrong. Raises ConfigurationError for an unknown kind or a setting that cannot work.

    `after` counts tokens already sent; `after_bytes` counts bytes of the stream in their place, and `after_events` the
    events of a response on a WebSocket, whose connection then breaks. `times` ends it after
    so many strikes, counted by the request's `x-emulator-tag` if it has one. `every` and `probability` pick requests
    when the fault is a rule of the server. `only="encoded"` spares requests whose body is plain JSON: such a fault
    knows the others by their headers alone, and `status` and `refuse` then strike before the body is read.
    `on="POST batches"` spares all other endpoints: a pattern as of file names (`files/*/content`) for the path without
    `/v1/`, with the method before it or without one.
    """

    kind: str
    value: float | Literal["graceful", "hard", "all"] | None = None
    after: Whole = 0
    after_bytes: Whole | None = None
    after_events: Whole | None = None
    code: Whole = 8
    last: int | None = None
    retry_after: Seconds | None = None
    times: Whole | None = None
    every: Count | None = None
    probability: Share | None = None
    only: Literal["encoded"] | None = None
    on: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigurationError(f"unknown fault {self.kind!r}: the known ones are {', '.join(KINDS)}")
        words = _WORDS.get(self.kind)
        if words is not None:
            if self.value not in words:
                raise ConfigurationError(f"{self.kind} takes {' or '.join(map(str, words))}, got {self.value!r}")
        elif isinstance(self.value, str) or (self.value is None and self.kind in _VALUE_NEEDED):
            raise ConfigurationError(f"fault {self.kind!r} needs a number, got {self.value}: write {self.kind}=NUMBER")
        least, most = _RANGES.get(self.kind, (0, math.inf))
        if isinstance(self.value, float | int) and not least <= self.value <= most:
            raise ConfigurationError(f"fault {self.kind!r} takes a number from {least:g} to {most:g}, got {self.value}")

    @property
    def seconds(self) -> float:
        return float(self.value or 0)

    @property
    def strikes_unread(self) -> bool:
        """Whether it strikes before the body is read, and so also where the body is not a valid request."""
        return self.kind in _BEFORE_THE_BODY_IS_READ or self.only is not None

    def concerns(self, target: str, *, encoded: bool) -> bool:
        if self.only is not None and not encoded:
            return False
        return self.on is None or fnmatchcase(target if " " in self.on else target.partition(" ")[2], self.on)


def parse_faults(text: str) -> tuple[Fault, ...]:
    return tuple(Fault.parse(part) for part in text.split(",") if part.strip())


def read_faults(faults: Iterable[Fault | str]) -> list[Fault]:
    """Return faults that are given as such or as text. Raises ConfigurationError."""
    return [Fault.parse(fault) if isinstance(fault, str) else fault for fault in faults]


class FaultRules:
    """The server's own faults, and how often each fault has struck."""

    def __init__(self, rules: Iterable[Fault]) -> None:
        self.rules = tuple(rules)
        self._seen = [0] * len(self.rules)
        self._strikes: Counter[tuple[str, Fault]] = Counter()

    def striking(
        self, asked: tuple[Fault, ...], *, tag: str | None, random: Random, encoded: bool, target: str
    ) -> tuple[Fault, ...]:
        """Return the faults that strike one request: those it asked for, then those of the rules."""
        found = [fault for fault in asked if fault.concerns(target, encoded=encoded)]
        for index, rule in enumerate(self.rules):
            drawn = random.random()
            if not rule.concerns(target, encoded=encoded):
                continue
            self._seen[index] += 1
            if self._seen[index] % (rule.every or 1) == 0 and (rule.probability is None or drawn < rule.probability):
                found.append(rule)
        striking = []
        for fault in found:
            self._strikes[tag or "", fault] += 1
            if fault.times is None or self._strikes[tag or "", fault] <= fault.times:
                striking.append(fault)
        return tuple(striking)
