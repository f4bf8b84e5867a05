"""The tables of a report, as plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
"""Of the time: phases that took less in all are put together."""
_MOST_NAMED = 3
_AVOIDABLE: tuple[Phase, ...] = ("wait_for_place", "earlier attempts", "queue", "dns", "connect", "tls", "hand over")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """One table of a report; without rows, its notes alone."""

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    words: frozenset[int] = frozenset({0})
    """Columns that hold words and are aligned to the left; numbers are aligned to the right."""
    notes: tuple[str, ...] = ()


def tables_of(report: Report) -> tuple[TextTable, ...]:
    """The tables of a report, without those that would be empty."""
    if not report.calls:
        return (TextTable(title=f"No call is over{_asked(report)} yet."),)
    found = [
        _head(report),
        _look_at(report),
        _phases(report.everything),
        _metrics(report.everything),
        _groups("By model", ("model", "origin"), report.models),
        _plays(report),
        _groups("By user action (their calls, not the time around these)", ("user_action",), report.user_actions),
        _unanswered(report),
        _savings(report.ledger),
        _spent(report.ledger),
        _legend(report.everything),
    ]
    return tuple(section for section in found if section is not None)


def _head(report: Report) -> TextTable:
    everything = report.everything
    attempts = ", ".join(f"{count:,} {kind}" for kind, count in report.attempts.items())
    return TextTable(
        title=f"{counted(report.calls, 'call')}{_asked(report)}, {everything.answered:,} answered"
        + (f", which took {duration(everything.total_s)} one after the other" if everything.answered else ""),
        notes=(" \N{MIDDLE DOT} ".join(_answer(report)), *((f"attempts: {attempts}",) if attempts else ())),
    )


def _answer(report: Report) -> Iterator[str]:
    """Return the whole in one line: "56% wait, 36% decode", "p50 268 ms", "91% cached", "1 failed"."""
    phases = sorted(report.everything.phases.items(), key=lambda phase: -(phase[1].share or 0.0))
    longest = [f"{_share(found.share)} {phase}" for phase, found in phases[:_MOST_NAMED] if (found.share or 0) >= 0.01]
    if longest:
        yield ", ".join(longest)
    whole = report.everything.metrics.get("duration_s")
    if whole is not None:
        yield f"p50 {duration(whole.p50)}"
    if report.ledger.hit_ratio is not None:
        yield f"{percent(report.ledger.hit_ratio)} of prompt tokens cached"
    yield from (f"{count:,} {outcome}" for outcome, count in report.outcomes.items() if outcome != "completed")


def _look_at(report: Report) -> TextTable | None:
    """Return what is worth a look: what failed, what plays warn of, and waits that need not be."""
    found = [
        f"{ended.error or ended.outcome}: {counted(ended.calls, 'call')}, {duration(ended.total_s)} in all"
        for ended in report.unanswered[:_MOST_NAMED]
        if ended.outcome == "failed"
    ]
    found += [
        f"{warning}: {counted(count, 'call')}; the calls' records say where"
        for warning, count in list(report.warnings.items())[:_MOST_NAMED]
    ]
    found += [
        f"{phase.replace('_', ' ')}: {percent(share)} of the time"
        for phase in _AVOIDABLE
        if phase in report.everything.phases and (share := report.everything.phases[phase].share or 0.0) >= 0.05
    ]
    return TextTable(title="Look at", notes=tuple(found)) if found else None


def _asked(report: Report) -> str:
    words = {"model": "of {!r}", "user_action": "in {!r}", "since_s": "issued in the last {:g} s"}
    return "".join(f" {words[name].format(value)}" for name, value in report.filters.items())


def _phases(group: Group) -> TextTable | None:
    if not group.phases:
        return None
    longest = max(found.share or 0.0 for found in group.phases.values())
    shown = {phase: found for phase, found in group.phases.items() if (found.share or 0.0) >= _LEAST_SHARE}
    rows = [
        (
            phase.replace("_", " "),
            f"{found.seconds.n:,}",
            *_times(found.seconds),
            duration(found.seconds.highest),
            _share(found.share),
            "#" * round(_BAR * (found.share or 0.0) / longest),
        )
        for phase, found in shown.items()
    ]
    header = ("phase", "calls", "p50", "p95", "p99", "highest", "of the time", "")
    rest = [phase for phase in group.phases if phase not in shown]
    return TextTable(
        title="Where the time went",
        header=header,
        rows=tuple(rows),
        words=frozenset({0, len(header) - 1}),
        notes=(f"next to nothing: {', '.join(rest)}",) if rest else (),
    )


def _metrics(group: Group) -> TextTable | None:
    if not group.metrics:
        return None
    rows = []
    for name, found in group.metrics.items():
        shown = figure if name == "decode_rate" else duration
        rows.append((METRICS[name], f"{found.n:,}", *_times(found, shown), shown(found.highest)))
    return TextTable(title="Metrics", header=("metric", "calls", "p50", "p95", "p99", "highest"), rows=tuple(rows))


def _groups(title: str, names: tuple[str, ...], groups: Sequence[Group]) -> TextTable | None:
    if not groups:
        return None
    rows = [
        (
            *(_clipped((getattr(group, name) or "-").removeprefix("https://").removesuffix(":443")) for name in names),
            f"{group.calls:,}",
            f"{group.answered:,}",
            *_times(group.metrics.get("time_to_first_token_s"))[:2],
            *_times(group.metrics.get("duration_s"))[:2],
            _mostly(group),
        )
        for group in groups[:_ROWS]
    ]
    times = ("first token", "p95", "duration", "p95")
    header = (*(name.replace("_", " ") for name in names), "calls", "answered", *times, "mostly")
    words = frozenset({*range(len(names)), len(header) - 1})
    more = len(groups) - _ROWS
    return TextTable(
        title=title,
        header=header,
        rows=tuple(rows),
        words=words,
        notes=(f"and {more:,} more",) if more > 0 else (),
    )


def _plays(report: Report) -> TextTable | None:
    if not report.plays:
        return None
    rows = [
        (
            _clipped(played.play),
            f"{played.on:,}",
            "-" if played.acted is None else f"{played.acted:,}",
            *_times(played.group.metrics.get("duration_s"))[:1],
            _clipped(played.effect or "-", _EFFECT_WIDTH),
        )
        for played in report.plays[:_ROWS]
    ]
    header = ("play", "on", "acted", "duration p50", "by the records")
    return TextTable(
        title="By play (duration: of the calls on which it acted)",
        header=header,
        rows=tuple(rows),
        words=frozenset({0, len(header) - 1}),
        notes=("Calls on which a play acted differ from others in more than that: only `fastlane bench` compares.",),
    )


def _unanswered(report: Report) -> TextTable | None:
    if not report.unanswered:
        return None
    rows = [
        (
            ended.outcome,
            _clipped(ended.error or "-"),
            "-" if ended.status_code is None else str(ended.status_code),
            f"{ended.calls:,}",
            duration(ended.total_s),
        )
        for ended in report.unanswered[:_ROWS]
    ]
    return TextTable(
        title="Not answered (in no percentile)",
        header=("outcome", "error", "status", "calls", "took in all"),
        rows=tuple(rows),
        words=frozenset({0, 1}),
    )


def _savings(ledger: Ledger) -> TextTable | None:
    rows: list[tuple[str, str, str, str]] = []
    if ledger.connections_known:
        known = f"{ledger.connections_known:,}"
        rows.append(("connections found open", f"{ledger.connections_reused:,}", known, "measured"))
    if ledger.connections_saved_s is not None:
        priced = ledger.connections_reused - ledger.connections_unpriced
        rows.append(
            (
                "time that opening these would have taken",
                duration(ledger.connections_saved_s),
                f"{priced:,}",
                "estimated",
            )
        )
    rows += _rows(ledger, are_spent=False)
    tiers = ledger.counts.get("tier", {})
    rows += [(f"tier: {_clipped(tier)}", "", f"{calls:,}", "reported") for tier, calls in tiers.items()]
    rows += [row for section in section_classes() for row in section.rows(ledger)]
    notes = []
    if ledger.connections_unpriced:
        notes.append(
            f"What opening a connection takes is not known for {counted(ledger.connections_unpriced, 'reused one')}: "
            "no call of this client waited for one there."
        )
    if ledger.hit_ratio is not None:
        notes.append(f"Read from caches: {percent(ledger.hit_ratio)} of {ledger.prompt_tokens_said:,} prompt tokens.")
    return _table("Savings", rows, notes)


def _spent(ledger: Ledger) -> TextTable | None:
    return _table("Spent", _rows(ledger, are_spent=True), [])


def _rows(ledger: Ledger, *, are_spent: bool) -> list[tuple[str, str, str, str]]:
    return [
        _row(figure.label, total)
        for name, figure in figures().items()
        if figure.label is not None and figure.is_spent == are_spent and (total := ledger.total(name)) is not None
    ]


def _table(title: str, rows: Sequence[tuple[str, str, str, str]], notes: Sequence[str]) -> TextTable | None:
    if not rows:
        return None
    header = ("what", "in all", "calls", "how it is known")
    return TextTable(title=title, header=header, rows=tuple(rows), words=frozenset({0, 3}), notes=tuple(notes))


def _row(what: str, total: Total) -> tuple[str, str, str, str]:
    if total.unit == "s":
        value = duration(total.value)
    else:
        value = f"{total.value:,.6g}" if isinstance(total.value, float) else f"{total.value:,}"
    return (what, value, f"{total.calls:,}", total.basis)


def _legend(group: Group) -> TextTable | None:
    if not group.answered:
        return None
    few = f"p95 from {LEAST_FOR_P95}, p99 from {LEAST_FOR_P99}"
    return TextTable(title=f"Times without a name are p50. -: unknown, or of too few calls ({few}).")


# Cells


def _times(found: Percentiles | None, shown: Callable[[float], str] = duration) -> tuple[str, str, str]:
    """The three percentiles."""
    if found is None:
        return ("-", "-", "-")
    p50, p95, p99 = ("-" if value is None else shown(value) for value in (found.p50, found.p95, found.p99))
    return p50, p95, p99


def _share(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _mostly(group: Group) -> str:
    longest = group.longest_phase
    return "-" if longest is None else f"{longest} {_share(group.phases[longest].share)}"


def _clipped(text: str, width: int = _WIDTH) -> str:
    """A name on one line, whoever made it up."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


# Text


def text_of(tables: Iterable[TextTable]) -> str:
    """Return tables as aligned text."""
    return "\n\n".join("\n".join(_lines(table)) for table in tables)


def _lines(table: TextTable) -> list[str]:
    lines = [table.title]
    if table.rows:
        rows = (table.header, *table.rows)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  " + "  ".join(_cells(row, widths, table.words)).rstrip() for row in rows]
    return [*lines, *(f"  {note}" for note in table.notes)]


def _cells(row: Sequence[str], widths: Sequence[int], words: frozenset[int]) -> list[str]:
    return [
        cell.ljust(width) if index in words else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
