"""Read a file of conversations or of recorded traffic, whichever of the known forms it has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, NonNegativeInt, TypeAdapter

from fastlane.errors import ConfigurationError

from .._json_lines import described, rows_of, validated
from ._messages import Message, UnusableMessageError, sendable
from ._recorded_calls import HEADER_KEY, recorded_calls
from ._requests import MOST_REQUESTS, RecordedRequest, notes_of, workload_of
from ._workload import Conversation, Workload

BLOCK_TOKENS: Final = 512
"""Of a trace's blocks, by the description of Mooncake's traces."""
_Tokens = Annotated[int, Field(ge=0, le=10_000_000)]


class TraceRow(BaseModel):
    """One request of a trace in Mooncake's form."""

    timestamp: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Milliseconds."""
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: list[NonNegativeInt] | None = None


_TRACE_ROW: Final = TypeAdapter(TraceRow)


def read_workload(path: Path, *, limit: int | None = None) -> Workload:
    """Read a file of conversations or of recorded traffic, by how it begins.

    - conversations: JSON lines, or one JSON list, of objects with "messages" each, "tools" optional
    - a trace in Mooncake's form: JSON lines with timestamp (ms), input_length, output_length, and hash_ids of 512-token
      blocks where prompts share prefixes
    - a recording: what `fastlane.recordings.record` has written

    No more than `limit` conversations or requests are kept; of recorded traffic 100,000 if not given. Prompts of traces
    are made when they are used.

    Raises ConfigurationError, which names the line, for what cannot be replayed.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise ConfigurationError(f"a limit is 1 or more conversations or requests, got {limit}")
    rows = rows_of(path)
    begin = next(rows, None)
    if begin is None:
        raise ConfigurationError(f'{path} holds no conversation: expected one JSON object with "messages" per line')
    keys = begin[1].keys() if isinstance(begin[1], dict) else set()
    if HEADER_KEY in keys:
        return recorded_calls(path, limit or MOST_REQUESTS)
    changes: Counter[str] = Counter()
    rows = chain([begin], rows)
    if "messages" not in keys and keys & {"input_length", "hash_ids"}:
        return _trace(path, rows, limit or MOST_REQUESTS, changes)
    return Workload(
        name=path.name,
        conversations=tuple(islice((_conversation(path, where, row, changes) for where, row in rows), limit)),
        notes=tuple(notes_of(changes)),
        source=f"the file {path.name}",
    )


def _conversation(path: Path, where: str, row: Any, changes: Counter[str]) -> Conversation:
    if not isinstance(row, dict) or "messages" not in row:
        raise ConfigurationError(
            f'{where}: expected an object with a list of chat messages under "messages", got {described(row)}'
        )
    messages = row["messages"]
    if not isinstance(messages, list):
        raise ConfigurationError(f'{where}: "messages" is not a list of chat messages, but {described(messages)}')
    if not messages:
        raise ConfigurationError(f'{where}: "messages" is empty')
    try:
        cleaned = sendable(messages, changes)
    except UnusableMessageError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    given = next((str(row[key]) for key in ("run", "id", "name") if row.get(key)), where.removeprefix(f"{path}, "))
    return Conversation(name=given, messages=cleaned, tools=_tools_of(row.get("tools") or [], where))


def _tools_of(value: object, where: str) -> tuple[Message, ...]:
    if not isinstance(value, list) or not all(isinstance(each, dict) and "type" in each for each in value):
        raise ConfigurationError(
            f'{where}: expected tools as a list of objects such as {{"type": "function", "function": …}}, '
            f"got {described(value)}"
        )
    return tuple(value)


def _trace(path: Path, rows: Iterator[tuple[str, Any]], limit: int, changes: Counter[str]) -> Workload:
    read = list(islice(_trace_rows(path.stem, rows, changes), limit + 1))
    if not read:
        raise ConfigurationError(f"{path} holds no request: expected a trace in Mooncake's form")
    kept = read[:limit]
    span_s = max(row.arrival_s for row in kept) - min(row.arrival_s for row in kept)
    sent = sum(row.input_tokens for row in kept) / len(kept)
    got = sum(row.answer_tokens for row in kept) / len(kept)
    alike = (
        "those whose blocks have equal hashes begin with equal text"
        if any(row.blocks for row in kept)
        else "no two alike: the trace does not say which prompts share a prefix"
    )
    notes = [
        *notes_of(changes),
        f"{len(kept):,} requests over {span_s:,.0f} s, on average {sent:,.0f} tokens in and {got:,.0f} out",
        f"prompts are synthetic words; {alike}",
        "input tokens by construction, for o200k_base and cl100k_base; output tokens are the most that are asked for",
    ]
    if len(read) > limit:
        notes.append(f"the first {limit:,} requests of the file; it has more")
    source = f"the file {path.name}: a trace in Mooncake's form"
    return workload_of(path.name, kept, block_tokens=BLOCK_TOKENS, source=source, notes=notes)


def _trace_rows(key: str, rows: Iterator[tuple[str, Any]], changes: Counter[str]) -> Iterator[RecordedRequest]:
    for number, (where, row) in enumerate(rows, start=1):
        read = validated(_TRACE_ROW, row, where)
        hashes = read.hash_ids or ()
        most = math.ceil(read.input_length / BLOCK_TOKENS)
        if len(hashes) > most:
            raise ConfigurationError(
                f'{where}: expected at most {most} "hash_ids" for {read.input_length} tokens, one for each block of '
                f"{BLOCK_TOKENS}, got {len(hashes)}"
            )
        if read.input_length and read.output_length:
            yield RecordedRequest(
                name=f"request {number}",
                number=number,
                arrival_s=read.timestamp / 1e3,
                input_tokens=read.input_length,
                answer_tokens=read.output_length,
                key=key,
                blocks=tuple(hashes),
            )
        else:
            changes["left out requests without a prompt or without an answer"] += 1
