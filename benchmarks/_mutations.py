"""Single changes of a recorded conversation, each with the kind and the path that must be named."""

from __future__ import annotations

import base64
import copy
import json
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import takewhile
from operator import methodcaller
from typing import Any, NamedTuple

Body = dict[str, Any]
_Keys = tuple[str | int, ...]
"""Where a value is in a body."""


class Mutation(NamedTuple):
    """One conversation twice: as it was sent, and with one more turn and one thing changed."""

    kind: str
    before: Body
    after: Body
    path: str | None
    """Of the value that differs."""
    character: int | None
    """Of the first difference in it; None if it is not text."""


_Change = Callable[[random.Random, Body, Body], _Keys]
"""Change one thing between two equal bodies; return where."""


def _mutate(kind: str, change: _Change, rng: random.Random, body: Body) -> Mutation:
    before, after = copy.deepcopy(body), copy.deepcopy(body)
    keys = change(rng, before, after)
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)[1:]
    one, other = _at(before, keys), _at(after, keys)
    character = None
    if isinstance(one, str) and isinstance(other, str):
        character = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
    return Mutation(kind, before, after, path, character)


def _at(body: Any, keys: _Keys) -> Any:
    """Return a value; None if there is none."""
    try:
        for key in keys:
            body = body[key]
    except LookupError:
        return None
    return body


def _put(body: Body, keys: _Keys, value: Any) -> None:
    _at(body, keys[:-1])[keys[-1]] = value


# Values that change with every call

_FORMATS = (
    "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S EST", "%d/%m/%Y %H:%M", "%d.%m.%Y", "%H:%M:%S", "%I:%M %p",
    "%Y%m%dT%H%M%SZ", "%A", "%B %Y", "%A, %d %B %Y, %I:%M %p", "%A, %B %d, %Y at %I:%M %p",
)  # fmt: skip
_TIMES: Sequence[Callable[[datetime], str]] = (
    datetime.isoformat,
    format_datetime,
    datetime.ctime,
    lambda at: str(int(at.timestamp())),
    lambda at: str(int(at.timestamp() * 1000)),
    lambda at: str(at.timestamp()),
    *(methodcaller("strftime", form) for form in _FORMATS),
)
_STEPS = (timedelta(seconds=41), timedelta(minutes=17), timedelta(hours=5), timedelta(days=1), timedelta(days=40))
_UUIDS: Sequence[Callable[[str], str]] = (str, str.upper, methodcaller("replace", "-", ""), "{{{}}}".format)
_NONCES: Sequence[Callable[[random.Random], str]] = (
    lambda rng: rng.randbytes(4).hex(),
    lambda rng: rng.randbytes(8).hex(),
    lambda rng: rng.randbytes(20).hex(),
    lambda rng: base64.b64encode(rng.randbytes(16)).decode(),
    lambda rng: base64.urlsafe_b64encode(rng.randbytes(12)).decode().rstrip("="),
    lambda rng: "01J" + "".join(rng.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=23)),
    lambda rng: "sess_" + rng.randbytes(6).hex(),
    lambda rng: str(rng.random()),
    lambda rng: str(rng.randrange(10**11, 10**12)),
    lambda rng: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10)) + "7",
)
_COUNTERS = (
    "request #{}", "Turn {} of this conversation", "Ticket {:06}", '{{"seq": {}}}', "Visitors so far: {:,}",
    "There have been {} messages",
)  # fmt: skip
_BLOCKS_BEHIND = 1_500
_PLACES = ("top", "middle", "end", "tool", "parameter", "user", "result")


def _timestamp(rng: random.Random) -> tuple[str, str]:
    write = rng.choice(_TIMES)
    at = datetime(2025, rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59), 7, tzinfo=UTC)
    later = at + rng.choice(_STEPS)
    while write(later) == write(at):
        later += timedelta(days=9, hours=3, minutes=11)
    frame = rng.choice(("The current time is {}.", "Now: {}", "[{}] ", "<time>{}</time>", "Today's date: {}\n"))
    return frame.format(write(at)), frame.format(write(later))


def _identifier(rng: random.Random) -> tuple[str, str]:
    write, frame = rng.choice(_UUIDS), rng.choice(("Request id: {}.", "session={}", "({})", "trace {} \n"))
    first, second = (write(str(uuid.UUID(bytes=rng.randbytes(16), version=4))) for _ in range(2))
    return frame.format(first), frame.format(second)


