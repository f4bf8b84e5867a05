"""Ways to change one thing in a recorded conversation, each with the kind and the place that ought to be named."""

from __future__ import annotations

import base64
import copy
import random
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from benchmarks._mutated_tools import Body, Mutation, apart, changed_tool, reordered_keys, reordered_tools, reworded

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIMES: Mapping[str, Callable[[datetime], str]] = {
    "iso": lambda at: at.isoformat(),
    "iso_z": lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "date": lambda at: at.strftime("%Y-%m-%d"),
    "date_and_time": lambda at: at.strftime("%Y-%m-%d %H:%M:%S EST"),
    "rfc_2822": format_datetime,
    "long": lambda at: f"{at:%A}, {at.day} {at:%B %Y}, {at:%I:%M %p}",
    "american": lambda at: f"{at:%A}, {at:%B} {at.day}, {at:%Y} at {at:%I:%M %p}",
    "slashes": lambda at: at.strftime("%d/%m/%Y %H:%M"),
    "dots": lambda at: at.strftime("%d.%m.%Y"),
    "clock": lambda at: at.strftime("%H:%M:%S"),
    "half_day": lambda at: at.strftime("%I:%M %p"),
    "ctime": lambda at: at.ctime(),
    "epoch_s": lambda at: str(int(at.timestamp())),
    "epoch_ms": lambda at: str(int(at.timestamp() * 1000)),
    "epoch_float": lambda at: str(at.timestamp()),
    "compact": lambda at: at.strftime("%Y%m%dT%H%M%SZ"),
    "weekday": lambda at: at.strftime("%A"),
    "month": lambda at: at.strftime("%B %Y"),
}
_IDENTIFIERS: Mapping[str, Callable[[random.Random], str]] = {
    "dashed": lambda rng: str(_uuid(rng)),
    "upper": lambda rng: str(_uuid(rng)).upper(),
    "plain": lambda rng: _uuid(rng).hex,
    "braces": lambda rng: "{" + str(_uuid(rng)) + "}",
}
_NONCES: Mapping[str, Callable[[random.Random], str]] = {
    "hex_8": lambda rng: rng.randbytes(4).hex(),
    "hex_16": lambda rng: rng.randbytes(8).hex(),
    "hex_40": lambda rng: rng.randbytes(20).hex(),
    "base64": lambda rng: base64.b64encode(rng.randbytes(16)).decode(),
    "urlsafe": lambda rng: base64.urlsafe_b64encode(rng.randbytes(12)).decode().rstrip("="),
    "ulid": lambda rng: "01J" + "".join(rng.choices(_ALPHABET, k=23)),
    "prefixed": lambda rng: "sess_" + rng.randbytes(6).hex(),
    "fraction": lambda rng: str(rng.random()),
    "number": lambda rng: str(rng.randrange(10**11, 10**12)),
    "letters_and_digits": lambda rng: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10)) + "7",
}
_COUNTERS: Mapping[str, Callable[[int], str]] = {
    "request": lambda number: f"request #{number}",
    "turn": lambda number: f"Turn {number} of this conversation",
    "padded": lambda number: f"Ticket {number:06}",
    "json": lambda number: f'{{"seq": {number}}}',
    "visitors": lambda number: f"Visitors so far: {number:,}",
    "bare": lambda number: f"There have been {number} messages",
}
_BLOCKS_BEHIND = 1_500
_PLACES = ("top", "middle", "end", "tool", "parameter", "user", "result")


def _uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(bytes=rng.randbytes(16), version=4)


def _timestamp(rng: random.Random, body: Body) -> Mutation:
    name, write = rng.choice(list(_TIMES.items()))
    at = datetime(2025, rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59), 7, tzinfo=UTC)
    later = at + rng.choice(
        (timedelta(seconds=41), timedelta(minutes=17), timedelta(hours=5), timedelta(days=1), timedelta(days=40))
    )
    while write(later) == write(at):
        later += timedelta(days=9, hours=3, minutes=11)
    frame = rng.choice(("The current time is {}.", "Now: {}", "[{}] ", "<time>{}</time>", "Today's date: {}\n"))
    return _value(rng, body, "timestamp", name, frame.format(write(at)), frame.format(write(later)))


def _identifier(rng: random.Random, body: Body) -> Mutation:
    name, draw = rng.choice(list(_IDENTIFIERS.items()))
    frame = rng.choice(("Request id: {}.", "session={}", "({})", "trace {} \n"))
    return _value(rng, body, "uuid", name, frame.format(draw(rng)), frame.format(draw(rng)))


def _nonce(rng: random.Random, body: Body) -> Mutation:
    name, draw = rng.choice(list(_NONCES.items()))
    frame = rng.choice(("Nonce: {}.", "run={}", "({})", "cache-buster {} \n", '{{"id": "{}"}}'))
    return _value(rng, body, "random", name, frame.format(draw(rng)), frame.format(draw(rng)))


def _counter(rng: random.Random, body: Body) -> Mutation:
    name, write = rng.choice(list(_COUNTERS.items()))
    number = rng.choice((rng.randint(1, 12), rng.randint(8, 120), rng.randint(900, 12_000), 9, 99, 999))
    step = rng.choice((1, 1, 1, 2, 7))
    return _value(rng, body, "counter", name, f"This is {write(number)}.", f"This is {write(number + step)}.")


