"""Whether everybody is slow, by the word of the other replicas."""

from __future__ import annotations

from typing import NamedTuple

# A replica's word counts for so long: those that see calls give it again with each.
_WORD_NS = 30_000_000_000
_MOST = 64


class _Word(NamedTuple):
    is_slow: bool
    at_ns: int


class Votes:
    """What each of the other replicas says of one upstream. Not thread-safe.

    Their words are counted, and not their calls: of a replica that has trouble of its own, all calls may be late, and
    it is one of many all the same.
    """

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: dict[str, _Word] = {}

    def note(self, name: str, is_slow: bool, at_ns: int) -> None:
        """A replica says whether most answers are late."""
        before = self._words.pop(name, None)
        if before is not None and before.at_ns > at_ns:
            is_slow, at_ns = before
        self._words[name] = _Word(is_slow, at_ns)
        if len(self._words) > _MOST:
            del self._words[next(iter(self._words))]

    def are_slow(self, now_ns: int, own: bool | None) -> bool:
        """Whether more than half of those who say anything say that most are late; `own` is this one's word, if any."""
        if not self._words:
            return False
        said = [word.is_slow for word in self._words.values() if now_ns - word.at_ns <= _WORD_NS]
        if own is not None:
            said.append(own)
        return 2 * sum(said) > len(said)
