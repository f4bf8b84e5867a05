"""Read a file of conversations or of recorded traffic, whichever of the known forms it has."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from fastlane.errors import ConfigurationError

from ._conversation_files import own_conversations, shared_conversations, tools_of
from ._formats import Format
from ._lines import FileLine, first_line, objects_of, parsed, text_of
from ._recorded_calls import HEADER_KEY, recorded_calls
from ._trace_rows import TraceConversations, TraceRow
from ._traces import AZURE_COLUMNS, BURSTGPT_COLUMNS, azure_rows, burstgpt_rows, mooncake_rows
from ._workload import Made, Workload

if TYPE_CHECKING:
    pass

MOST_REQUESTS = 100_000
"""Requests that are kept of a trace without a limit: about 20 MB."""

_TRACES: dict[str, tuple[Callable[[Path, Counter[str]], Iterator[TraceRow]], str]] = {
    "mooncake": (mooncake_rows, "a trace in Mooncake's form"),
    "burstgpt": (burstgpt_rows, "a trace in BurstGPT's form"),
    "azure": (azure_rows, "a trace in the form of Azure's LLM inference traces"),
}


def read_workload(
    path: Path,
    tools_path: Path | None = None,
    format: Format = "auto",
    *,
    limit: int | None = None,
    window_s: tuple[float, float] | None = None,
) -> Workload:
    """Read a file of conversations or of recorded traffic; "auto" looks at how it begins.

    - "conversations": JSON lines, one object with "messages" each, "tools" optional
    - "sharegpt": a JSON list, or JSON lines, of {"conversations": [{"from": "human", "value": …}, …]}
    - "mooncake": JSON lines with timestamp (ms), input_length, output_length and hash_ids of 512-token blocks
    - "burstgpt", "azure": their CSV
    - "recording": what `fastlane.recordings.record` has written

    `tools_path` names a JSON list of tool definitions for every conversation that brings none of its own. No more
    than `limit` conversations or requests are kept (of a trace 100,000 if not given), and of recorded traffic only
    those that arrived in `window_s`: from so many seconds after the file's first until before so many. Prompts of
    traces are made when they are used.

    Raises ConfigurationError, which names the line, for what cannot be replayed.
    """
    path = Path(path)
    if format not in get_args(Format):
        raise ConfigurationError(f"unknown format {format!r}: the known ones are {', '.join(get_args(Format))}")
    if limit is not None and limit < 1:
        raise ConfigurationError(f"a limit is 1 or more conversations or requests, got {limit}")
    kind = _detected(path) if format == "auto" else format
    changes: Counter[str] = Counter()
    if kind in _TRACES or kind == "recording":
        if tools_path is not None:
            raise ConfigurationError(f"{tools_path}: tools go with conversations, and {path} is recorded traffic")
        window = _checked(window_s)
        if kind == "recording":
            return recorded_calls(path, limit or MOST_REQUESTS, window)
        return _trace(path, kind, limit, window, changes)
    if window_s is not None:
        raise ConfigurationError(f"a window of time goes with recorded traffic, and {path} says no times")
    tools = tools_of(parsed(text_of(tools_path), tools_path), str(tools_path)) if tools_path else ()
    read = shared_conversations if kind == "sharegpt" else own_conversations
    conversations = tuple(islice(read(path, tools, changes), limit))
    if not conversations:
        raise ConfigurationError(f'{path} holds no conversation: expected one JSON object with "messages" per line')
    return Workload(name=path.name, conversations=conversations, notes=_notes(changes), source=f"the file {path.name}")


def _trace(
    path: Path, kind: str, limit: int | None, window: tuple[float, float] | None, changes: Counter[str]
) -> Workload:
    read, what = _TRACES[kind]
    rows: list[TraceRow] = []
    first_s: float | None = None
    cut = False
    for row in read(path, changes):
        # Some traces are not quite in order: what came before the first line came at 0.
        first_s = row.arrival_s if first_s is None else first_s
        arrival_s = max(0.0, row.arrival_s - first_s)
        if window is not None and not window[0] <= arrival_s < window[1]:
            continue
        if len(rows) == (limit or MOST_REQUESTS):
            cut = True
            break
        rows.append(row._replace(arrival_s=arrival_s))
    if not rows:
        within = f" between {window[0]:g} and {window[1]:g} s" if window else ""
        raise ConfigurationError(f"{path} holds no request{within}: expected {what}")
    rows.sort(key=lambda row: row.arrival_s)
    begin_s = rows[0].arrival_s
    kept = tuple(row._replace(arrival_s=round(row.arrival_s - begin_s, 6)) for row in rows)
    notes = [*_notes(changes), *_shape_notes(kept)]
    if cut:
        notes.append(f"the first {len(kept):,} requests of the file; it has more")
    return Workload(
        name=path.name,
        conversations=Made(range(len(kept)), TraceConversations(path.stem, kept)),
        notes=tuple(notes),
        source=f"the file {path.name}: {what}",
        shares_prefixes=any(row.blocks for row in kept),
    )


def _shape_notes(rows: tuple[TraceRow, ...]) -> Iterator[str]:
    lasts_s = rows[-1].arrival_s
    sent = sum(row.input_tokens for row in rows) / len(rows)
    got = sum(row.output_tokens for row in rows) / len(rows)
    yield f"{len(rows):,} requests over {lasts_s:,.0f} s, on average {sent:,.0f} input and {got:,.0f} output tokens"
    if any(row.blocks for row in rows):
        yield "prompts are synthetic words; those whose blocks have equal hashes begin with equal text"
    else:
        yield "prompts are synthetic words, no two alike: the trace does not say which prompts share a prefix"
    yield "input tokens by construction, for o200k_base and cl100k_base; output tokens are the most that are asked for"


def _detected(path: Path) -> str:
    line = first_line(path)
    if line is None:
        raise ConfigurationError(f'{path} holds no conversation: expected one JSON object with "messages" per line')
    if line.lstrip().startswith("["):
        _, item = next(objects_of(path), ("", None))
        return "sharegpt" if isinstance(item, dict) and "conversations" in item else "conversations"
    if line.lstrip().startswith("{"):
        return _kind_of_object(line)
    header = [cell.strip() for cell in next(csv.reader([line.rstrip("\r\n")]), [])]
    for kind, columns in (("azure", AZURE_COLUMNS), ("burstgpt", BURSTGPT_COLUMNS)):
        if set(columns) <= set(header):
            return kind
    if "," in line and not line.lstrip()[:1].isdigit():
        raise ConfigurationError(
            f"{line.where}: no known form begins so. Expected JSON, or a CSV with the columns "
            f"{', '.join(AZURE_COLUMNS)} or {', '.join(BURSTGPT_COLUMNS)}; got {line.strip()[:80]!r}"
        )
    return "conversations"


def _kind_of_object(line: FileLine) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        # Said by the reader, which knows the line.
        return "conversations"
    for key, kind in (("messages", "conversations"), ("conversations", "sharegpt"), (HEADER_KEY, "recording")):
        if key in row:
            return kind
    return "mooncake" if "input_length" in row or "hash_ids" in row else "conversations"


def _checked(window_s: tuple[float, float] | None) -> tuple[float, float] | None:
    if window_s is not None and not 0 <= window_s[0] < window_s[1]:
        raise ConfigurationError(
            f"a window is two moments in seconds from the first request, 0 <= start < end, got {window_s!r}"
        )
    return window_s


def _notes(changes: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{change} ({count} times)" for change, count in sorted(changes.items()))
