"""Replay an application's own calls from their recording: with their text where it has any, else in the same shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fastlane.errors import ConfigurationError

from ...recordings.entry import HEADER_KEY as HEADER_KEY, VERSION
from ...recordings.shape import ATTACHMENT_FRAME, BLOCK_CHARACTERS, CALL_FRAME, MESSAGE_FRAME, TOOLS_FRAME, Spoken
from ._files import described, lines_of, parsed
from ._messages import CHARACTERS_PER_TOKEN, GeneratedMessages, Message, UnusableMessageError, sendable
from ._text import words
from ._workload import Conversation, Made, Turn, Workload

# What of the sampling parameters a chat request can be sent with again; how long its answer was is known better.
_SENT_AGAIN = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity", "service_tier",
    "parallel_tool_calls",
)  # fmt: skip
_LEAST_SCALE, _GREATEST_SCALE = 0.25, 4.0
_ANSWER_TOKENS = 256
"""Of a call that failed before its answer's length was known."""
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# A tool's definition without its description.
_TOOL_FRAME = 120


class _Call(NamedTuple):
    """One recorded call."""

    number: int
    arrival_s: float
    family: str
    messages: tuple[Spoken, ...]
    tools: int
    tools_length: int
    blocks: tuple[str, ...]
    answer_tokens: int
    fields: tuple[tuple[str, Any], ...]
    text: tuple[tuple[Message, ...], tuple[Message, ...]] | None
    input_tokens: int | None

    @property
    def length(self) -> int:
        """Characters of the whole prompt, as it is laid out."""
        tools = TOOLS_FRAME + self.tools_length if self.tools else 0
        return tools + sum(message.laid_out for message in self.messages)


def recorded_calls(path: Path, limit: int) -> Workload:
    """Return the workload of a recording. Raises ConfigurationError, which names the line."""
    changes: Counter[str] = Counter()
    calls = sorted(_calls(path, changes, limit), key=lambda call: call.arrival_s)
    if not calls:
        raise ConfigurationError(f"{path} holds no call: expected a recording with at least one")
    begin_s = calls[0].arrival_s
    kept = tuple(call._replace(arrival_s=round(call.arrival_s - begin_s, 6)) for call in calls)
    notes = [f"{change} ({count} times)" for change, count in sorted(changes.items())]
    with_text = sum(call.text is not None for call in kept)
    if with_text < len(kept):
        scale = _scale(kept)
        notes.append(
            f"{len(kept) - with_text} calls are replayed in their shape: synthetic words in {scale:.2f} times their "
            f"characters, so that the provider's count of tokens is about the recorded one; what begins alike in the "
            f"recording, to {BLOCK_CHARACTERS} characters, begins alike here"
        )
    else:
        scale = 1.0
    return Workload(
        name=path.name,
        conversations=Made(range(len(kept)), _Replay(kept, scale)),
        notes=tuple(notes),
        source=f"the recording {path.name} of one's own calls",
        shares_prefixes=True,
    )


def _scale(calls: tuple[_Call, ...]) -> float:
    """By what lengths are multiplied so that synthetic words, at four characters a token, have the recorded tokens."""
    counted = [call for call in calls if call.input_tokens and call.length]
    characters = sum(call.length for call in counted)
    if not characters:
        return 1.0
    tokens = sum(call.input_tokens or 0 for call in counted)
    return min(max(tokens * CHARACTERS_PER_TOKEN / characters, _LEAST_SCALE), _GREATEST_SCALE)


@dataclass(frozen=True, slots=True)
class _Replay:
    """Makes the conversation of each call."""

    calls: tuple[_Call, ...]
    scale: float

    def __call__(self, at: int) -> Conversation:
        call = self.calls[at]
        name = f"call {call.number}"
        messages: Sequence[Message]
        tools: Sequence[Message]
        if call.text is not None:
            messages, tools = call.text
        else:
            messages = GeneratedMessages(len(call.messages), _messages, (call, self.scale))
            tools = GeneratedMessages(call.tools, _tools, (call, self.scale))
        turn = Turn(
            conversation=name,
            number=1,
            messages=messages,
            tools=tools,
            answer_tokens=call.answer_tokens,
            input_tokens=call.input_tokens,
            arrival_s=call.arrival_s,
            fields=dict(call.fields),
        )
        return Conversation(name=name, arrival_s=call.arrival_s, made=(turn,))


def _messages(call: _Call, scale: float) -> tuple[Message, ...]:
    return _synthetic(call, scale)[0]