def _white_space(rng: random.Random, body: Body) -> Mutation:
    after = copy.deepcopy(body)
    place = rng.choice(_PLACES)
    get, put, path = _leaf(rng, after, place)
    text = get()
    blanks = [at for at, one in enumerate(text) if one == " "]
    name = rng.choice(("doubled", "line_end", "trailing", "leading", "tab", "dropped", "every_line", "carriage_return"))
    at = rng.choice(blanks) if blanks else len(text)
    changed = {
        "doubled": text[:at] + " " + text[at:],
        "line_end": text[:at] + "\n" + text[at:],
        "trailing": text + rng.choice((" ", "\n", "\n\n")),
        "leading": "\n" + text,
        "tab": text[:at] + "\t" + text[at + 1 :],
        "dropped": text[:at] + text[at + 1 :],
        "every_line": text.replace("\n", "\n  ") if "\n" in text else text + "\n",
        "carriage_return": text.replace("\n", "\r\n") if "\n" in text else text + "\r\n",
    }[name]
    if changed == text:
        changed = text + "\n"
    put(changed)
    return Mutation("whitespace", f"{name} {place}", body, after, path, apart(text, changed))


def _text(rng: random.Random, body: Body) -> Mutation:
    after = copy.deepcopy(body)
    place = rng.choice(("top", "middle", "end", "user", "result", "assistant"))
    get, put, path = _leaf(rng, after, place)
    text = get()
    name = rng.choice(("reworded", "inserted", "sentence_gone", "replaced", "capitals", "punctuation"))
    changed = text
    at = rng.randrange(max(1, len(text)))
    if name == "inserted":
        changed = text[:at] + " Please be brief and friendly. " + text[at:]
    elif name == "sentence_gone" and text.count(". ") > 4:
        sentences = text.split(". ")
        del sentences[rng.randrange(1, len(sentences) - 1)]
        changed = ". ".join(sentences)
    elif name == "replaced" and len(text) < 400:
        changed = "Something else altogether is said here, in other words and in as many of them as before, or so."[
            : max(40, len(text))
        ]
    elif name == "capitals":
        changed = text[:at] + text[at : at + 12].swapcase() + text[at + 12 :]
    elif name == "punctuation":
        changed = text.replace(".", "!", 1)
    if changed == text:
        changed = reworded(rng, text)
    put(changed)
    return Mutation("changed", f"{name} {place}", body, after, path, apart(text, changed))


def _compacted(rng: random.Random, body: Body) -> Mutation:
    after = copy.deepcopy(body)
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
        return Mutation("compacted", name, body, after, f"messages[{at}].content", apart(text, messages[at]["content"]))
    first = 1 if name == "window" else rng.randint(1, max(1, last - 2))
    stop = rng.randint(first + 2, max(first + 2, last))
    summary = {"role": "user", "content": "Summary of what was said so far: the customer asked, and we looked it up."}
    messages[first:stop] = [summary] if name == "summary" else []
    return Mutation("compacted", name, body, after, f"messages[{first}]", None)


MUTATORS: Mapping[str, Callable[[random.Random, Body], Mutation]] = {
    "timestamp": _timestamp,
    "uuid": _identifier,
    "counter": _counter,
    "random": _nonce,
    "whitespace": _white_space,
    "reordered_keys": reordered_keys,
    "reordered_tools": reordered_tools,
    "changed_tool": changed_tool,
    "changed": _text,
    "compacted": _compacted,
}
"""By the kind that ought to be named. Those of other kinds change no segment."""


def _value(rng: random.Random, body: Body, kind: str, name: str, first: str, second: str) -> Mutation:
    """The same place in a prompt with one value and then with another."""
    before, after = copy.deepcopy(body), copy.deepcopy(body)
    place = rng.choice(_PLACES)
    state = rng.getstate()
    get, put, path = _leaf(rng, before, place)
    at = {"top": 0, "end": len(get())}.get(place, rng.randrange(len(get()) + 1))
    text = get()
    put(text[:at] + first + text[at:])
    rng.setstate(state)
    _, put, _ = _leaf(rng, after, place)
    put(text[:at] + second + text[at:])
    character = apart(text[:at] + first + text[at:], text[:at] + second + text[at:])
    return Mutation(kind, f"{name} {place}", before, after, path, character)


def _leaf(rng: random.Random, body: Body, place: str) -> tuple[Callable[[], str], Callable[[str], None], str]:
    """A text in a body: how to read it, how to write it, and its path."""
    messages, tools = body["messages"], body["tools"]
    index = rng.randrange(len(tools))
    function = tools[index]["function"]
    described = [key for key, one in function["parameters"]["properties"].items() if "description" in one]
    role = {"user": "user", "result": "tool", "assistant": "assistant"}.get(place)
    # Not the last message: to ask another question is no drift.
    spoken = [at for at, one in enumerate(messages[:-1]) if one["role"] == role and one.get("content")]
    if place == "parameter" and described:
        key = rng.choice(described)
        holder, member = function["parameters"]["properties"][key], "description"
        path = f"tools[{index}].function.parameters.properties.{key}.description"
    elif place in {"tool", "parameter"}:
        holder, member, path = function, "description", f"tools[{index}].function.description"
    elif spoken:
        at = rng.choice(spoken)
        holder, member, path = messages[at], "content", f"messages[{at}].content"
    else:
        holder, member, path = messages[0], "content", "messages[0].content"

    def put(text: str) -> None:
        holder[member] = text

    return lambda: holder[member], put, path