def _nonce(rng: random.Random) -> tuple[str, str]:
    draw = rng.choice(_NONCES)
    frame = rng.choice(("Nonce: {}.", "run={}", "({})", "cache-buster {} \n", '{{"id": "{}"}}'))
    return frame.format(draw(rng)), frame.format(draw(rng))


def _counter(rng: random.Random) -> tuple[str, str]:
    form = f"This is {rng.choice(_COUNTERS)}."
    number = rng.choice((rng.randint(1, 12), rng.randint(8, 120), rng.randint(900, 12_000), 9, 99, 999))
    return form.format(number), form.format(number + rng.choice((1, 1, 1, 2, 7)))


def _inserted(draw: Callable[[random.Random], tuple[str, str]], rng: random.Random, before: Body, after: Body) -> _Keys:
    first, second = draw(rng)
    position = rng.choice(_PLACES)
    keys = _text_of(rng, before, position)
    text = _at(before, keys)
    at = {"top": 0, "end": len(text)}.get(position, rng.randrange(len(text) + 1))
    _put(before, keys, text[:at] + first + text[at:])
    _put(after, keys, text[:at] + second + text[at:])
    return keys


def _far_from_the_end(body: Body) -> list[int]:
    """Return the messages with a text whose change makes the provider lose more than one block: less is no drift."""
    sizes = [len(message.get("content") or "") for message in body["messages"]]
    return [at for at, size in enumerate(sizes) if size and sum(sizes[at + 1 :]) >= _BLOCKS_BEHIND]


def _text_of(rng: random.Random, body: Body, position: str) -> _Keys:
    index = rng.randrange(len(body["tools"]))
    properties = body["tools"][index]["function"]["parameters"]["properties"]
    described = [key for key, one in properties.items() if "description" in one]
    role = {"user": "user", "result": "tool", "assistant": "assistant"}.get(position)
    spoken = [at for at in _far_from_the_end(body) if body["messages"][at]["role"] == role]
    if position == "parameter" and described:
        return "tools", index, "function", "parameters", "properties", rng.choice(described), "description"
    if position in {"tool", "parameter"}:
        return "tools", index, "function", "description"
    return "messages", rng.choice(spoken) if spoken else 0, "content"


# Texts


def _white_space(rng: random.Random, before: Body, after: Body) -> _Keys:
    keys = _text_of(rng, before, rng.choice(_PLACES))
    text = _at(before, keys)
    at = rng.choice([at for at, one in enumerate(text) if one == " "] or [len(text)])
    options = [text[:at] + more + text[at:] for more in (" ", "\n")]
    options += [text[:at] + "\t" + text[at + 1 :], text[:at] + text[at + 1 :], "\n" + text]
    options += [text + more for more in (" ", "\n", "\n\n")]
    options += [text.replace("\n", more) if "\n" in text else text + more for more in ("\n  ", "\r\n")]
    _put(after, keys, rng.choice([one for one in options if one != text]))
    return keys


def _reworded(rng: random.Random, text: str) -> str:
    words = text.split(" ")
    at = rng.choice([at for at, word in enumerate(words) if word.isalpha()] or [0])
    words[at] = rng.choice([word for word in ("perhaps", "always", "the", "customer", "kindly") if word != words[at]])
    return " ".join(words)


def _changed_text(rng: random.Random, before: Body, after: Body) -> _Keys:
    keys = _text_of(rng, before, rng.choice(("top", "middle", "end", "user", "result", "assistant")))
    text = _at(before, keys)
    at, sentences = rng.randrange(max(1, len(text))), text.split(". ")
    options = [
        _reworded(rng, text),
        text[:at] + " Please be brief and friendly. " + text[at:],
        text[:at] + text[at : at + 12].swapcase() + text[at + 12 :],
        text.replace(".", "!", 1),
    ]
    if len(sentences) > 5:
        del sentences[rng.randrange(1, len(sentences) - 1)]
        options.append(". ".join(sentences))
    if len(text) < 400:
        other = "Something else altogether is said here, in other words and in as many of them as before, or so."
        options.append(other[: max(40, len(text))])
    _put(after, keys, rng.choice([one for one in options if one != text]))
    return keys


