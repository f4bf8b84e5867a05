"""Ways to change one thing in a recorded conversation, each with the kind and the place that ought to be named."""

from __future__ import annotations

import base64
import copy
import json
import random
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

Body = dict[str, Any]
_Keys = tuple[str | int, ...]
"""Where a value is in a body."""


class Mutation(NamedTuple):
    """One conversation twice: as it was sent, and as it is sent with one more turn and one thing changed."""

    kind: str
    name: str
    """The mutator, and how it wrote the value."""
    before: Body
    after: Body
    path: str | None
    """Of the value that differs."""
    character: int | None
    """Of the first difference in it; None where it is no text."""


_Change = Callable[[random.Random, Body, Body], tuple[str, _Keys]]
"""Change one thing between two equal bodies; return how, and where."""


def _mutate(kind: str, change: _Change, rng: random.Random, body: Body) -> Mutation:
    before, after = copy.deepcopy(body), copy.deepcopy(body)
    name, keys = change(rng, before, after)
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)[1:]
    one, other = _at(before, keys), _at(after, keys)
    character = None
    if isinstance(one, str) and isinstance(other, str):
        character = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
    return Mutation(kind, name, before, after, path, character)


def _at(body: Any, keys: _Keys) -> Any:
    """Return a value; None where there is none."""
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


def _formatted(form: str, at: datetime) -> str:
    return at.strftime(form)


_TIMES: Mapping[str, Callable[[datetime], str]] = {
    "iso": datetime.isoformat,
    "rfc_2822": format_datetime,
    "ctime": datetime.ctime,
    "epoch_s": lambda at: str(int(at.timestamp())),
    "epoch_ms": lambda at: str(int(at.timestamp() * 1000)),
    "epoch_float": lambda at: str(at.timestamp()),
    **{form: partial(_formatted, form) for form in _FORMATS},
}
_NONCES: Mapping[str, Callable[[random.Random], str]] = {
    "hex_8": lambda rng: rng.randbytes(4).hex(),
    "hex_16": lambda rng: rng.randbytes(8).hex(),
    "hex_40": lambda rng: rng.randbytes(20).hex(),
    "base64": lambda rng: base64.b64encode(rng.randbytes(16)).decode(),
    "urlsafe": lambda rng: base64.urlsafe_b64encode(rng.randbytes(12)).decode().rstrip("="),
    "ulid": lambda rng: "01J" + "".join(rng.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=23)),
    "prefixed": lambda rng: "sess_" + rng.randbytes(6).hex(),
    "fraction": lambda rng: str(rng.random()),
    "number": lambda rng: str(rng.randrange(10**11, 10**12)),
    "letters_and_digits": lambda rng: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10)) + "7",
}
_COUNTERS = (
    "request #{}", "Turn {} of this conversation", "Ticket {:06}", '{{"seq": {}}}', "Visitors so far: {:,}",
    "There have been {} messages",
)  # fmt: skip
_PLACES = ("top", "middle", "end", "tool", "parameter", "user", "result")


def _timestamp(rng: random.Random) -> tuple[str, str, str]:
    name, write = rng.choice(list(_TIMES.items()))
    at = datetime(2025, rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59), 7, tzinfo=UTC)
    later = at + rng.choice(
        (timedelta(seconds=41), timedelta(minutes=17), timedelta(hours=5), timedelta(days=1), timedelta(days=40))
    )
    while write(later) == write(at):
        later += timedelta(days=9, hours=3, minutes=11)
    frame = rng.choice(("The current time is {}.", "Now: {}", "[{}] ", "<time>{}</time>", "Today's date: {}\n"))
    return name, frame.format(write(at)), frame.format(write(later))


def _identifier(rng: random.Random) -> tuple[str, str, str]:
    def draw() -> str:
        return str(uuid.UUID(bytes=rng.randbytes(16), version=4))

    forms: Mapping[str, Callable[[str], str]] = {
        "dashed": str,
        "upper": str.upper,
        "plain": lambda text: text.replace("-", ""),
        "braces": "{{{}}}".format,
    }
    name, write = rng.choice(list(forms.items()))
    frame = rng.choice(("Request id: {}.", "session={}", "({})", "trace {} \n"))
    return name, frame.format(write(draw())), frame.format(write(draw()))


def _nonce(rng: random.Random) -> tuple[str, str, str]:
    name, draw = rng.choice(list(_NONCES.items()))
    frame = rng.choice(("Nonce: {}.", "run={}", "({})", "cache-buster {} \n", '{{"id": "{}"}}'))
    return name, frame.format(draw(rng)), frame.format(draw(rng))


def _counter(rng: random.Random) -> tuple[str, str, str]:
    form = rng.choice(_COUNTERS)
    number = rng.choice((rng.randint(1, 12), rng.randint(8, 120), rng.randint(900, 12_000), 9, 99, 999))
    first, second = (f"This is {form.format(one)}." for one in (number, number + rng.choice((1, 1, 1, 2, 7))))
    return form, first, second


