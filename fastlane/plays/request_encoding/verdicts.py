"""What was found out about the bodies that providers take: for all clients of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from fastlane._clock import now_ns
from fastlane.knowledge.table import Table

if TYPE_CHECKING:
    from fastlane.records.attempts import Form

MOST_KEYS = 2_000

Outcome = Literal["accepted", "refused", "undecided", "broken"]
"""accepted: read by a probe; refused; undecided: not to be told without spending tokens; broken: errors, no answer."""

# Providers change rarely, and what one takes can be found out again at the price of one small request; one that did not
# answer may have had a bad minute.
_DAY_S = 86_400
_LIFETIME_S: dict[Outcome, int] = {"accepted": 7 * _DAY_S, "refused": _DAY_S, "undecided": _DAY_S, "broken": 600}

# In a row, without an encoded body that was answered in between, before no more are sent for a while.
_MOST_FAILURES = 2
# A probe that has not come to an end after this long never will: its event loop was stopped.
_MOST_PROBING_S = 60.0


class Key(NamedTuple):
    """What a verdict is about."""

    origin: str
    endpoint: str
    """With what stands before it in the path: see `place_of()`."""
    form: Form


class Verdict(NamedTuple):
    """What is known of one form of body at one endpoint."""

    outcome: Outcome
    reason: str


_known: Table[Key, tuple[Verdict, int]] = Table("verdicts on bodies", max_entries=MOST_KEYS)
_failures: Table[Key, float] = Table("failures of encoded bodies", max_entries=MOST_KEYS, expires_s=_DAY_S)
_probing: Table[Key, object] = Table(
    "probes of bodies", max_entries=MOST_KEYS, expires_s=_MOST_PROBING_S, in_child="empty"
)


def verdict_on(key: Key) -> Verdict | None:
    """Return what is known and not too old."""
    known = _known.get(key)
    return known[0] if known is not None and now_ns() < known[1] else None


def decide_on(key: Key, verdict: Verdict) -> Verdict:
    """Remember what was found out just now."""
    _known.put(key, (verdict, now_ns() + _LIFETIME_S[verdict.outcome] * 10**9))
    _failures.pop(key)
    return verdict


def note_answer(key: Key) -> None:
    """Forget the failures before an encoded body that was answered: they had other reasons."""
    if _failures.get(key) is not None:
        _failures.pop(key)


def note_failure(key: Key, reason: str, weight: float = 1.0) -> None:
    """Count an error that may or may not be due to the form of a body; several in a row are."""
    if _failures.update(key, lambda failures: (failures or 0.0) + weight) >= _MOST_FAILURES:
        decide_on(key, Verdict("broken", reason))


def begin_probe(key: Key) -> bool:
    """Return whether the caller is the one to find out now: others go on without knowing."""
    mine = object()
    return _probing.update(key, lambda other: mine if other is None else other) is mine


def end_probe(key: Key) -> None:
    """Let others find out."""
    _probing.pop(key)
