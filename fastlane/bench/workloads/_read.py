"""Read a file of conversations or of recorded calls, whichever it is."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fastlane.errors import ConfigurationError

from .._json_lines import described, rows_of
from ._messages import Message, UnusableMessageError, sendable
from ._recorded_calls import HEADER_KEY, MOST_CALLS, notes_of, recorded_calls
from ._workload import Conversation, Workload


def read_workload(path: Path, *, limit: int | None = None) -> Workload:
    """Read a file of conversations or of recorded calls, by how it begins.

    - conversations: JSON lines, or one JSON list, of objects with "messages" each, "tools" optional
    - a recording: what `fastlane.recordings.record` has written

    No more than `limit` conversations or calls are kept; of a recording 100,000 if not given. Prompts of recordings
    are made when they are used.

    Raises ConfigurationError, which names the line, for what cannot be replayed.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise ConfigurationError(f"a limit is 1 or more conversations or calls, got {limit}")
    rows = rows_of(path)
    begin = next(rows, None)
    if begin is None:
        raise ConfigurationError(f'{path} holds no conversation: expected one JSON object with "messages" per line')
    keys = begin[1].keys() if isinstance(begin[1], dict) else set()
    if HEADER_KEY in keys:
        return recorded_calls(path, limit or MOST_CALLS)
    changes: Counter[str] = Counter()
    rows = chain([begin], rows)
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