def _tools(call: _Call, scale: float) -> tuple[Message, ...]:
    return _synthetic(call, scale)[1]


@lru_cache(maxsize=1_024)
def _block(key: str, tokens: int) -> str:
    return words(key, tokens) + " "


def _synthetic(call: _Call, scale: float) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Messages and tools of the same lengths, scaled, of which those parts are equal that have equal digests."""
    # A block has whole tokens, and every position is scaled alike: what is shared stays shared.
    tokens = max(1, round(BLOCK_CHARACTERS * scale / CHARACTERS_PER_TOKEN))
    size = tokens * CHARACTERS_PER_TOKEN
    stream = "".join(_block(f"{call.family}/{digest}", tokens) for digest in call.blocks)
    at = 0

    def take(length: int, frame: int) -> str:
        nonlocal at
        start, at = at + frame, at + frame + length
        return stream[start * size // BLOCK_CHARACTERS : at * size // BLOCK_CHARACTERS]

    tools: list[Message] = []
    if call.tools:
        share, rest = divmod(call.tools_length, call.tools)
        for number in range(call.tools):
            text = take(share + (rest if number == 0 else 0), TOOLS_FRAME if number == 0 else 0)
            tools.append(_tool(number, text))
    messages: list[Message] = []
    for spoken in call.messages:
        text = take(spoken.length, MESSAGE_FRAME)
        arguments = [take(each, CALL_FRAME) for each in spoken.calls]
        for _ in range(spoken.attachments):
            take(0, ATTACHMENT_FRAME)
        message: dict[str, Any] = {"role": spoken.role if spoken.role != "other" else "user", "content": text}
        if arguments:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": "tool_1", "arguments": f'{{"text": "{each}"}}'}}
                for each in arguments
            ]
        messages.append(message)
    return sendable(messages, Counter()), tuple(tools)


def _tool(number: int, text: str) -> Message:
    function = {
        "name": f"tool_{number + 1}",
        "description": text[_TOOL_FRAME:],
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    return {"type": "function", "function": function}


def _calls(path: Path, changes: Counter[str], limit: int) -> Iterator[_Call]:
    began: dict[str, tuple[float, str]] = {}
    found = 0
    cut_off: ConfigurationError | None = None
    for number, text in lines_of(path):
        if cut_off is not None:
            raise cut_off
        where = f"{path}, line {number}"
        try:
            row = parsed(text, path, number)
        except ConfigurationError as error:
            cut_off = error  # unless nothing follows it: a process that was killed may have left half a line
            continue
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
    if cut_off is not None:
        changes["left out a last line that is cut off"] += 1


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
    try:
        spoken = tuple(
            Spoken(str(each["role"]), int(each["length"]), tuple(map(int, each.get("calls", ()))),
                   int(each.get("attachments", 0)))
            for each in row["messages"]
        )  # fmt: skip
        sampling = dict(row.get("sampling") or {})
        text = None
        if row.get("text"):
            text = sendable(row["text"]["messages"], changes), tuple(row["text"]["tools"])
        call = _Call(
            number=number,
            arrival_s=session[0] + float(row["at"]),
            family=session[1],
            messages=spoken,
            tools=int(row.get("tools", 0)),
            tools_length=int(row.get("tools_length", 0)),
            blocks=tuple(map(str, row["blocks"])),
            answer_tokens=_answer_tokens(row, sampling, changes),
            fields=tuple((name, sampling[name]) for name in _SENT_AGAIN if sampling.get(name) not in (None, "other")),
            text=text,
            input_tokens=row.get("input_tokens"),
        )
    except UnusableMessageError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f'{where}: expected a recorded call with "at", "messages" and "blocks", got {described(row)} '
            f"({type(error).__name__}: {error})"
        ) from None
    if not call.messages:
        changes["left out calls without a message"] += 1
        return None
    if any(message.attachments for message in spoken) and text is None:
        changes["left out pictures, sounds and files of calls"] += 1
    return call


def _answer_tokens(row: Mapping[str, Any], sampling: Mapping[str, Any], changes: Counter[str]) -> int:
    counted = row.get("output_tokens")
    if isinstance(counted, int):
        return max(2, counted)
    changes[f"asked for at most {_ANSWER_TOKENS} tokens where the answer's were not counted"] += 1
    limits: list[int] = [sampling[name] for name in _LIMITS if isinstance(sampling.get(name), int)]
    return max(2, min([_ANSWER_TOKENS, *limits]))
