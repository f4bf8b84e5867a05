"""The text of a report: titles, notes, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..records.formatting import counted, duration, figure, percent
from ..records.savings import figures
from ..records.section import section_classes
from .groups import LEAST_FOR_P95, LEAST_FOR_P99, METRICS, Group, Percentiles

if TYPE_CHECKING:
    from ..records.ledger import Ledger, Total
    from .phases import Phase
    from .report import Report

_ROWS = 20
_WIDTH = 26
_EFFECT_WIDTH = 52
_BAR = 24
_LEAST_SHARE = 0.0005
"""Of the time: phases that took less are only named."""
_MOST_NAMED = 3
_AVOIDABLE: tuple[Phase, ...] = (
    "wait_for_place", "earlier attempts", "queue", "dns", "connect", "proxy", "tls", "hand over",
)  # fmt: skip


def text_of(report: Report) -> str:
    """Return the tables of a report, without those that would be empty."""
    everything, ledger = report.everything, report.ledger
    asked = {"model": "of {!r}", "user_action": "in {!r}", "since_s": "issued in the last {:g} s"}
    filters = "".join(f" {asked[name].format(value)}" for name, value in report.filters.items())
    if not report.calls:
        return f"No call{filters} has ended yet."
    title = f"{counted(report.calls, 'call')}{filters}, {everything.answered:,} answered"
    if everything.answered:
        title += f", {duration(everything.total_s)} in total"
    attempts = ", ".join(f"{count:,} {kind}" for kind, count in report.attempts.items())
    look_at = list(_look_at(report))
    sections = [
        _noted(title, [" \N{MIDDLE DOT} ".join(_summary(report)), *([f"attempts: {attempts}"] if attempts else [])]),
        _noted("Look at", look_at) if look_at else "",
        _phases(everything),
        _metrics(everything),
        _groups("By model", ("model", "origin"), report.models),
        _plays(report),
        _groups("By user action (their calls, not the time around these)", ("user_action",), report.user_actions),
        _unanswered(report),
        _savings(ledger),
        _ledger_table("Spent", _totals(ledger, are_spent=True)),
    ]
    if everything.answered:
        few = f"p95 from {LEAST_FOR_P95}, p99 from {LEAST_FOR_P99}"
        sections.append(f"Times without a name are p50. -: unknown, or of too few calls ({few}).")
    return "\n\n".join(filter(None, sections))


def _summary(report: Report) -> Iterator[str]:
    """Return the whole in one line: "56 % wait, 36 % decode", "p50 268 ms", "91 % cached", "1 failed"."""
    shares = {phase: found.share or 0.0 for phase, found in report.everything.phases.items()}
    longest = sorted(shares, key=lambda phase: -shares[phase])[:_MOST_NAMED]
    if named := [f"{percent(shares[phase])} {phase}" for phase in longest if shares[phase] >= 0.01]:
        yield ", ".join(named)
    if (whole := report.everything.metrics.get("duration_s")) is not None:
        yield f"p50 {duration(whole.p50)}"
    if report.ledger.hit_ratio is not None:
        yield f"{percent(report.ledger.hit_ratio)} of prompt tokens cached"
    yield from (f"{count:,} {outcome}" for outcome, count in report.outcomes.items() if outcome != "completed")


def _look_at(report: Report) -> Iterator[str]:
    """Return failures, the warnings of plays, and avoidable waits."""
    for ended in report.unanswered[:_MOST_NAMED]:
        if ended.outcome == "failed":
            yield f"{ended.error or ended.outcome}: {counted(ended.calls, 'call')}, {duration(ended.total_s)} in total"
    for warning, count in list(report.warnings.items())[:_MOST_NAMED]:
        yield f"{warning}: {counted(count, 'call')}; the calls' records say where"
    for phase in _AVOIDABLE:
        found = report.everything.phases.get(phase)
        if found is not None and (found.share or 0.0) >= 0.05:
            yield f"{phase.replace('_', ' ')}: {percent(found.share or 0.0)} of the time"


def _phases(group: Group) -> str:
    shares = {phase: found.share or 0.0 for phase, found in group.phases.items()}
    rows = [
        (
            phase.replace("_", " "),
            found.seconds.n,
            *_times(found.seconds),
            found.seconds.highest,
            _share(found.share),
            "#" * round(_BAR * shares[phase] / max(shares.values())),
        )
        for phase, found in group.phases.items()
        if shares[phase] >= _LEAST_SHARE
    ]
    rest = [phase for phase, share in shares.items() if share < _LEAST_SHARE]
    header = ("<phase", "calls", "p50", "p95", "p99", "highest", "of the time", "<")
    return _table("Where the time went", header, rows, [f"negligible: {', '.join(rest)}"] if rest else [])


def _metrics(group: Group) -> str:
    rows = []
    for name, found in group.metrics.items():
        values: list[Any] = [*_times(found), found.highest]
        if name == "decode_rate":
            values = [None if value is None else figure(value) for value in values]
        rows.append((METRICS[name], found.n, *values))
    return _table("Metrics", ("<metric", "calls", "p50", "p95", "p99", "highest"), rows)


def _groups(title: str, names: Sequence[str], groups: Sequence[Group]) -> str:
    rows = [
        (
            *(_clipped((getattr(group, name) or "-").removeprefix("https://").removesuffix(":443")) for name in names),
            group.calls,
            group.answered,
            *_times(group.metrics.get("time_to_first_token_s"))[:2],
            *_times(group.metrics.get("duration_s"))[:2],
            group.longest_phase and f"{group.longest_phase} {_share(group.phases[group.longest_phase].share)}",
        )
        for group in groups[:_ROWS]
    ]
    titles = [f"<{name.replace('_', ' ')}" for name in names]
    more = len(groups) - _ROWS
    header = (*titles, "calls", "answered", "first token", "p95", "duration", "p95", "<mostly")
    return _table(title, header, rows, [f"and {more:,} more"] if more > 0 else [])


def _plays(report: Report) -> str:
    rows = [
        (
            _clipped(played.play),
            played.on,
            played.acted,
            _times(played.group.metrics.get("duration_s"))[0],
            _clipped(played.effect or "-", _EFFECT_WIDTH),
        )
        for played in report.plays[:_ROWS]
    ]
    header = ("<play", "on", "acted", "duration p50", "<by the records")
    note = "Calls on which a play acted differ from others in more than that: only `fastlane bench` compares."
    return _table("By play (duration: of the calls on which it acted)", header, rows, [note])


def _unanswered(report: Report) -> str:
    rows = [
        (ended.outcome, _clipped(ended.error or "-"), ended.status_code, ended.calls, ended.total_s)
        for ended in report.unanswered[:_ROWS]
    ]
    header = ("<outcome", "<error", "status", "calls", "total")
    return _table("Not answered (in no percentile)", header, rows)


def _savings(ledger: Ledger) -> str:
    rows: list[Sequence[Any]] = []
    if ledger.connections_known:
        rows.append(("connections found open", ledger.connections_reused, ledger.connections_known, "measured"))
    if ledger.connections_saved_s is not None:
        priced = ledger.connections_reused - ledger.connections_unpriced
        rows.append(("time that opening these would have taken", ledger.connections_saved_s, priced, "estimated"))
    rows += _totals(ledger, are_spent=False)
    tiers = ledger.counts.get("tier", {})
    rows += [(f"tier: {_clipped(tier)}", "", calls, "reported") for tier, calls in tiers.items()]
    rows += [row for section in section_classes() for row in section.rows(ledger)]
    notes = []
    if ledger.connections_unpriced:
        notes.append(
            f"What opening a connection takes is not known for {counted(ledger.connections_unpriced, 'reused one')}: "
            "no call of this client waited for one there."
        )
    if ledger.hit_ratio is not None:
        notes.append(f"Read from caches: {percent(ledger.hit_ratio)} of {ledger.prompt_tokens_said:,} prompt tokens.")
    return _ledger_table("Savings", rows, notes)


def _totals(ledger: Ledger, *, are_spent: bool) -> list[Sequence[Any]]:
    return [
        (figure.label, _value(total), total.calls, total.basis)
        for name, figure in figures().items()
        if figure.label is not None and figure.is_spent == are_spent and (total := ledger.total(name)) is not None
    ]


def _value(total: Total) -> str:
    if total.unit == "s":
        return duration(total.value)
    return f"{total.value:,.6g}" if isinstance(total.value, float) else f"{total.value:,}"


def _ledger_table(title: str, rows: Sequence[Sequence[Any]], notes: Iterable[str] = ()) -> str:
    return _table(title, ("<what", "total", "calls", "<basis"), rows, notes)


# Cells


def _times(found: Percentiles | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if found is None else (found.p50, found.p95, found.p99)


def _share(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _clipped(text: str, width: int = _WIDTH) -> str:
    """Return a name on one line."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def _cell(value: str | float | None) -> str:
    """Return the text of a cell; a float is a duration in seconds."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else value


def _noted(title: str, notes: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {note}" for note in notes)])


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], notes: Iterable[str] = ()) -> str:
    """Return an aligned table; "" without rows. "<" before a column's title aligns it to the left."""
    if not rows:
        return ""
    cells = [[name.removeprefix("<") for name in header], *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    specs = [("<" if name.startswith("<") else ">") + str(width) for name, width in zip(header, widths, strict=True)]
    lines = ["  ".join(map(format, row, specs)).rstrip() for row in cells]
    return _noted(title, [*lines, *notes])
