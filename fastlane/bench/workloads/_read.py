"""Read a file of conversations or of recorded calls, whichever it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from ...errors import ConfigurationError
from ...recordings.entry import HEADER_KEY as HEADER_KEY, VERSION
from ...recordings.shape import BLOCK_CHARACTERS
from .._json_lines import described, json_lines, rows_of
from ._presets import shared_prompt
from ._workload import (
    CHARACTERS_PER_TOKEN,
    Conversation,
    LatePrompt,
    Message,
    Turn,
    UnusableMessageError,
    Workload,
    sendable,
)

MOST_CALLS: Final = 100_000
"""Calls that are kept of a recording without a limit: about 20 MB."""
# What of the sampling parameters a chat request can be sent with again; how long its answer was is known better.
_SENT_AGAIN = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity", "service_tier",
    "parallel_tool_calls",
)  # fmt: skip
_ANSWER_TOKENS = 256
"""Of a call that failed before its answer's length was known."""
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_UNCOUNTED = 0
"""Input tokens of a call that the provider did not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    name: str
    number: int
    """Its place in the file, from 1."""
    at_s: float
    input_tokens: int
    answer_tokens: int
    """The most output tokens that are asked for."""
    key: str
    """Only prompts with the same key share text."""
    blocks: tuple[int, ...]
    """Hashes of its prompt's blocks from the start: equal hashes stand for equal text."""
    text: tuple[tuple[Message, ...], tuple[Message, ...]] | None = None
    """Messages and tools where they were recorded."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""

    def conversation(self, block_tokens: int) -> Conversation:
        """Return the call as a conversation of one turn."""
        tokens = self.input_tokens if self.input_tokens != _UNCOUNTED else max(1, len(self.blocks) * block_tokens)
        messages: Sequence[Message]
        messages, tools = self.text or (
            LatePrompt(shared_prompt, (self.key, self.number, tokens, self.blocks, block_tokens)),
            (),
        )
        turn = Turn(
            conversation=self.name,
            number=1,
            messages=messages,
            tools=tools,
            answer_tokens=max(2, self.answer_tokens),
            input_tokens=tokens,
            fields=self.fields,
        )
        return Conversation(name=self.name, made=(turn,))


def notes_of(changes: Counter[str]) -> list[str]:
    """Return a sentence for each kind of change."""
    return [f"{change} ({count} times)" for change, count in sorted(changes.items())]


def recorded_calls(path: Path, limit: int) -> Workload:
    """Return the workload of a recording, in order of time. Raises ConfigurationError, which names the line."""
    changes: Counter[str] = Counter()
    calls = sorted(_calls(path, changes, limit), key=lambda call: call.at_s)
    if not calls:
        raise ConfigurationError(f"{path} holds no call: expected a recording with at least one")
    block_tokens = _block_tokens(calls)
    notes = notes_of(changes)
    if synthetic := sum(call.text is None for call in calls):
        notes.append(
            f"{synthetic} calls are replayed as one message of synthetic words with about the recorded tokens; what "
            f"begins alike in the recording, to {BLOCK_CHARACTERS} characters, begins alike here"
        )
    return Workload(
        name=path.name,
        conversations=tuple(call.conversation(block_tokens) for call in calls),
        notes=tuple(notes),
        source=f"the recording {path.name} of one's own calls",
        shares_prefixes=True,
    )


def _block_tokens(calls: Sequence[_Call]) -> int:
    """Return the tokens of a block, by the calls whose tokens were counted; the last block of each is half full."""
    counted = [call for call in calls if call.input_tokens != _UNCOUNTED and call.blocks]
    blocks = sum(len(call.blocks) - 0.5 for call in counted)
    if not blocks:
        return BLOCK_CHARACTERS // CHARACTERS_PER_TOKEN
    return max(1, round(sum(call.input_tokens for call in counted) / blocks))


def _calls(path: Path, changes: Counter[str], limit: int) -> Iterator[_Call]:
    began: dict[str, tuple[float, str]] = {}
    found = 0
    for number, (where, row) in enumerate(json_lines(path, may_be_cut_off=True), start=1):
        if not isinstance(row, dict):
            raise ConfigurationError(f"{where}: expected an object, got {described(row)}")
        if HEADER_KEY in row:
            began[str(row.get("session"))] = _header(row, where)
            continue
        session = began.get(str(row.get("session")))
        if session is None:
            raise ConfigurationError(
                f'{where}: expected a call of a "session" whose first line is above, got {described(row)}; '
                "where the file was begun anew, the lines that it needs are in it"
            )
        if found == limit:
            changes["left out calls beyond the limit"] += 1
            continue
        call = _call(row, number, where, session, changes)
        if call is not None:
            found += 1
            yield call


def _header(row: Mapping[str, Any], where: str) -> tuple[float, str]:
    if row[HEADER_KEY] != VERSION:
        raise ConfigurationError(
            f"{where}: expected a recording of version {VERSION}, got {row[HEADER_KEY]!r:.20}: another version of "
            "fastlane wrote it"
        )
    if row.get("block_characters") != BLOCK_CHARACTERS:
        raise ConfigurationError(
            f"{where}: expected blocks of {BLOCK_CHARACTERS} characters, got {row.get('block_characters')!r:.20}"
        )
    try:
        return datetime.fromisoformat(row["started_at"]).timestamp(), str(row["family"])
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError(
            f'{where}: expected "started_at" as a date and time and "family", got {described(row)}'
        ) from None


def _call(
    row: Mapping[str, Any], number: int, where: str, session: tuple[float, str], changes: Counter[str]
) -> _Call | None:
    began_s, family = session
    try:
        sampling = dict(row.get("sampling") or {})
        text = None
        if row.get("text"):
            text = sendable(row["text"]["messages"], changes), tuple(row["text"]["tools"])
        call = _Call(
            name=f"call {number}",
            number=number,
            at_s=began_s + float(row["at"]),
            input_tokens=int(row.get("input_tokens") or _UNCOUNTED),
            answer_tokens=_answer_tokens(row, sampling, changes),
            key=family,
            blocks=tuple(int(digest, 16) for digest in row["blocks"]),
            text=text,
            fields={name: sampling[name] for name in _SENT_AGAIN if sampling.get(name) not in (None, "other")},
        )
    except UnusableMessageError:
        changes["left out calls with messages that no chat request takes"] += 1
        return None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f'{where}: expected a recorded call with "at" and "blocks", got {described(row)} '
            f"({type(error).__name__}: {error})"
        ) from None
    if not call.blocks:
        changes["left out calls without a message"] += 1
        return None
    if row.get("attachments") and text is None:
        changes["left out pictures, sounds and files of calls"] += 1
    return call


def _answer_tokens(row: Mapping[str, Any], sampling: Mapping[str, Any], changes: Counter[str]) -> int:
    counted = row.get("output_tokens")
    if isinstance(counted, int):
        return counted
    changes[f"asked for at most {_ANSWER_TOKENS} tokens where the answer's were not counted"] += 1
    limits: list[int] = [sampling[name] for name in _LIMITS if isinstance(sampling.get(name), int)]
    return min([_ANSWER_TOKENS, *limits])


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