def _inserted(
    draw: Callable[[random.Random], tuple[str, str, str]], rng: random.Random, before: Body, after: Body
) -> tuple[str, _Keys]:
    name, first, second = draw(rng)
    place = rng.choice(_PLACES)
    keys = _text_of(rng, before, place)
    text = _at(before, keys)
    at = {"top": 0, "end": len(text)}.get(place, rng.randrange(len(text) + 1))
    _put(before, keys, text[:at] + first + text[at:])
    _put(after, keys, text[:at] + second + text[at:])
    return f"{name} {place}", keys


def _text_of(rng: random.Random, body: Body, place: str) -> _Keys:
    index = rng.randrange(len(body["tools"]))
    properties = body["tools"][index]["function"]["parameters"]["properties"]
    described = [key for key, one in properties.items() if "description" in one]
    role = {"user": "user", "result": "tool", "assistant": "assistant"}.get(place)
    # Not the last message: to ask another question is no drift.
    spoken = [at for at, one in enumerate(body["messages"][:-1]) if one["role"] == role and one.get("content")]
    if place == "parameter" and described:
        return "tools", index, "function", "parameters", "properties", rng.choice(described), "description"
    if place in {"tool", "parameter"}:
        return "tools", index, "function", "description"
    return "messages", rng.choice(spoken) if spoken else 0, "content"


# Texts

_BLOCKS_BEHIND = 1_500


def _white_space(rng: random.Random, before: Body, after: Body) -> tuple[str, _Keys]:
    place = rng.choice(_PLACES)
    keys = _text_of(rng, before, place)
    text = _at(before, keys)
    blanks = [at for at, one in enumerate(text) if one == " "]
    at = rng.choice(blanks) if blanks else len(text)
    name, changed = rng.choice(
        (
            ("doubled", text[:at] + " " + text[at:]),
            ("line_end", text[:at] + "\n" + text[at:]),
            ("trailing", text + rng.choice((" ", "\n", "\n\n"))),
            ("leading", "\n" + text),
            ("tab", text[:at] + "\t" + text[at + 1 :]),
            ("dropped", text[:at] + text[at + 1 :]),
            ("every_line", text.replace("\n", "\n  ") if "\n" in text else text + "\n"),
            ("carriage_return", text.replace("\n", "\r\n") if "\n" in text else text + "\r\n"),
        )
    )
    _put(after, keys, changed if changed != text else text + "\n")
    return f"{name} {place}", keys


def _reworded(rng: random.Random, text: str) -> str:
    words = text.split(" ")
    at = rng.choice([at for at, word in enumerate(words) if word.isalpha()] or [0])
    words[at] = rng.choice([word for word in ("perhaps", "always", "the", "customer", "kindly") if word != words[at]])
    return " ".join(words)


def _changed_text(rng: random.Random, before: Body, after: Body) -> tuple[str, _Keys]:
    place = rng.choice(("top", "middle", "end", "user", "result", "assistant"))
    keys = _text_of(rng, before, place)
    text = changed = _at(before, keys)
    name = rng.choice(("reworded", "inserted", "sentence_gone", "replaced", "capitals", "punctuation"))
    at = rng.randrange(max(1, len(text)))
    if name == "inserted":
        changed = text[:at] + " Please be brief and friendly. " + text[at:]
    elif name == "sentence_gone" and text.count(". ") > 4:
        sentences = text.split(". ")
        del sentences[rng.randrange(1, len(sentences) - 1)]
        changed = ". ".join(sentences)
    elif name == "replaced" and len(text) < 400:
        other = "Something else altogether is said here, in other words and in as many of them as before, or so."
        changed = other[: max(40, len(text))]
    elif name == "capitals":
        changed = text[:at] + text[at : at + 12].swapcase() + text[at + 12 :]
    elif name == "punctuation":
        changed = text.replace(".", "!", 1)
    _put(after, keys, changed if changed != text else _reworded(rng, text))
    return f"{name} {place}", keys


