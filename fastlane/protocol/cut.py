"""Where the texts of an answer start and end after we closed its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .content import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCut:
    """The parts of an answer's texts that count after we closed its stream."""

    ends: Mapping[Channel, int] = field(default_factory=dict)
    """Characters to keep of each channel's text. Absent: all."""
    starts: Mapping[Channel, int] = field(default_factory=dict)
    """Characters to drop at the start of each channel's text (a code fence). Absent: none."""
    usage: Mapping[str, Any] | None = None
    """Estimated usage in the endpoint's own field names, for an answer whose provider sent none."""

    def span(self, channel: Channel, length: int) -> slice:
        """Return which characters of a text of this length to keep."""
        end = min(length, max(0, self.ends.get(channel, length)))
        return slice(min(end, max(0, self.starts.get(channel, 0))), end)

    def text(self, channel: Channel, text: str) -> str:
        """Return what to keep of a text."""
        return text[self.span(channel, len(text))]

    def changes(self, channel: Channel) -> bool:
        """Return whether this channel's text can lose characters."""
        return channel in self.ends or channel in self.starts

    def tokens(self, channel: Channel, text: str, tokens: Sequence[Any]) -> slice:
        """Return which of a text's tokens start in the part to keep; for log probabilities.

        `tokens` are texts, or objects with a "token" and perhaps its "bytes": a token can be a part of a character.
        """
        span = self.span(channel, len(text))
        start, end = span.start, span.stop
        sizes = [_byte_count(token) for token in tokens]
        if None in sizes:
            sizes = [len(_token_text(token)) for token in tokens]
        else:
            start, end = _encoded_size(text[:start]), _encoded_size(text[:end])
        first = last = at = 0
        for number, size in enumerate(sizes, 1):
            first = number if at < start else first
            last = number if at < end else last
            at += size or 0
        return slice(first, max(first, last))


def _encoded_size(text: str) -> int:
    # JSON can carry half of a surrogate pair.
    return len(text.encode("utf-8", "surrogatepass"))


def _byte_count(token: Any) -> int | None:
    found = token.get("bytes") if isinstance(token, Mapping) else None
    return len(found) if isinstance(found, list) else None


def _token_text(token: Any) -> str:
    text = token.get("token") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else ""
