"""Whole streams: what a caller of ours gets, event by event and error by error, against the stock client's caller."""

from __future__ import annotations

from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._sse import LINES
from tests.fuzz.targets._target import Target, holds
from tests.test_stream_laws import OURS, SERVER, STOCK, WHOLE, told

_DATA = (
    WHOLE, b"[DONE]", b"[DONE]x", b"", b"null", b"1", b"{", b"[]", b"{}", b"NaN",
    b'{"error": {"message": "It broke."}}',
    b'{"error": null, "id": "c"}', b'{"choices": 1}', b'{"choices": [null]}', b'{"choices": [{"delta": null}]}',
    b"\xff",
    b'{"id": "a", "id": "b"}', b'{"model": 99999999999999999999999999}', b'\t{"id": "c"}\t', b'{"id": "\\ud800"}',
    b"[" * 3_000, b"1" * 4_400, b'{"usage": {"prompt_tokens": ' + b"9" * 30 + b"}}", b'{"id": "a\xe2\x80\xa8b"}',
)  # fmt: skip
_FAILURES = (None, None, None, "ReadError", "ReadTimeout", "RemoteProtocolError")


def check(data: bytes) -> None:
    """A body of lines drawn by the bytes, cut in a drawn way, which may break off."""
    draw = Drawn(data)
    parts: list[bytes] = []
    failure = draw.choice(_FAILURES)
    while not draw.spent and len(parts) < 30:
        kind = draw.randrange(8)
        if kind < 4:
            parts.append(b"data: " + draw.choice(_DATA) + b"\n\n")
        elif kind < 7:
            parts.append(draw.choice(LINES))
        else:
            parts.append(draw.bytes_of(16))
    body = b"".join(parts)
    SERVER.reads = [read for read in Drawn(data[::-1]).cut(body) if read]
    SERVER.failure = failure
    expected, found = told(STOCK), told(OURS)
    holds(found == expected, "a caller gets something else than the stock client's", SERVER.reads, found, expected)
    record = OURS.calls[-1]
    holds(record.events == len(expected[0]), "the record counts other events", record.events, len(expected[0]))
    holds((record.outcome == "failed") == (expected[1] is not None), "the record has another end", record.outcome)


def seeds() -> list[bytes]:
    """Bytes that draw bodies."""
    return chance(40, 90)


TARGET = Target(
    name="stream",
    check=check,
    seeds=seeds,
)
