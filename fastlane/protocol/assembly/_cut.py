"""Where the texts of an answer begin and end, if not where the model began and ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._deltas import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The stream was closed by us: what of its texts is the answer."""

    ends: Mapping[Channel, int] = field(default_factory=dict)
    """Characters of each channel's text that are read; what stands behind them is left out. Absent: all."""
    starts: Mapping[Channel, int] = field(default_factory=dict)
    """Characters of each channel's text that are left out at its beginning (a fence). Absent: none."""
    usage: Mapping[str, Any] | None = None
    """Estimated, in the endpoint's own names. Counts where the provider's was cut off: some send it with each event."""

    def span(self, channel: Channel, length: int) -> tuple[int, int]:
        """Return from where to where a text of this length is kept."""
        end = min(length, max(0, self.ends.get(channel, length)))
        return min(end, max(0, self.starts.get(channel, 0))), end

    def of(self, channel: Channel, text: str) -> str:
        """Return what is kept of a text."""
        start, end = self.span(channel, len(text))
        return text[start:end]

    def concerns(self, channel: Channel) -> bool:
        """Whether anything of this text may be left out."""
        return channel in self.ends or channel in self.starts


def tokens_within(tokens: Sequence[Any], text: str, start: int, end: int) -> slice:
    """Return which of a text's tokens begin in text[start:end]; for log probabilities, which are told per token.

    `tokens` are texts, or objects with a "token" and perhaps its "bytes": a token may be a part of a character.
    """
    sizes = [_bytes_of(token) for token in tokens]
    if None in sizes:
        sizes = [len(_token_text(token)) for token in tokens]
    else:
        start, end = len(_encoded(text[:start])), len(_encoded(text[:end]))
    first = last = at = 0
    for number, size in enumerate(sizes, 1):
        if at < start:
            first = number
        if at < end:
            last = number
        at += size or 0
    return slice(first, max(first, last))


def _encoded(text: str) -> bytes:
    # JSON can carry half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")


def _bytes_of(token: Any) -> int | None:
    found = token.get("bytes") if isinstance(token, Mapping) else None
    return len(found) if isinstance(found, list) else None


def _token_text(token: Any) -> str:
    if isinstance(token, Mapping):
        token = token.get("token")
    return token if isinstance(token, str) else ""
