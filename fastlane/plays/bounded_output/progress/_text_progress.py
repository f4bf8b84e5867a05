"""Say of text that is being streamed whether it has reached what the caller said it ends at."""

from __future__ import annotations

from collections.abc import Callable

from fastlane.records.output import StopReason


class TextProgress:
    """One text, fed piece by piece.

    It ends before the first of the stop sequences, wherever pieces are cut, or behind what `stop_when` was shown when
    it first said so. What `stop_when` raises is the caller's to see.
    """

    __slots__ = ("_longest", "_parts", "_reason", "_size", "_stop", "_stop_when", "_tail", "end", "problem")

    def __init__(self, stop: tuple[str, ...] = (), stop_when: Callable[[str], bool] | None = None) -> None:
        self.end: int | None = None
        """Where to cut it, in characters; None as long as it goes on."""
        self.problem: str | None = None
        """Always None: a text cannot be wrong."""
        self._stop = tuple([sequence for sequence in stop if sequence])
        self._longest = max(map(len, self._stop), default=0)
        self._stop_when = stop_when
        self._reason: StopReason | None = None
        self._parts: list[str] = []
        self._size = 0
        # The end of what came before, in which a stop sequence may have begun.
        self._tail = ""

    @property
    def text(self) -> str:
        """All text fed."""
        if len(self._parts) != 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]

    def feed(self, text: str) -> StopReason | None:
        """Read on; return why the stream can be closed, None as long as it cannot."""
        self._parts.append(text)
        if self._reason is not None or not text:
            return self._reason
        if self._stop:
            seen = self._tail + text
            found = [at for sequence in self._stop if (at := seen.find(sequence)) >= 0]
            if found:
                self.end = self._size - len(self._tail) + min(found)
                self._reason = "stop_sequence"
                return self._reason
            self._tail = seen[-(self._longest - 1) :] if self._longest > 1 else ""
        self._size += len(text)
        if self._stop_when is not None and self._stop_when(self.text):
            self.end = self._size
            self._reason = "stop_when"
        return self._reason
