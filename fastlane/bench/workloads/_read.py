"""Read a file of conversations or of recorded calls, whichever it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...errors import ConfigurationError
from ...recordings.entry import HEADER_KEY, VERSION
from ...recordings.shape import BLOCK_CHARACTERS
from ..recorded import described, rows_of
from ._presets import shared_prompt
from ._workload import CHARACTERS_PER_TOKEN, Conversation, LatePrompt, Turn, UnusableMessageError, Workload, sendable

MOST_CALLS: Final = 100_000
"""Calls that are kept of a recording without a limit: about 20 MB."""
# What of the sampling parameters a chat request can be sent with again; how long its answer was is known better.
_SENT_AGAIN: Final = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity", "service_tier",
    "parallel_tool_calls",
)  # fmt: skip
_ANSWER_TOKENS: Final = 256
_LIMITS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def read_workload(path: Path, *, limit: int | None = None) -> Workload:
    """Read a file of conversations (JSON lines, or a JSON list), or what `fastlane.recordings.record` has written.

    No more than `limit` conversations or calls are kept; of a recording 100,000 if not given. Raises
    ConfigurationError, which names the line, for what cannot be replayed.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise ConfigurationError(f"a limit is 1 or more conversations or calls, got {limit}")
    rows = rows_of(path)
    first = next(rows, None)
    if first is None:
        raise ConfigurationError(f'{path} holds no conversation: expected one JSON object with "messages" per line')
    changes: Counter[str] = Counter()
    if isinstance(first[1], dict) and HEADER_KEY in first[1]:
        return _recording(path, limit or MOST_CALLS, changes)
    conversations = islice((_conversation(where, row, changes) for where, row in chain([first], rows)), limit)
    return Workload(
        name=path.name,
        conversations=tuple(conversations),
        notes=tuple(_notes(changes)),
        source=f"the file {path.name}",
    )


def _notes(changes: Counter[str]) -> list[str]:
    return [f"{change} ({count} times)" for change, count in sorted(changes.items())]


def _conversation(where: str, row: Any, changes: Counter[str]) -> Conversation:
    if not isinstance(row, dict) or "messages" not in row:
        wanted = 'an object with a list of chat messages under "messages"'
        raise ConfigurationError(f"{where}: expected {wanted}, got {described(row)}")
    messages, tools = row["messages"], row.get("tools") or []
    if not isinstance(messages, list):
        raise ConfigurationError(f'{where}: "messages" is not a list of chat messages, but {described(messages)}')
    if not messages:
        raise ConfigurationError(f'{where}: "messages" is empty')
    if not isinstance(tools, list) or not all(isinstance(each, dict) and "type" in each for each in tools):
        wanted = 'a list of objects such as {"type": "function", "function": …}'
        raise ConfigurationError(f"{where}: expected tools as {wanted}, got {described(tools)}")
    try:
        cleaned = sendable(messages, changes)
    except UnusableMessageError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    name = next((str(row[key]) for key in ("run", "id", "name") if row.get(key)), where.rpartition(", ")[2])
    return Conversation(name=name, messages=cleaned, tools=tuple(tools))


# Recordings


class _Call(NamedTuple):
    """A recorded call: its line in the file, its request (without messages if no text was recorded), and its prompt.

    Only prompts of the same family share text. Equal hashes of blocks stand for equal text.
    """

    at_s: float
    number: int
    family: str
    blocks: tuple[int, ...]
    input_tokens: int
    turn: Turn

    def conversation(self, block_tokens: int) -> Conversation:
        tokens = self.input_tokens or max(1, len(self.blocks) * block_tokens)
        made = LatePrompt(shared_prompt, (self.family, self.number, tokens, self.blocks, block_tokens))
        turn = replace(self.turn, messages=self.turn.messages or made, input_tokens=tokens)
        return Conversation(name=turn.conversation, made=(turn,))


