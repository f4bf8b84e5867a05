"""How long a connection lives while nobody uses it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._clock import now_ns
from ._findings import ProviderFinding
from ._line import Goodbye, HostAddress, LineError, opened
from ._session import DoctorSession

# Of the longest pause: each of these is tried on a connection of its own, all at the same time.
_SHARES = (0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """One idle spell of one connection."""

    pause_s: float
    """How long the connection was to be left alone."""
    goodbye: Goodbye | None = None
    """How the server left in the meantime; None if it did not, as far as could be seen from here."""
    after_s: float | None = None
    """When it left, in seconds since the last answer."""
    answered: bool | None = None
    """Whether a request after the pause was answered on the same connection; None where none was sent."""
    error: str | None = None
    """Class name of what kept the connection from being tried at all."""


def pauses(idle_s: float) -> tuple[float, ...]:
    """The pauses to try for a longest one."""
    return tuple(round(idle_s * share, 3) for share in _SHARES) if idle_s else ()


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Leave connections alone for growing pauses, at the same time, and use each again."""
    address = session.steps.answering[0][0]
    wanted = pauses(session.settings.idle_s)
    spells: list[Spell] = []
    threads = [
        threading.Thread(
            target=lambda pause: spells.append(_spell(session, address, pause)), args=(pause,), daemon=True
        )
        for pause in wanted
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield judge(spells)


def _spell(session: DoctorSession, address: HostAddress, pause_s: float) -> Spell:
    settings = session.settings
    path = f"{settings.target.path}/models"
    try:
        with opened(settings.target, address, "prefer", settings.timeout_s) as line:
            line.get(path, settings.headers, settings.timeout_s)
            started = now_ns()
            if not line.stays_open:
                return Spell(pause_s=pause_s, goodbye="closed", after_s=0.0)
            goodbye = line.goodbye_within(pause_s)
            if goodbye is not None:
                return Spell(pause_s=pause_s, goodbye=goodbye, after_s=(now_ns() - started) / 1e9)
            try:
                line.get(path, settings.headers, settings.timeout_s)
            except (OSError, LineError):
                return Spell(pause_s=pause_s, answered=False)
            return Spell(pause_s=pause_s, answered=True)
    except (OSError, LineError) as error:
        return Spell(pause_s=pause_s, error=type(error).__name__)


def judge(spells: Sequence[Spell]) -> ProviderFinding:
    """What the spells say together."""
    tried = [spell for spell in spells if spell.error is None]
    left = sorted(spell.after_s for spell in tried if spell.after_s is not None)
    lived = max((spell.pause_s for spell in tried if spell.answered), default=0.0)
    dropped = sorted(spell.pause_s for spell in tried if spell.answered is False)
    value = {
        "closed_after_s": round(left[0], 3) if left else None,
        "how": next((spell.goodbye for spell in tried if left and spell.after_s == left[0]), None),
        "dropped_silently_within_s": dropped[0] if dropped else None,
        "at_least_s": lived or None,
    }
    if not tried:
        errors = ", ".join(sorted({str(spell.error) for spell in spells}))
        return _finding(f"could not be tried ({errors})", "failed", "", value)
    if left:
        words = {"goaway": "with a GOAWAY", "closed": "in good order", "reset": "by breaking it off"}
        seen = f"closed by the server after {left[0]:.1f} s without a call, {words[str(value['how'])]}"
        advice = f"Calls further apart than {left[0]:.1f} s pay for a new connection."
        return _finding(seen, "notable", advice, value)
    if dropped:
        advice = "Something on the way forgets connections without a word: a call then waits for a time-out or a reset."
        longest = f"after {lived:g} s it still answered" if lived else "it never answered again"
        return _finding(f"dead after {dropped[0]:g} s without a word, {longest}", "notable", advice, value)
    return _finding(f"at least {lived:g} s without a call: none was closed", "seen", "", value)


def _finding(seen: str, state: str, advice: str, value: object) -> ProviderFinding:
    return ProviderFinding(
        group="the connection",
        looked_at="idle life",
        seen=seen,
        state=state,  # type: ignore[arg-type]
        advice=advice,
        value=value,
    )
