"""Faults on demand: their small syntax, and which of them strike a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from types import MappingProxyType
from typing import Any

from ..errors import ConfigurationError

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "status": "answer with this HTTP status, e.g. status=429;retry_after=0.2",
        "stall": "after `after` tokens send nothing for this many seconds; without a number, for good",
        "drop": "after `after` tokens abort the connection (TCP reset)",
        "reset": "after `after` tokens reset the stream with error `code` (default 8, CANCEL); on HTTP/1.1 as drop",
        "goaway": "graceful: announce after `after` tokens that no later stream is served; hard: and close at once",
        "malformed": "after `after` tokens send one event that is not JSON; not streamed: a body that is not JSON",
        "slow_headers": "send the answer's headers this many seconds later",
        "idle_close": "close the connection when it has been idle for this many seconds after the answer",
        "idle_fin": "as idle_close, but without the GOAWAY that says goodbye on HTTP/2",
        "truncate": "after `after` tokens end the answer as if it were complete, without finish reason and [DONE]",
        "no_done": "leave out [DONE]",
        "no_usage": "leave out the usage",
        "early_role": "send the headers and the role chunk before prefill",
        "keepalive": "send the headers at once and an SSE comment every this many seconds until the first token",
        "refuse": "refuse the stream (REFUSED_STREAM); on HTTP/1.1 close the connection without an answer",
        "disconnect": "before any work break the connection off (TCP reset), over HTTP/2 too",
        "hang": "send nothing at all, not even headers, for this many seconds; without a number, for good",
        "delayed": "begin the work this many seconds later, even if the client leaves (not where it generates)",
        "lost_answer": "do the work, then break the connection off without an answer (not where it generates)",
        "misparse": "read the prompt (messages, input) as empty and answer that; misparse=all: lose the whole body",
    }
)
_VALUE_NEEDED = frozenset({"status", "slow_headers", "idle_close", "idle_fin", "keepalive", "delayed"})
_BEFORE_THE_BODY_IS_READ = frozenset({"disconnect", "hang"})
_ONLY = ("encoded",)
_INTEGERS = frozenset({"after", "code", "last", "times", "every"})
_NUMBERS = frozenset({"retry_after", "probability"})
_WORDS = frozenset({"only", "on"})
_SETTINGS = _INTEGERS | _NUMBERS | _WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. Raises ConfigurationError for an unknown kind or a setting that cannot work.

    `after` counts tokens already sent. `times` ends it after so many strikes, counted by the request's
    `x-emulator-tag` if it has one. `every` and `probability` pick requests when the fault is a rule of the server.
    `only="encoded"` spares requests whose body is plain JSON: such a fault knows the others by their headers alone,
    and `status` and `refuse` then strike before the body is read. `on="POST batches"` spares all other endpoints: a
    pattern as of file names (`files/*/content`) for the path without `/v1/`, with the method before it or without one.
    """

    kind: str
    value: float | str | None = None
    after: int = 0
    code: int = 8
    last: int | None = None
    retry_after: float | None = None
    times: int | None = None
    every: int | None = None
    probability: float | None = None
    only: str | None = None
    on: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigurationError(f"unknown fault {self.kind!r}: the known ones are {', '.join(KINDS)}")
        if self.kind == "goaway":
            if self.value not in ("graceful", "hard"):
                raise ConfigurationError(f"goaway must be graceful or hard, got {self.value!r}")
        elif self.kind == "misparse":
            if self.value not in (None, "all"):
                raise ConfigurationError(f"misparse takes no value but 'all', got {self.value!r}")
        elif self.value is None:
            if self.kind in _VALUE_NEEDED:
                raise ConfigurationError(f"fault {self.kind!r} needs a number, got none: write {self.kind}=NUMBER")
        elif isinstance(self.value, str) or self.value < 0:
            raise ConfigurationError(f"the value of fault {self.kind!r} must be a number from 0, got {self.value!r}")
        if self.kind == "status" and not 400 <= float(self.value or 0) <= 599:
            raise ConfigurationError(f"status must be from 400 to 599, got {self.value}")
        if self.kind == "keepalive" and not float(self.value or 0) > 0:
            raise ConfigurationError(f"keepalive must be above 0 seconds, got {self.value}")
        if self.every is not None and self.every < 1:
            raise ConfigurationError(f"every must be at least 1, got {self.every}")
        if self.probability is not None and not 0 <= self.probability <= 1:
            raise ConfigurationError(f"probability must be from 0 to 1, got {self.probability}")
        if self.only is not None and self.only not in _ONLY:
            raise ConfigurationError(f"only must be {' or '.join(_ONLY)}, got {self.only!r}: leave it out for all")
        if self.on is not None and (not self.on.strip() or set(self.on) & set(";,")):
            raise ConfigurationError(f"on must be a pattern like 'POST batches' or 'files/*', got {self.on!r}")

    @property
    def strikes_unread(self) -> bool:
        """Whether it strikes before the body is read, and so also where the body is not a valid request."""
        return self.kind in _BEFORE_THE_BODY_IS_READ or self.only is not None

    def concerns(self, target: str, *, encoded: bool) -> bool:
        """Whether it can strike a request to `target`, e.g. `POST batches`."""
        if self.only is not None and not encoded:
            return False
        if self.on is None:
            return True
        return fnmatchcase(target if " " in self.on else target.partition(" ")[2], self.on)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read `kind[=value][;setting=value…]`, e.g. `status=429;retry_after=0.2;times=2`.

        Raises ConfigurationError for a kind or a setting that there is not, and for a value that cannot be one.
        """
        head, *rest = (part.strip() for part in text.split(";"))
        kind, _, value = (part.strip() for part in head.partition("="))
        settings: dict[str, Any] = {"kind": kind, "value": _number_or_word(value) if value else None}
        for part in rest:
            name, _, given = (piece.strip() for piece in part.partition("="))
            if name not in _SETTINGS:
                known = ", ".join(sorted(_SETTINGS))
                raise ConfigurationError(f"unknown setting {name!r} of fault {kind!r}: the known ones are {known}")
            if name in _WORDS:
                settings[name] = given
                continue
            try:
                settings[name] = int(given) if name in _INTEGERS else float(given)
            except ValueError as error:
                raise ConfigurationError(f"{name} of fault {kind!r} must be a number, got {given!r}") from error
        return cls(**settings)

    def __str__(self) -> str:
        value = self.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        parts = [self.kind if value is None else f"{self.kind}={value}"]
        for field in dataclasses.fields(self)[2:]:
            given = getattr(self, field.name)
            if given != field.default:
                parts.append(f"{field.name}={given}")
        return ";".join(parts)


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def parse_all(text: str) -> tuple[Fault, ...]:
    """Read a comma-separated list of faults."""
    return tuple(Fault.parse(part) for part in text.split(",") if part.strip())


class FaultRules:
    """The server's own faults, and how often each fault has struck."""

    def __init__(self, rules: Iterable[Fault]) -> None:
        self.rules = tuple(rules)
        self._seen = [0] * len(self.rules)
        self._strikes: dict[tuple[str, Fault], int] = {}

    def striking(
        self, asked: tuple[Fault, ...], *, tag: str | None, random: Random, encoded: bool = False, target: str = ""
    ) -> tuple[Fault, ...]:
        """Return the faults that strike one request: those it asked for, then those of the rules."""
        concerned = (fault for fault in asked if fault.concerns(target, encoded=encoded))
        return tuple(
            fault
            for fault in (*concerned, *self._due(random, target, encoded=encoded))
            if fault.times is None or self._strike(tag or "", fault) <= fault.times
        )

    def _due(self, random: Random, target: str, *, encoded: bool) -> Iterable[Fault]:
        for index, rule in enumerate(self.rules):
            drawn = random.random()
            if not rule.concerns(target, encoded=encoded):
                continue
            self._seen[index] += 1
            if rule.every is not None and self._seen[index] % rule.every:
                continue
            if rule.probability is not None and drawn >= rule.probability:
                continue
            yield rule

    def _strike(self, tag: str, fault: Fault) -> int:
        # A client may send any number of tags: forget the oldest counts rather than grow without bound.
        if len(self._strikes) > 100_000:
            del self._strikes[next(iter(self._strikes))]
        count = self._strikes.get((tag, fault), 0) + 1
        self._strikes[(tag, fault)] = count
        return count
