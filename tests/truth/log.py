"""What a truth server really did: when it had each request whole, and the moment just before it sent each chunk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One request as the server lived it. Every `_ns` is `fastlane._clock.now_ns`; None means it has not happened."""

    tag: str
    """What the request's `x-request-id` header says, or its body's `user`; empty without either."""
    answer_id: str
    """The `id` of every chunk."""
    received_ns: int
    """The request had been read to its end."""
    role_ns: int | None
    """Just before the chunk with only a role was sent; likewise the others."""
    sent_ns: tuple[int, ...]
    """Just before each chunk with content was sent, a token a chunk."""
    ended_ns: int | None
    """The last byte had been sent."""
    due_ns: int
    """When the first content was to be sent."""
    gap_ns: int
    """How much later each further chunk was to be sent."""

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from the whole request to the first content."""
        return (self.sent_ns[0] - self.received_ns) / 1e9 if self.sent_ns else None

    @property
    def time_per_output_token_s(self) -> float | None:
        """Seconds between the first and the last content over tokens - 1; None below two."""
        if len(self.sent_ns) < 2:
            return None
        return (self.sent_ns[-1] - self.sent_ns[0]) / 1e9 / (len(self.sent_ns) - 1)

    @property
    def lateness_ms(self) -> tuple[float, ...]:
        """By how many milliseconds the server itself sent each content chunk late."""
        return tuple((sent - self.due_ns - at * self.gap_ns) / 1e6 for at, sent in enumerate(self.sent_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthLog:
    """All requests that a server has had since it was cleared, in the order in which they were whole."""

    answers: tuple[ServedRequest, ...]
    stalls: tuple[tuple[int, int], ...] = ()
    """From when to when the server did nothing at all."""

    def by_tag(self) -> Mapping[str, ServedRequest]:
        """Every request by its tag; of equal ones the last."""
        return {answer.tag: answer for answer in self.answers}


def read_log(lines: Iterable[str]) -> TruthLog:
    """Return the log of a truth server, one JSON object a line."""
    answers: list[ServedRequest] = []
    stalls: list[tuple[int, int]] = []
    for line in lines:
        entry: dict[str, Any] = json.loads(line)
        if "stall" in entry:
            begun, ended = entry["stall"]
            stalls.append((begun, ended))
            continue
        answers.append(
            ServedRequest(
                tag=entry["id"],
                answer_id=f"chatcmpl-{entry['number']:016d}",
                received_ns=entry["received"],
                role_ns=entry["role"] or None,
                sent_ns=tuple(entry["sent"]),
                ended_ns=entry["ended"] or None,
                due_ns=entry["first_due"],
                gap_ns=entry["gap"],
            )
        )
    return TruthLog(answers=tuple(answers), stalls=tuple(stalls))
