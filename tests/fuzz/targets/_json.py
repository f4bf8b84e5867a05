"""JSON that is streamed: what is said of it while it comes, against `json` and `jsonschema`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from fastlane.plays.bounded_output.progress._json_progress import JsonProgress
from fastlane.plays.bounded_output.progress._nodes import Node, compile_schema
from fastlane.records.output import StopReason
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._target import Target, holds
from tests.progress import small_schemas

_WORDS = (
    *'{}[]",:\\0123456789.eE+-tfn \t\n\r\x00\x1f\x7f', "NaN", "Infinity", "'", "//x\n", ",]", ",}", "\\u12", "\\ud83d",
    "\\x", "01", "1.", "-0", "1e5", "1E400", "٣", "²", "\ufeff", "\u00a0", "true", "false", "null", '"a":', "[{", "```",
    "```json\n", "\n\n\n\n\n\n\n\n\n", '"', '"a"', "[]", "{}", "\u2028", "😀", "\ud800", "\\uD83D\\uDE00",
)  # fmt: skip
_SPACES = " \t\n\r"
_NUMBER = re.compile(r"[-+.0-9eE]*")
_MOST_LETTERS = 240
_ANY = compile_schema(None)


class _TwiceError(ValueError):
    """A property of the same name comes twice: which one counts is nobody's word."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _TwiceError
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_PLAIN = json.JSONDecoder(parse_constant=_no_constant, parse_int=lambda _: 0, parse_float=lambda _: 0)
"""Python's reader without what is no JSON, and without its limit on digits."""


def _parses(text: str) -> bool:
    try:
        _PLAIN.decode(text)
    except ValueError:
        return False
    return True


def _end_of(text: str) -> tuple[int, int | None]:
    """Where the value of a text begins, and where it ends; None where it does not."""
    start = len(text) - len(text.lstrip(_SPACES))
    if text[start : start + 1] in tuple("-0123456789"):
        number = _NUMBER.match(text, start)
        assert number is not None
        # A number is at its end when something follows that can be no part of it.
        ended = number.end() < len(text) and _parses(number[0])
        return start, number.end() if ended else None
    try:
        return start, _PLAIN.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return start, None


_CLOSING = [
    *("", '"', "0", "null", "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l", ":0", '"":0'),
    *(f'{escape}"{colon}' for escape in ("", "n", "0", "00", "000", "0000", "u0000") for colon in ("", ":0")),
]


def _can_go_on(text: str) -> bool:
    """Whether there is anything with which a text becomes JSON, found by trying."""
    closing: list[str] = []
    in_string = escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif in_string:
            escaped, in_string = char == "\\", char != '"'
        elif char == '"':
            in_string = True
        elif char in "{[":
            closing.append("}" if char == "{" else "]")
        elif char in "}]" and closing:
            closing.pop()
    rest = "".join(reversed(closing))
    return any(_parses(text + end + rest) for end in _CLOSING)


def _told(node: Node, pieces: Sequence[str]) -> tuple[StopReason | None, int | None, str | None]:
    progress = JsonProgress(node)
    said: StopReason | None = None
    for piece in pieces:
        before, said = said, progress.feed(piece)
        holds(before in (None, "complete", said), "what was said is taken back", pieces, before, said)
    holds(progress.text == "".join(pieces), "the text is not what was fed", pieces)
    return said, progress.end, progress.problem


def _cut(draw: Drawn, text: str) -> list[str]:
    pieces, at = [], 0
    while at < len(text):
        size = 1 + draw.randrange(draw.choice((1, 3, 9, 400)))
        pieces.append(text[at : at + size])
        at += size
    return pieces


def _check_syntax(text: str, draw: Drawn) -> None:
    whole = _told(_ANY, [text])
    holds(_told(_ANY, _cut(draw, text)) == whole == _told(_ANY, list(text)), "a cut changes what is said", text)
    start, end = _end_of(text)
    if text[start : start + 1] == "`":
        return
    said, found, _ = whole
    if end is not None:
        behind = text[end : end + 1]
        # Another letter of a number's, or a quote, makes no end of it: it is said to be wrong, not whole.
        if behind == "" or behind in _SPACES or text[start] in '{["tfn':
            holds(found == end, "the value's end is elsewhere", text, found, end)
    elif found is not None:
        holds(_parses(text[start:found]), "what is complete is no JSON", text, found)
    if end is None and said is None and len(text) <= 60:
        holds(_can_go_on(text) or not text.strip(_SPACES), "what can never become JSON is not stopped", text)
    if said == "invalid":
        holds(not _can_go_on(text), "what can still become JSON is stopped", text, whole)