def _compacted(rng: random.Random, _: Body, after: Body) -> _Keys:
    messages = after["messages"]
    name = rng.choice(("dropped", "summary", "window", "stub", "truncated"))
    last = len(messages) - 3
    long = [at for at in _far_from_the_end(after) if at > 1 and len(messages[at]["content"]) >= 300]
    if name in {"stub", "truncated"} and long:
        at = rng.choice(long)
        text = messages[at]["content"]
        messages[at]["content"] = "[output removed]" if name == "stub" else text[: len(text) // 3] + "... [truncated]"
        return "messages", at, "content"
    first = 1 if name == "window" else rng.randint(1, max(1, last - 2))
    stop = rng.randint(first + 2, max(first + 2, last))
    summary = {"role": "user", "content": "Summary of what was said so far: the customer asked, and we looked it up."}
    messages[first:stop] = [summary] if name == "summary" else []
    return "messages", first


# Tools and the order of keys


def _reversed(value: Any, *, deep: bool = False) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key], deep=True) if deep else value[key] for key in reversed(list(value))}
    return value[::-1] if isinstance(value, list) else value


def _reordered_keys(rng: random.Random, before: Body, after: Body) -> _Keys:
    tool: _Keys = ("tools", rng.randrange(len(after["tools"])))
    function, parameters = (*tool, "function"), (*tool, "function", "parameters")
    several = (tool, function, (*parameters, "properties"), (*parameters, "required"))
    options = [(keys, value, _reversed(value)) for keys in several if len(value := _at(before, keys) or ()) > 1]
    options.append((tool, _at(before, tool), _reversed(_at(before, tool), deep=True)))
    results = []
    for at, message in enumerate(before["messages"]):
        with suppress(ValueError):
            value = json.loads(message["content"]) if message["role"] == "tool" else None
            if isinstance(value, dict) and len(value) > 1:
                # The text as the encoder writes it, so that the order is all that changes.
                results.append((("messages", at, "content"), json.dumps(value), json.dumps(_reversed(value))))
    keys, old, new = rng.choice([*options, rng.choice(results)] if results else options)
    _put(before, keys, old)
    _put(after, keys, new)
    return keys


def _reordered_tools(rng: random.Random, before: Body, after: Body) -> _Keys:
    tools = before["tools"]
    one, other = sorted(rng.sample(range(len(tools)), 2))
    swapped = [*tools[:one], tools[other], *tools[one + 1 : other], tools[one], *tools[other + 1 :]]
    in_order = sorted(tools, key=lambda tool: str(tool["function"]["name"]))
    options = (swapped, in_order, [*tools[1:], tools[0]], rng.sample(tools, len(tools)))
    after["tools"] = copy.deepcopy(rng.choice([option for option in options if option != tools]))
    return "tools", next(at for at, tool in enumerate(after["tools"]) if tool != tools[at])


def _changed_tool(rng: random.Random, _: Body, after: Body) -> _Keys:
    index = rng.randrange(len(after["tools"]))
    function, keys = after["tools"][index]["function"], ("tools", index, "function")
    properties, inner = function["parameters"]["properties"], (*keys, "parameters", "properties")
    name = rng.choice(
        ("removed", "added", "renamed", "described", "extended", "parameter", "gone", "type", "described_parameter")
    )
    if name == "removed":
        del after["tools"][index]
        return "tools", index
    if name == "added":
        after["tools"].insert(index, {"type": "function", "function": {"name": "ping", "parameters": {}}})
        return "tools", index
    if name == "renamed":
        function["name"] = "call_" + function["name"]
        return *keys, "name"
    if name == "parameter":
        properties["verbose"] = {"type": "boolean", "description": "Whether to say more."}
        return *inner, "verbose"
    if name in {"gone", "type", "described_parameter"} and properties:
        key = rng.choice(list(properties))
        if name == "gone":
            del properties[key]
            return *inner, key
        if name == "type":
            properties[key]["type"] = "string" if properties[key].get("type") == "number" else "number"
            return *inner, key, "type"
        properties[key]["description"] = _reworded(rng, properties[key].get("description", "What it is."))
        return *inner, key, "description"
    text = function["description"]
    function["description"] = text + " Use it sparingly." if name == "extended" else _reworded(rng, text)
    return *keys, "description"


_CHANGES: Mapping[str, _Change] = {
    "timestamp": partial(_inserted, _timestamp),
    "uuid": partial(_inserted, _identifier),
    "counter": partial(_inserted, _counter),
    "random": partial(_inserted, _nonce),
    "whitespace": _white_space,
    "reordered_keys": _reordered_keys,
    "reordered_tools": _reordered_tools,
    "changed_tool": _changed_tool,
    "changed": _changed_text,
    "compacted": _compacted,
}
MUTATORS: Mapping[str, Callable[[random.Random, Body], Mutation]] = {
    kind: partial(_mutate, kind, change) for kind, change in _CHANGES.items()
}
"""By the kind that must be named. Those of other kinds change no segment."""
