"""CPU time of writing a prompt's body: openai's JSON against ours, gzipped with zlib and with isal, and as MessagePack.

The body holds 123 kB of real source code of the running Python. Each arm makes bytes of the same mapping: openai's
function as its client calls it; ours as fastlane's client does, JSON first and then the form that is sent, by the same
functions. Inside: the CPU time of the process while the bytes are made. Outside: looking at the connection, deciding,
building the request and sending it. What was written is read again and compared with what it was made of. The arms take
turns, in reversed order every other round.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import msgpack  # type: ignore[import-untyped]
from openai._utils._json import openapi_dumps

from benchmarks._encoding import BODY_BYTES, body, prompt
from benchmarks._paired import cpu_pairs, median
from benchmarks._report import Figure, Reach, Report
from fastlane.compat.requests import stock_bytes
from fastlane.plays.request_encoding import bodies
from fastlane.records.attempts import Form

_BODY = body(prompt("source"))
_BLOCK = 10
"""Bodies of one arm before the next arm's turn."""


def _stock() -> bytes:
    return openapi_dumps(_BODY)


def _ours(form: Form, *, level: int = 1) -> Callable[[], bytes]:
    writing = bodies.Writing(gzip_level=level)

    def write() -> bytes:
        plain = stock_bytes(_BODY)
        assert plain is not None
        return bodies.write(plain, form, writing)[0]

    return write


def _json() -> bytes:
    plain = stock_bytes(_BODY)
    assert plain is not None
    return plain


def _read(written: bytes, form: Form) -> Any:
    inner = zlib.decompress(written, wbits=zlib.MAX_WBITS | 16) if form.endswith("gzip") else written
    return msgpack.unpackb(inner) if form.startswith("msgpack") else json.loads(inner)


def _block(name: str, write: Callable[[], bytes]) -> Callable[[], None]:
    def block() -> None:
        with _library(name):
            for _ in range(_BLOCK):
                write()

    return block


def _library(name: str) -> AbstractContextManager[object]:
    """Have gzip done by isal for the arms that are named after it, and by zlib for the others."""
    return nullcontext() if "isal" in name else patch.object(bodies, "_isal", lambda: None)


def measure(quick: bool) -> Report:
    """Write the body in every way."""
    arms: dict[str, tuple[Form, Callable[[], bytes]]] = {
        "stock_json": ("json", _stock),
        "fastlane_json": ("json", _json),
        "gzip_1": ("json+gzip", _ours("json+gzip")),
        "gzip_6": ("json+gzip", _ours("json+gzip", level=6)),
        "gzip_9": ("json+gzip", _ours("json+gzip", level=9)),
        "msgpack": ("msgpack", _ours("msgpack")),
        "msgpack_gzip_1": ("msgpack+gzip", _ours("msgpack+gzip")),
    }
    with_isal = bodies._isal() is not None
    if with_isal:
        arms["isal_1"] = "json+gzip", _ours("json+gzip")
        arms["msgpack_isal_1"] = "msgpack+gzip", _ours("msgpack+gzip")
    if wrong := [name for name, (form, write) in arms.items() if _read(write(), form) != _BODY]:
        raise RuntimeError(f"{', '.join(wrong)} wrote something else than the body")
    pairs = 30 if quick else 200
    taken = cpu_pairs([_block(name, write) for name, (_, write) in arms.items()], pairs)
    figures: dict[str, Figure] = {}
    for (name, (_, write)), nanoseconds in zip(arms.items(), taken, strict=True):
        each = median([one / 1e6 / _BLOCK for one in nanoseconds])
        with _library(name):
            size = len(write())
        figures |= {f"{name}_cpu_ms": each.value, f"{name}_cpu_high_ms": each.high, f"{name}_bytes": size}
    if not with_isal:
        figures |= {"isal_1_cpu_ms": None}
    stock, isal = figures["stock_json_cpu_ms"], figures["isal_1_cpu_ms"]
    gzipped = figures["gzip_1_cpu_ms"]
    assert stock is not None
    assert gzipped is not None
    figures["gzip_1_to_stock_ratio"] = gzipped / stock
    figures["isal_1_to_stock_ratio"] = None if isal is None else isal / stock
    return Report(
        figures=figures,
        reach=(
            Reach(figure="gzip_1_cpu_ms", op="<=", target=0.9),
            Reach(figure="isal_1_cpu_ms", op="<=", target=0.3),
        ),
        conditions={"body_bytes": BODY_BYTES, "pairs": pairs, "bodies_of_a_pair": _BLOCK, "isal": with_isal},
    )
