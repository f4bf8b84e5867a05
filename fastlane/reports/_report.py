"""The report on a client's calls: where their time went, how they ended, and what was saved."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ..records.ledger import Ledger
from ._groups import Group, answered, by_model, by_user_action, group_of
from ._ledger import ledger_of, openings
from ._levels import SectionGroup, by_level
from ._played import Played, plays_of

if TYPE_CHECKING:
    from ..records.record import CallRecord, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCalls:
    """Calls that ended in one way other than with an answer."""

    outcome: Outcome
    error: str | None
    """Class name of the error that was raised to the application."""
    status_code: int | None
    """Of the last attempt."""
    calls: int
    total_s: float
    """Seconds that they took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where the time of some calls went, and what was saved on them. `str()` of it is a table.

    Percentiles and phases are of the calls that were answered; those that were not are in `unanswered`.
    """

    everything: Group
    """All calls."""
    models: tuple[Group, ...]
    """By model and origin, the one that took most of the time first."""
    user_actions: tuple[Group, ...]
    """By the user actions around them; calls outside of any are not in here."""
    levels: Mapping[str, tuple[SectionGroup, ...]]
    """By the groups of a section, under its name, such as "urgency"; calls without the section are not in here."""
    plays: tuple[Played, ...]
    outcomes: Mapping[Outcome, int]
    """Calls by how they ended, the most frequent first."""
    unanswered: tuple[EndedCalls, ...]
    """The most frequent first."""
    attempts: Mapping[str, int]
    """Attempts of all calls by kind, the most frequent first."""
    ledger: Ledger
    filters: Mapping[str, Any]
    """What was asked for: `model`, `user_action`, `since_s`."""

    @property
    def urgency(self) -> tuple[SectionGroup, ...]:
        """By level of urgency, the most urgent first; calls of clients without the `Urgency` play are not in here."""
        return self.levels.get("urgency", ())

    @property
    def calls(self) -> int:
        """Calls, however they ended."""
        return self.everything.calls

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        return {
            "filters": dict(self.filters),
            "percentile_method": "linear",
            "everything": self.everything.to_dict(),
            "models": [group.to_dict() for group in self.models],
            "user_actions": [group.to_dict() for group in self.user_actions],
            **{name: [level.to_dict() for level in levels] for name, levels in self.levels.items()},
            "plays": [played.to_dict() for played in self.plays],
            "outcomes": dict(self.outcomes),
            "unanswered": [
                {
                    "outcome": ended.outcome,
                    "error": ended.error,
                    "status_code": ended.status_code,
                    "calls": ended.calls,
                    "total_s": ended.total_s,
                }
                for ended in self.unanswered
            ],
            "attempts": dict(self.attempts),
            "ledger": self.ledger.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        from ._sections import sections_of
        from ._text import text_of

        return text_of(sections_of(self))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from ._sections import sections_of
        from ._text import html_of

        return html_of(sections_of(self))


def report_of(
    records: Sequence[CallRecord],
    *,
    now_ns: int,
    model: str | None = None,
    user_action: str | None = None,
    since_s: float | None = None,
) -> Report:
    """Report on a client's calls, or on those of a model or a user action, or issued in the last `since_s` seconds.

    What opening a connection takes is learned from all of them. Raises ConfigurationError for a filter that is no text
    and no number of seconds above 0.
    """
    for name, text in (("model", model), ("user_action", user_action)):
        if text is not None and (not isinstance(text, str) or not text):
            raise ConfigurationError(f"report({name}=...) takes a name, or None for all, got {text!r:.60}")
    if since_s is not None and (isinstance(since_s, bool) or not isinstance(since_s, int | float) or not since_s > 0):
        raise ConfigurationError(f"report(since_s=...) takes seconds above 0, or None for all, got {since_s!r:.60}")
    kept = [
        record
        for record in records
        if (model is None or model in _names_of(record))
        and (user_action is None or user_action in record.user_actions)
        and (since_s is None or now_ns - record.timeline.started_ns <= since_s * 1e9)
    ]
    opening_s = openings(records)
    asked = {"model": model, "user_action": user_action, "since_s": since_s}
    return Report(
        everything=group_of(kept),
        models=by_model(kept),
        user_actions=by_user_action(kept),
        levels=by_level(kept),
        plays=plays_of(kept, opening_s),
        outcomes=dict(Counter(record.outcome for record in kept).most_common()),
        unanswered=_unanswered(kept),
        attempts=dict(Counter(attempt.kind for record in kept for attempt in record.attempts).most_common()),
        ledger=ledger_of(kept, opening_s),
        filters={name: value for name, value in asked.items() if value is not None},
    )


def _names_of(record: CallRecord) -> tuple[str | None, ...]:
    return (record.model, record.response_model, *[name for one in record.sections for name in one.model_names])


def _unanswered(records: Sequence[CallRecord]) -> tuple[EndedCalls, ...]:
    found: dict[tuple[Outcome, str | None, int | None], list[float]] = {}
    for record in records:
        if not answered(record):
            found.setdefault((record.outcome, record.error, record.status_code), []).append(record.duration_s)
    ended = [
        EndedCalls(outcome=outcome, error=error, status_code=status, calls=len(took), total_s=sum(took))
        for (outcome, error, status), took in found.items()
    ]
    return tuple(sorted(ended, key=lambda one: (-one.calls, one.outcome, one.error or "")))
