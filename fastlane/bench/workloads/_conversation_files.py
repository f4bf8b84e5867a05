"""Files of conversations with their text: the project's own JSON lines, and ShareGPT's lists."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastlane.errors import ConfigurationError

from ._lines import described, lines_of, objects_of, parsed
from ._messages import Message, UnusableMessageError, sendable
from ._workload import Conversation

# As the sets of shared conversations and what is made from them name who speaks.
_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
    "observation": "user",
    "tool": "user",
    "function_call": "assistant",
}


def own_conversations(path: Path, tools: tuple[Message, ...], changes: Counter[str]) -> Iterator[Conversation]:
    """Yield the conversations of JSON lines, or of one JSON list, of objects with "messages" and perhaps "tools".

    Raises ConfigurationError, which names the line, for what cannot be replayed.
    """
    for where, row in _rows(path):
        if not isinstance(row, dict) or "messages" not in row:
            raise ConfigurationError(
                f'{where}: expected an object with a list of chat messages under "messages", got {described(row)}'
            )
        if not isinstance(row["messages"], list):
            raise ConfigurationError(
                f'{where}: "messages" is not a list of chat messages, but {described(row["messages"])}'
            )
        if not row["messages"]:
            raise ConfigurationError(f'{where}: "messages" is empty')
        messages = _sendable(row["messages"], changes, where)
        own_tools = tools_of(row["tools"], where) if row.get("tools") else tools
        yield Conversation(name=_name(row, ("run", "id", "name"), path, where), messages=messages, tools=own_tools)


def shared_conversations(path: Path, tools: tuple[Message, ...], changes: Counter[str]) -> Iterator[Conversation]:
    """Yield the conversations of a list, or of lines, of objects with "conversations": [{"from": …, "value": …}].

    Those without an answer to replay are left out, and so are answers to nothing at a conversation's start; `changes`
    counts both. Raises ConfigurationError, which names the line or item, for what is something else.
    """
    for where, row in _rows(path):
        said = row.get("conversations") if isinstance(row, dict) else None
        if not isinstance(said, list):
            raise ConfigurationError(
                f'{where}: expected an object with a list under "conversations", got {described(row)}'
            )
        messages = [_shared_message(each, number, where) for number, each in enumerate(said, start=1)]
        if isinstance(row.get("system"), str) and row["system"]:
            messages.insert(0, {"role": "system", "content": row["system"]})
        while messages and messages[0]["role"] == "assistant":
            messages.pop(0)
            changes["left out answers that nothing stood before"] += 1
        conversation = Conversation(
            name=_name(row, ("id",), path, where),
            messages=_sendable(messages, changes, where) if messages else (),
            tools=_shared_tools(row.get("tools"), tools, changes),
        )
        if conversation.turns:
            yield conversation
        else:
            changes["left out conversations without an answer"] += 1


def tools_of(value: object, where: str) -> tuple[Message, ...]:
    """Return tool definitions, given as a list or under "tools". Raises ConfigurationError for anything else."""
    if isinstance(value, Mapping) and isinstance(value.get("tools"), list):
        value = value["tools"]
    if not isinstance(value, Sequence) or not all(isinstance(each, dict) and "type" in each for each in value):
        raise ConfigurationError(
            f'{where}: expected tools as a list of objects such as {{"type": "function", "function": …}}, '
            f"got {described(value)}"
        )
    return tuple(value)


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    started = False
    for line in lines_of(path):
        if not started and line.lstrip().startswith("[") and _is_list(line):
            yield from objects_of(path)
            return
        started = True
        yield line.where, parsed(line, path, line.number)


def _is_list(line: str) -> bool:
    """Whether a file that begins so is one list, and not a line of JSON that happens to be one."""
    begin = line.strip()
    return begin == "[" or begin[1:].lstrip().startswith("{")


def _name(row: Mapping[str, Any], keys: Sequence[str], path: Path, where: str) -> str:
    given = next((str(row[key]) for key in keys if row.get(key)), None)
    return where.removeprefix(f"{path}, ") if given is None else given


def _sendable(messages: Sequence[object], changes: Counter[str], where: str) -> tuple[Message, ...]:
    try:
        return sendable(messages, changes)
    except UnusableMessageError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _shared_message(said: object, number: int, where: str) -> dict[str, Any]:
    if not isinstance(said, dict) or not isinstance(said.get("from"), str) or "value" not in said:
        raise ConfigurationError(
            f'{where}: message {number} is {described(said)}: expected an object with "from" and "value"'
        )
    role = _SPEAKERS.get(said["from"].lower())
    if role is None:
        raise ConfigurationError(
            f"{where}: message {number} is from {said['from']!r:.40}: expected one of {', '.join(_SPEAKERS)}"
        )
    value = said["value"]
    return {"role": role, "content": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


def _shared_tools(given: object, others: tuple[Message, ...], changes: Counter[str]) -> tuple[Message, ...]:
    """The tools of one conversation: some such files hold them as a text of JSON, and some in forms of their own."""
    if not given:
        return others
    try:
        value = json.loads(given) if isinstance(given, str) else given
        return tools_of(value, "")
    except (ValueError, RecursionError):
        changes["left out tools in another form than OpenAI's"] += 1
        return others
