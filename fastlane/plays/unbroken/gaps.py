"""How long the gaps between the events of a stream usually are."""

from __future__ import annotations

from fastlane.engine.call import Call
from fastlane.knowledge.table import Table

_WINDOW, _FEW = 64, 8
# Above the stalls of a provider that is in trouble, which are learned as well.
_USUAL = 0.8

Key = tuple[str, str | None, bytes]

_longest_s: Table[Key, tuple[float, ...]] = Table("longest gaps of streams", max_entries=2_000, expires_s=86_400)


def key_of(call: Call) -> Key:
    """Return the key of the gaps of a call: origin, model and account."""
    return call.origin, call.model, call.caller.account.here


def usual_gap_s(key: Key) -> float | None:
    """Return the gap that four of five streams stay within, in seconds; None as long as too few were seen."""
    longest = sorted(_longest_s.get(key) or ())
    return longest[int(_USUAL * len(longest))] if len(longest) >= _FEW else None


def note_gap(key: Key, longest_s: float) -> None:
    """Learn the longest gap of one stream, or for how long it has stalled."""
    _longest_s.update(key, lambda known: (*(known or ()), longest_s)[-_WINDOW:])
