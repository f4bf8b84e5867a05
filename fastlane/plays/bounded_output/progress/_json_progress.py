"""Say of JSON that is being streamed whether it has ended, runs on, or can no longer become valid."""

from __future__ import annotations

from fastlane.records.output import StopReason

from ._json_reading import Reading, Stop
from ._json_steps import in_string, lead
from ._json_strings import plain
from ._nodes import Node


class JsonProgress:
    """One JSON text, fed piece by piece.

    Every value counts: one that a later property of the same name would replace has to be allowed too.
    """

    __slots__ = ("_free", "_most_length", "_parts", "_reading", "_reason", "problem")

    def __init__(self, node: Node, *, whitespace_run: int = 128) -> None:
        self.problem: str | None = None
        """What keeps the value from being valid or from coming to its end, by place and rule, without any text of it.
        What comes behind a value is no problem."""
        self._reading = Reading(node, whitespace_run, lead)
        self._reason: StopReason | None = None
        self._parts: list[str] = []
        self._free = False
        self._most_length: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the value has ended."""
        return self._reading.end is not None

    @property
    def start(self) -> int:
        """Where the value begins in all text fed, in characters: behind white space and a fence."""
        return max(0, self._reading.start)

    @property
    def begun(self) -> bool:
        """Whether the value has begun."""
        return self._reading.start >= 0

    @property
    def end(self) -> int | None:
        """Where it ended; None where it has not."""
        return self._reading.end

    @property
    def text(self) -> str:
        """All text fed."""
        if len(self._parts) != 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]

    def feed(self, text: str) -> StopReason | None:
        """Read on; return why the stream can be closed, None as long as it cannot.

        "complete" may become "whitespace", "prose" or "fence" with what follows; all others stay.
        """
        self._parts.append(text)
        reading = self._reading
        size = len(text)
        # Most of an answer is text of which at most the length is limited.
        if self._free and plain(text).end() == size:
            length = reading.length + size
            if self._most_length is None or length <= self._most_length:
                reading.length = length
                reading.before += size
                return None
        if self._reason is not None and self._reason != "complete":
            return self._reason
        if reading.held:
            text, reading.held = reading.held + text, ""
            reading.before -= len(text) - size
            size = len(text)
        at = 0
        try:
            while at < size:
                at = reading.step(reading, text, at)
        except Stop as stop:
            self._reason, self.problem = stop.reason, stop.problem
            self._free = False
            return self._reason
        reading.before += size
        if reading.end is not None:
            self._reason = "complete"
        self._free = reading.step is in_string and not reading.is_key and reading.values is None and not reading.held
        self._most_length = reading.most_length
        return self._reason
