"""What was learned of the bodies that providers take, and of what compression leaves of them: for all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from fastlane._clock import now_ns
from fastlane.knowledge.table import Table

if TYPE_CHECKING:
    from fastlane.records.attempts import Form

_MAX_KEYS = 2_000
_DAY_S = 86_400
# In a row, without an encoded body that was answered in between, before no more are sent for a while.
_MAX_FAILURES = 2
# A trial that has not come to an end after this long never will: its event loop was stopped.
_MAX_TRIAL_S = 900.0
# The share of its bytes that gzip leaves of a JSON body of text: 3.2 to 4 times fewer for real source code
# (docs/plays/request_encoding.md). Until this process has seen what its own bodies are like.
_FIRST_SHARE = 0.27
_WEIGHT = 0.3
# Bodies may become other ones: a share is forgotten so long after a body was last compressed.
_SHARES_EXPIRE_S = 600.0

Outcome = Literal["accepted", "refused", "broken"]
"""accepted: answered, and the prompt was read; refused: JSON was taken and this was not; broken: errors, no answer."""

# Providers change rarely; one that did not answer may have had a bad minute.
_LIFETIMES_S: dict[Outcome, int] = {"accepted": 7 * _DAY_S, "refused": _DAY_S, "broken": 600}


class FormKey(NamedTuple):
    """What a verdict is about."""

    origin: str
    path: str
    """Of the request's address: one origin may lead to several servers."""
    form: Form


class FormVerdict(NamedTuple):
    """What is known of one form of body at one endpoint."""

    outcome: Outcome
    reason: str


_verdicts: Table[FormKey, tuple[FormVerdict, int]] = Table("verdicts on bodies", max_entries=_MAX_KEYS)
_failures: Table[FormKey, int] = Table("failures of encoded bodies", max_entries=_MAX_KEYS, expires_s=_DAY_S)
_trials: Table[FormKey, object] = Table(
    "trials of bodies", max_entries=_MAX_KEYS, expires_s=_MAX_TRIAL_S, in_child="empty"
)
_shares: Table[FormKey, float] = Table("compression shares", max_entries=_MAX_KEYS, expires_s=_SHARES_EXPIRE_S)


def verdict_on(key: FormKey) -> FormVerdict | None:
    """Return what is known and not too old."""
    known = _verdicts.get(key)
    return known[0] if known is not None and now_ns() < known[1] else None


def decide_on(key: FormKey, verdict: FormVerdict) -> None:
    """Remember what was found out just now."""
    _verdicts.put(key, (verdict, now_ns() + _LIFETIMES_S[verdict.outcome] * 10**9))
    _failures.pop(key)


def note_answer(key: FormKey) -> None:
    """Forget the failures before an encoded body that was answered: they had other reasons."""
    if _failures.get(key) is not None:
        _failures.pop(key)


def note_failure(key: FormKey, reason: str) -> None:
    """Count an error that may or may not be due to the form of a body; several in a row are."""
    if _failures.update(key, lambda failures: (failures or 0) + 1) >= _MAX_FAILURES:
        decide_on(key, FormVerdict("broken", reason))


def begin_trial(key: FormKey) -> bool:
    """Return whether the caller is the one to try this form now: others send JSON until its verdict is known."""
    mine = object()
    return _trials.update(key, lambda other: mine if other is None else other) is mine


def end_trial(key: FormKey) -> None:
    """Let others try."""
    _trials.pop(key)


def expected_share(key: FormKey) -> float:
    """Return the share of its bytes that gzip is expected to leave of the next body."""
    return min(1.0, _shares.get(key) or _FIRST_SHARE)


def learn_share(key: FormKey, share: float) -> None:
    """A body has shrunk to this share of its bytes."""
    _shares.update(key, lambda known: share if known is None else known + _WEIGHT * (share - known))
