"""JSON that is streamed: where its value ends, against `json`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fastlane.protocol.json_scanner import JsonScanner
from tests.fuzz.drawn import Drawn, chance, json_value
from tests.fuzz.targets._target import holds

_WORDS = (
    *'{}[]",:\\0123456789.eE+-tfn \t\n\r\x00\x1f\x7f', "NaN", "'", "\\u12", "\\ud83d", "\\x", "\ufeff", "\u00a0",
    "true",
    "null", '"a":', "[{", "```", "```json\n", "\n\n\n\n\n\n\n\n\n", '"', '"a"', "[]", "{}", "\u2028", "😀", "\ud800",
)  # fmt: skip
_MAX_LETTERS = 120


def _scanned(pieces: Sequence[str]) -> JsonScanner:
    scanner = JsonScanner()
    said = None
    for piece in pieces:
        before, said = said, scanner.feed(piece)
        holds(before in (None, "complete", said), "what was said is taken back", pieces, before, said)
    holds(scanner.text == "".join(pieces), "the text is not what was fed", pieces)
    return scanner


def _cut(draw: Drawn, text: str) -> list[str]:
    pieces, at = [], 0
    while at < len(text):
        size = 1 + draw.randrange(draw.choice((1, 3, 9, 400)))
        pieces.append(text[at : at + size])
        at += size
    return pieces


def _check_text(text: str, draw: Drawn) -> None:
    whole = _scanned([text])
    for pieces in (_cut(draw, text), list(text)):
        again = _scanned(pieces)
        same = (again.start, again.end, again.reason) == (whole.start, whole.end, whole.reason)
        holds(same, "a cut changes what is said", text, pieces)
    if whole.end is not None:
        holds(0 <= whole.start < whole.end <= len(text), "the end is outside of the text", text)


def _check_value(draw: Drawn) -> None:
    value = json_value(draw, _WORDS)
    try:
        text = json.dumps(value, indent=draw.choice((None, 0, 2)), allow_nan=False)
    except ValueError:
        return  # NaN and infinities are no JSON
    fence = draw.choice(("", "\n", "```json\n"))
    behind = draw.choice(("\n", "\n```", " more", "\n{}"))
    scanner = _scanned(_cut(draw, fence + text + behind))
    holds(scanner.value == text, "the value's end is elsewhere", text, scanner.start, scanner.end)


def check(data: bytes) -> None:
    """By the first byte: any text, words of JSON, or a value."""
    kind, draw = (data[0] if data else 0) % 3, Drawn(data[1:])
    if kind == 0:
        _check_text(data[1 : 1 + _MAX_LETTERS].decode("utf-8", "surrogateescape"), Drawn(data[::-1]))
    elif kind == 1:
        words: list[str] = []
        while not draw.spent and len(words) < 40:
            words.append(draw.choice(_WORDS))
        _check_text("".join(words)[:_MAX_LETTERS], Drawn(data[::-1]))
    else:
        _check_value(draw)


def seeds() -> list[bytes]:
    """Texts that are JSON or nearly, and drawn values."""
    texts = (
        '{"a": [1, {"b": "}"}], "c": null}', " [1.5e-7, -0, true]\n", '"a\\"\\ud83d\\ude00b"', "12 ", "{}\n\nI hope",
        '```json\n{"a": 1}\n```', "[[[[[]]]]]", "1e", "-", '{"a', "tru", '{"é😀": "\u2028"}',
    )  # fmt: skip
    drawn = chance(40, 400)
    return [
        *(b"\0" + text.encode() for text in texts),
        *(bytes([kind]) + one for one in drawn for kind in (1, 2)),
    ]
