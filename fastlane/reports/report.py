"""The report on a client's calls: where their time went, how they ended, and what was saved."""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ..records.ledger import Entry, Ledger, Total, counts_of
from ..records.savings import figures
from ..records.section import section_of
from .groups import Group, answered, group_of, grouped, groups_by
from .phases import opening_of
from .tables import text_of

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
class Played:
    """What one play did."""

    play: str
    """The name of its class."""
    on: int
    """Calls of clients that have it."""
    acted: int | None
    """Of these, the calls on which it did something; None if unknown."""
    effect: str | None
    """Its effect on these calls, by their records; None if there is none."""
    group: Group
    """The calls on which it did something. They differ from others in more than the play: what it is worth is for an
    A/B comparison to say."""


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
    plays: tuple[Played, ...]
    outcomes: Mapping[Outcome, int]
    """Calls by how they ended, the most frequent first."""
    unanswered: tuple[EndedCalls, ...]
    """The most frequent first."""
    attempts: Mapping[str, int]
    """Attempts of all calls by kind, the most frequent first."""
    warnings: Mapping[str, int]
    """Calls by what to look at ("cache miss, timestamp", "stream came in bursts"), the most frequent first."""
    ledger: Ledger
    filters: Mapping[str, Any]
    """The filters: `model`, `user_action`, `since_s`."""

    @property
    def calls(self) -> int:
        """Calls, however they ended."""
        return self.everything.calls

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        return {"percentile_method": "linear", **asdict(self), "ledger": self.ledger.to_dict()}

    def to_json(self, *, indent: int | None = None) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"


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
        models=groups_by(kept, lambda record: (("model", record.model), ("origin", record.origin))),
        user_actions=groups_by(
            [record for record in kept if record.user_actions],
            lambda record: (("user_action", " > ".join(record.user_actions)),),
        ),
        plays=_plays(kept, opening_s),
        outcomes=_most_frequent(record.outcome for record in kept),
        unanswered=_unanswered(kept),
        attempts=_most_frequent(attempt.kind for record in kept for attempt in record.attempts),
        warnings=_most_frequent(warning for record in kept for warning in _warnings_of(record)),
        ledger=ledger_of(kept, opening_s),
        filters={name: value for name, value in asked.items() if value is not None},
    )


def _names_of(record: CallRecord) -> tuple[str | None, ...]:
    return (record.model, record.response_model, *[name for one in record.sections for name in one.model_names])


def _warnings_of(record: CallRecord) -> list[str]:
    warnings = [one.warning for one in record.sections if one.warning]
    return warnings if record.bursts is None else [*warnings, "stream came in bursts"]


def _most_frequent(values: Iterable[Any]) -> dict[Any, int]:
    return dict(Counter(values).most_common())


def _unanswered(records: Sequence[CallRecord]) -> tuple[EndedCalls, ...]:
    found = grouped(
        [record for record in records if not answered(record)],
        lambda record: (record.outcome, record.error, record.status_code),
    )
    ended = []
    for (outcome, error, status), own in found.items():
        took_s = sum(record.duration_s for record in own)
        ended.append(EndedCalls(outcome=outcome, error=error, status_code=status, calls=len(own), total_s=took_s))
    return tuple(sorted(ended, key=lambda one: (-one.calls, one.outcome, one.error or "")))


def _plays(records: Sequence[CallRecord], opening_s: Mapping[str, float]) -> tuple[Played, ...]:
    """Return what each play did, in the order in which clients have them."""
    on: dict[str, list[CallRecord]] = {}
    for record in records:
        for name in dict.fromkeys([fingerprint.partition("(")[0] for fingerprint in record.plays]):
            on.setdefault(name, []).append(record)
    played = []
    for name, calls in on.items():
        section = section_of(name)
        known = [(record, None if section is None else section.acted(record)) for record in calls]
        acted = [record for record, did in known if did]
        count = len(acted) if any(did is not None for _, did in known) else None
        effect = section.effect(acted, ledger_of(acted, opening_s)) if section is not None and acted else None
        played.append(Played(play=name, on=len(calls), acted=count, effect=effect, group=group_of(acted)))
    return tuple(played)


# Savings


def openings(records: Iterable[CallRecord]) -> dict[str, float]:
    """Return the median seconds that opening a connection took at each origin."""
    found: dict[str, list[float]] = {}
    for record in records:
        for origin, took_s in opening_of(record):
            found.setdefault(origin, []).append(took_s)
    return {origin: median(took_s) for origin, took_s in found.items()}


def ledger_of(records: Sequence[CallRecord], opening_s: Mapping[str, float]) -> Ledger:
    """Add up the savings of some calls; `opening_s` is what opening a connection takes at each origin."""
    savings = [record.savings for record in records]
    origins = [record.attempts[-1].origin or record.origin for record in records if record.connection_reused]
    priced = [opening_s[origin] for origin in origins if origin in opening_s]
    reported = [record for record in records if not record.usage.estimated and record.usage.cached_tokens is not None]
    return Ledger(
        calls=len(records),
        totals=_totals(savings),
        counts=counts_of([entry for own in savings for entry in own.values()]),
        connections_saved_s=math.fsum(priced) if priced else None,
        connections_unpriced=len(origins) - len(priced),
        prompt_tokens_said=sum(record.usage.input_tokens or 0 for record in reported),
    )


def _totals(savings: Sequence[Mapping[str, Entry]]) -> tuple[Total, ...]:
    """Add up the figures that are numbers, in the order of `figures()`."""
    totals = []
    for name, figure in figures().items():
        found = [own[name] for own in savings if name in own and (figure.only_with is None or figure.only_with in own)]
        if not figure.unit or not found:
            continue
        values: list[Any] = [entry.value for entry in found]
        # fsum is exact, in whatever order the calls come.
        value = math.fsum(values) if any(isinstance(one, float) for one in values) else sum(values)
        basis = "estimated" if any(entry.basis == "estimated" for entry in found) else figure.basis
        totals.append(Total(name=name, value=value, unit=figure.unit, basis=basis, calls=len(found)))
    return tuple(totals)