def _check_schema(draw: Drawn) -> None:
    plain = draw.randrange(2) == 0
    schema = small_schemas.document(draw, plain=plain)
    value = small_schemas.value(draw)
    text = small_schemas.written(draw, value)
    changed = draw.randrange(3) == 0
    for _ in range(draw.randrange(1, 3) if changed else 0):
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice((*_WORDS, "")) + text[at + draw.randrange(2) :]
    node = compile_schema(schema)
    # A line feed ends a number.
    said, end, problem = _told(node, [text, "\n"])
    for pieces in (_cut(draw, text), list(text)):
        again = _told(node, [*pieces, "\n"])
        holds(again == (said, end, problem), "a cut changes what is said", schema, pieces, again, (said, end, problem))
    try:
        read = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except ValueError:
        if not _parses(text) and not text.lstrip(_SPACES).startswith("`"):
            holds(said != "complete" or end != len(text), "what is complete is no JSON", schema, text)
        return
    if not _is_finite(read):
        return  # what one of the two rounds to infinity, the other need not
    valid = Draft202012Validator(schema).is_valid(read)
    if valid:
        holds(said in ("complete", "whitespace"), "a valid answer is stopped", schema, text, said, problem)
        if said == "complete":
            holds(end == len(text.rstrip(_SPACES)), "the value's end is elsewhere", schema, text, end)
    elif plain:
        holds(said in ("invalid", "whitespace"), "an answer that is not valid is not stopped", schema, text, said)


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_finite(one) for one in value.values())
    if isinstance(value, list):
        return all(_is_finite(one) for one in value)
    return not isinstance(value, float) or math.isfinite(value)


def check(data: bytes) -> None:
    """By the first byte: any text, words of JSON, or a value with a schema."""
    kind, draw = (data[0] if data else 0) % 4, Drawn(data[1:])
    if kind == 0:
        _check_syntax(data[1 : 1 + _MOST_LETTERS].decode("utf-8", "surrogateescape"), Drawn(data[::-1]))
    elif kind == 1:
        words: list[str] = []
        while not draw.spent and len(words) < 40:
            words.append(draw.choice(_WORDS))
        _check_syntax("".join(words)[:_MOST_LETTERS], Drawn(data[::-1]))
    else:
        _check_schema(draw)


def seeds() -> list[bytes]:
    """Texts that are JSON or nearly, and drawn schemas."""
    texts = (
        '{"a": [1, {"b": "}"}], "c": null}', " [1.5e-7, -0, true]\n", '"a\\"\\ud83d\\ude00b"', "12 ", "{}\n\nI hope",
        '```json\n{"a": 1}\n```', '{"a":1,"a":2}', "[[[[[]]]]]", "1e", "-", '{"a', "tru", "01", "[1,]",
        '{"é😀": "\u2028"}',
    )  # fmt: skip
    drawn = chance(40, 400)
    return [
        *(b"\0" + text.encode() for text in texts),
        *(bytes([kind]) + one for one in drawn for kind in (1, 2)),
    ]


def _fed(schema: Any, make: Callable[[int], str], step: int = 16) -> Callable[[int], Callable[[], object]]:
    node = compile_schema(schema)

    def work(size: int) -> Callable[[], object]:
        text = make(size)
        pieces = [text[at : at + step] for at in range(0, len(text), step)]

        def run() -> None:
            progress = JsonProgress(node)
            for piece in pieces:
                progress.feed(piece)

        return run

    return work


_TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#"}, "b": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "string"}]}},
}
TARGET = Target(
    name="json",
    reads="JSON that is streamed, and when to stop it",
    oracle="json on every prefix and cut; jsonschema on drawn schemas",
    check=check,
    seeds=seeds,
    modules=("fastlane.plays.bounded_output.progress",),
    grown={
        "a long text": _fed(None, lambda size: '"' + "x" * size + '"'),
        "a long text of escapes": _fed(None, lambda size: '"' + "\\u00e9" * (size // 6) + '"'),
        "a long text of limited length": _fed({"type": "string", "maxLength": 1 << 30}, lambda size: '"' + "x" * size),
        "a long text of few": _fed({"enum": ["x" * 99, "y"]}, lambda size: '"' + "x" * size),
        "a long name": _fed(None, lambda size: '{"' + "x" * size + '": 1}'),
        "a long number": _fed(None, lambda size: "1" * size + " "),
        "a long number with a limit": _fed({"type": "number", "maximum": 3}, lambda size: "0." + "1" * size + " "),
        "deep arrays": _fed(None, lambda size: "[" * size),
        "deep objects": _fed(_TREE, lambda size: '{"a":' * (size // 5)),
        "many items": _fed(None, lambda size: "[" + "1," * (size // 2)),
        "many properties": _fed(None, lambda size: "{" + '"a":1,' * (size // 6)),
        "many properties of which some are allowed": _fed(
            {"type": "object", "maxProperties": 1 << 30},
            lambda size: "{" + ",".join(f'"{number}":1' for number in range(size // 9)),
        ),
        "alternatives": _fed(_TREE, lambda size: '{"b":[' + '{"b":[' * (size // 6)),
        "white space": _fed(None, lambda size: "[" * 1000 + " " * size),
        "a fence": _fed(None, lambda size: "`" * size),
        "white space in front": _fed(None, lambda size: "\n" * size + "{}"),
    },
)