def _compacted(rng: random.Random, _: Body, after: Body) -> tuple[str, _Keys]:
    messages = after["messages"]
    name = rng.choice(("dropped", "summary", "window", "stub", "truncated"))
    last = len(messages) - 3
    sizes = [len(message.get("content") or "") for message in messages]
    # So far from the end that the provider loses more than one block by it: to lose none is no drift.
    long = [at for at in range(2, len(messages) - 1) if sizes[at] >= 300 and sum(sizes[at + 1 :]) >= _BLOCKS_BEHIND]
    if name in {"stub", "truncated"} and long:
        at = rng.choice(long)
        text = messages[at]["content"]
        messages[at]["content"] = "[output removed]" if name == "stub" else text[: len(text) // 3] + "... [truncated]"
        return name, ("messages", at, "content")
    first = 1 if name == "window" else rng.randint(1, max(1, last - 2))
    stop = rng.randint(first + 2, max(first + 2, last))
    summary = {"role": "user", "content": "Summary of what was said so far: the customer asked, and we looked it up."}
    messages[first:stop] = [summary] if name == "summary" else []
    return name, ("messages", first)


# Tools and the order of keys


def _reversed(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one[key] for key in reversed(list(one))}


def _results(messages: list[Body]) -> list[tuple[int, dict[str, Any]]]:
    """Return the tools' results that are JSON objects of several members."""
    found = []
    for at, message in enumerate(messages):
        if message["role"] == "tool" and message["content"].startswith("{"):
            try:
                value = json.loads(message["content"])
            except ValueError:
                continue
            if len(value) > 1:
                found.append((at, value))
    return found


def _reordered_keys(rng: random.Random, before: Body, after: Body) -> tuple[str, _Keys]:
    index = rng.randrange(len(after["tools"]))
    tool, keys = after["tools"][index], ("tools", index)
    name = rng.choice(("tool", "function", "properties", "all", "required", "result"))
    parameters = tool["function"]["parameters"]
    results = _results(before["messages"])
    if name == "result" and results:
        at, value = rng.choice(results)
        # The text as the encoder writes it, so that the order is all that changes.
        before["messages"][at]["content"] = json.dumps(value)
        after["messages"][at]["content"] = json.dumps(_reversed(value))
        return name, ("messages", at, "content")
    if name == "required" and len(parameters.get("required", ())) > 1:
        parameters["required"].reverse()
        return name, (*keys, "function", "parameters", "required")
    if name == "properties" and len(parameters.get("properties", {})) > 1:
        parameters["properties"] = _reversed(parameters["properties"])
        return name, (*keys, "function", "parameters", "properties")
    if name == "function":
        tool["function"] = _reversed(tool["function"])
        return name, (*keys, "function")
    if name == "all":
        after["tools"][index] = json.loads(json.dumps(tool, sort_keys=True))
        if json.dumps(after["tools"][index]) != json.dumps(tool):
            return name, _first_order(tool, after["tools"][index], keys)
    after["tools"][index] = _reversed(tool)
    return "tool", keys


def _first_order(one: Any, other: Any, keys: _Keys) -> _Keys:
    """Return the outermost container, in reading order, whose keys are in another order."""
    if isinstance(one, dict):
        for mine, theirs in zip(one, other, strict=True):
            # What stands in front of the first key that is another may differ inside.
            if mine != theirs:
                return keys
            if json.dumps(one[mine]) != json.dumps(other[mine]):
                return _first_order(one[mine], other[mine], (*keys, mine))
    if isinstance(one, list):
        for at, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            if json.dumps(mine) != json.dumps(theirs):
                return _first_order(mine, theirs, (*keys, at))
    return keys


def _reordered_tools(rng: random.Random, before: Body, after: Body) -> tuple[str, _Keys]:
    tools = after["tools"]
    name = rng.choice(("shuffled", "swapped", "sorted", "rotated"))
    in_order = sorted(tools, key=lambda tool: str(tool["function"]["name"]))
    while tools == before["tools"]:
        if name == "shuffled":
            rng.shuffle(tools)
        elif name == "sorted" and in_order != tools:
            tools[:] = in_order
        elif name == "rotated":
            tools.append(tools.pop(0))
        else:
            one, other = rng.sample(range(len(tools)), 2)
            tools[one], tools[other] = tools[other], tools[one]
    return name, ("tools", next(at for at, tool in enumerate(tools) if tool != before["tools"][at]))


def _changed_tool(rng: random.Random, _: Body, after: Body) -> tuple[str, _Keys]:
    index = rng.randrange(len(after["tools"]))
    tool, keys = after["tools"][index]["function"], ("tools", index)
    properties, inner = tool["parameters"]["properties"], (*keys, "function", "parameters", "properties")
    name = rng.choice(
        ("removed", "added", "described", "extended", "parameter", "gone", "type", "described_parameter", "renamed")
    )
    if name == "removed":
        del after["tools"][index]
        return name, keys
    if name == "added":
        after["tools"].insert(index, {"type": "function", "function": {"name": "ping", "parameters": {}}})
        return name, keys
    if name == "parameter":
        properties["verbose"] = {"type": "boolean", "description": "Whether to say more."}
        return name, (*inner, "verbose")
    if name in {"gone", "type", "described_parameter"} and properties:
        key = rng.choice(list(properties))
        if name == "gone":
            del properties[key]
            return name, (*inner, key)
        if name == "type":
            properties[key]["type"] = "number" if properties[key].get("type") != "number" else "string"
            return name, (*inner, key, "type")
        text = properties[key].get("description")
        properties[key]["description"] = _reworded(rng, text) if text else "What it is."
        return name, (*inner, key, "description")
    if name == "renamed":
        tool["name"] = "call_" + tool["name"]
        return name, (*keys, "function", "name")
    text = tool["description"]
    tool["description"] = text + " Use it sparingly." if name == "extended" else _reworded(rng, text)
    return name, (*keys, "function", "description")


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
"""By the kind that ought to be named. Those of other kinds change no segment."""