def _recording(path: Path, limit: int, changes: Counter[str]) -> Workload:
    calls = sorted(_calls(rows_of(path, may_be_cut_off=True), limit, changes), key=lambda call: call.at_s)
    if not calls:
        raise ConfigurationError(f"{path} holds no call: expected a recording with at least one")
    # By the calls whose tokens were counted; the last block of each is half full.
    counted = [call for call in calls if call.input_tokens]
    tokens, blocks = sum(call.input_tokens for call in counted), sum(len(call.blocks) - 0.5 for call in counted)
    block_tokens = max(1, round(tokens / blocks)) if counted else BLOCK_CHARACTERS // CHARACTERS_PER_TOKEN
    notes = _notes(changes)
    if synthetic := sum(not call.turn.messages for call in calls):
        notes.append(
            f"{synthetic} calls are replayed as one message of synthetic words with about the recorded tokens; what "
            f"begins alike in the recording, to {BLOCK_CHARACTERS} characters, begins alike here"
        )
    return Workload(
        name=path.name,
        conversations=tuple(call.conversation(block_tokens) for call in calls),
        notes=tuple(notes),
        source=f"the recording {path.name} of your own calls",
        shares_prefixes=True,
    )


def _calls(rows: Iterable[tuple[str, Any]], limit: int, changes: Counter[str]) -> Iterator[_Call]:
    sessions: dict[str, tuple[float, str]] = {}
    found = 0
    for number, (where, row) in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ConfigurationError(f"{where}: expected an object, got {described(row)}")
        session = str(row.get("session"))
        if HEADER_KEY in row:
            sessions[session] = _header(where, row)
        elif session not in sessions:
            said = f'expected a call of a "session" whose first line is above, got {described(row)}'
            raise ConfigurationError(f"{where}: {said}")
        elif found == limit:
            changes["left out calls beyond the limit"] += 1
        else:
            try:
                call = _call(row, number, *sessions[session], changes)
            except UnusableMessageError:
                changes["left out calls with messages that no chat request takes"] += 1
                continue
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                said = f'expected a recorded call with "at" and "blocks", got {described(row)}'
                raise ConfigurationError(f"{where}: {said} ({type(error).__name__}: {error})") from None
            if not call.blocks:
                changes["left out calls without a message"] += 1
                continue
            found += 1
            yield call


def _header(where: str, row: Mapping[str, Any]) -> tuple[float, str]:
    version, characters = row[HEADER_KEY], row.get("block_characters")
    if version != VERSION:
        raise ConfigurationError(f"{where}: expected a recording of version {VERSION}, got {version!r:.20}")
    if characters != BLOCK_CHARACTERS:
        raise ConfigurationError(f"{where}: expected blocks of {BLOCK_CHARACTERS} characters, got {characters!r:.20}")
    try:
        return datetime.fromisoformat(row["started_at"]).timestamp(), str(row["family"])
    except (KeyError, TypeError, ValueError):
        said = f'expected "started_at" as a date and time and "family", got {described(row)}'
        raise ConfigurationError(f"{where}: {said}") from None


def _call(row: Mapping[str, Any], number: int, began_s: float, family: str, changes: Counter[str]) -> _Call:
    sampling, text = dict(row.get("sampling") or {}), row.get("text")
    tokens = row.get("output_tokens")
    if not isinstance(tokens, int):
        changes[f"asked for at most {_ANSWER_TOKENS} tokens where the answer's were not counted"] += 1
        tokens = min([_ANSWER_TOKENS, *(sampling[name] for name in _LIMITS if isinstance(sampling.get(name), int))])
    if row.get("attachments") and not text:
        changes["left out pictures, sounds and files of calls"] += 1
    return _Call(
        at_s=began_s + float(row["at"]),
        number=number,
        family=family,
        blocks=tuple(int(digest, 16) for digest in row["blocks"]),
        input_tokens=int(row.get("input_tokens") or 0),
        turn=Turn(
            conversation=f"call {number}",
            number=1,
            messages=sendable(text["messages"], changes) if text else (),
            tools=tuple(text["tools"]) if text else (),
            answer_tokens=max(2, tokens),
            fields={name: sampling[name] for name in _SENT_AGAIN if sampling.get(name) not in (None, "other")},
        ),
    )
