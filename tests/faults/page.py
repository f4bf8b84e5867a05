"""The page of the fault matrix: its results stand between two markers, written from a whole run alone."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import openai

from tests.faults.judging import Verdict
from tests.faults.running import ROOT
from tests.faults.table import (
    CODES,
    FAULTS,
    FORMS,
    PLAYS,
    PROTOCOLS,
    STREAMS,
    Cell,
    Fault,
    all_cells,
    applicable,
    why_not,
)

PAGE = "docs/reliability.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
_MARKS = {"same": "=", "better": "+", "failed": "✗"}


def is_whole(cells: Iterable[Cell]) -> bool:
    """Whether these are all the cells that have a meaning."""
    return set(cells) == set(applicable())


def write(verdicts: Mapping[Cell, Verdict], seconds: float, page: Path = ROOT / PAGE) -> None:
    """Put the results between the markers. Raises ValueError where the page has none."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected {BEGIN} and {END} in {page}, got neither or one: put both where the results belong")
    page.write_text(before + BEGIN + "\n" + "\n".join(rendered(verdicts, seconds)) + "\n" + END + after)


def rendered(verdicts: Mapping[Cell, Verdict], seconds: float) -> Iterator[str]:
    """The results as lines of Markdown."""
    counts = Counter(verdict.verdict for verdict in verdicts.values())
    not_applicable = len(all_cells()) - len(verdicts)
    yield (
        f"{len(verdicts):,} cells in {seconds / 60:.0f} minutes with openai {openai.__version__} on Python "
        f"{platform.python_version()}: **{counts['same']:,} the same, {counts['better']:,} different on purpose, "
        f"{counts['failed']:,} failed**; {not_applicable:,} more do not apply."
    )
    yield ""
    yield "| fault | stock client, whole | streamed | retries | longest | " + " | ".join(PROTOCOLS) + " |"
    yield "|---" * (5 + len(PROTOCOLS)) + "|"
    yield from _rows(verdicts)
    yield ""
    yield from _differences(verdicts)
    failed = [verdict for _, verdict in sorted(verdicts.items()) if verdict.verdict == "failed"]
    if failed:
        yield ""
        yield "| failed | |"
        yield "|---|---|"
        for verdict in failed:
            yield f"| {str(verdict.cell).replace(' | ', ', ')} | {'; '.join(verdict.problems)} |"


def _rows(verdicts: Mapping[Cell, Verdict]) -> Iterator[str]:
    """One line for all faults that came out alike, whatever time each took."""
    alike: dict[tuple[str, ...], list[Fault]] = {}
    for fault in FAULTS.values():
        alike.setdefault(_outcome(fault, verdicts), []).append(fault)
    for (whole, streamed, retries, bound, *marks), faults in alike.items():
        names = {fault.name for fault in faults}
        longest = max((each.seconds for cell, each in verdicts.items() if cell.fault in names), default=0.0)
        timed = f"{longest:.1f} of {bound}"
        cells = ["; ".join(_names(faults)), whole, streamed, retries, timed, *marks]
        yield f"| {' | '.join(cells)} |"


def _names(faults: Iterable[Fault]) -> list[str]:
    """Names of faults; those of resets by all codes at one moment as one."""
    names = [fault.name for fault in faults]
    for moment in ("before headers", "mid-stream"):
        resets = [f"RST {code}, {moment}" for code in CODES]
        if set(resets) <= set(names):
            names[names.index(resets[0])] = f"RST by any of {len(CODES)} codes, {moment}"
            names = [name for name in names if name not in resets]
    return names


def _outcome(fault: Fault, verdicts: Mapping[Cell, Verdict]) -> tuple[str, ...]:
    """What came of a fault, column by column, without its time."""
    of_it = {cell: verdict for cell, verdict in verdicts.items() if cell.fault == fault.name}
    stock = [_said({each.stock for cell, each in of_it.items() if cell.stream is stream}) for stream in STREAMS]
    retries = _said({str(each.stock_retries) for each in of_it.values()})
    marks = [_marks(fault, protocol, verdicts) for protocol in PROTOCOLS]
    return *stock, retries, f"{fault.bound_s:.0f} s", *marks


def _marks(fault: Fault, protocol: str, verdicts: Mapping[Cell, Verdict]) -> str:
    """A mark for each set of plays, for every form and stream; once if these are all the same."""
    marks = []
    for form in FORMS:
        for stream in STREAMS:
            cells = [Cell(fault.name, form, stream, protocol, plays) for plays in PLAYS]
            marks.append("".join("-" if why_not(fault, cell) else _MARKS[verdicts[cell].verdict] for cell in cells))
    return marks[0] if len(set(marks)) == 1 else " ".join(marks)


def _said(values: set[str]) -> str:
    return " or ".join(sorted(values)) or "-"


def _differences(verdicts: Mapping[Cell, Verdict]) -> Iterator[str]:
    """What differs on purpose: one line for all faults with the same cells, outcome and reason."""
    found: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell, each in sorted(verdicts.items()):
        if each.verdict == "better":
            stock = f"{each.stock}, {each.stock_retries} retries" if each.stock_retries != each.retries else each.stock
            ours = f"{each.ours}, {each.retries} retries" if each.stock_retries != each.retries else each.ours
            found.setdefault((cell.fault, stock, ours, each.why), []).append(cell)
    yield "| fault | where | stock client | ours | why |"
    yield "|---|---|---|---|---|"
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for (name, stock, ours, why), cells in found.items():
        alike.setdefault((_where(cells), stock, ours, why), []).append(name)
    for (where, stock, ours, why), names in alike.items():
        yield f"| {'; '.join(names)} | {where} | {stock} | {ours} | {why} |"


def _where(cells: list[Cell]) -> str:
    """What the cells have in common, in words."""
    parts = []
    dimensions: list[tuple[set[Any], dict[Any, str]]] = [
        ({cell.protocol for cell in cells}, {}),
        ({cell.form for cell in cells}, {}),
        ({cell.stream for cell in cells}, {True: "streamed", False: "whole"}),
        ({cell.plays for cell in cells}, {"off": "plays off", "default": "default plays", "all": "all plays"}),
    ]
    for values, told in dimensions:
        if len(values) == 1 or (len(values) == 2 and "default" in values):
            parts.append(" and ".join(str(told.get(value, value)) for value in sorted(values, key=str, reverse=True)))
    return ", ".join(parts) or "everywhere"
