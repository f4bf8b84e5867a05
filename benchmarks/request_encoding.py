"""What `RequestEncoding` is worth: prompts to a provider that takes every form of body, as JSON and encoded.

The embedded provider has no time of its own and is 40 ms away. With one that thinks, both sides take that much longer:
the difference stays, the ratio shrinks. Sides take turns, in reversed order every other round.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

from openai._utils._json import openapi_dumps

from benchmarks._client import Groups, LanePair, client_of, in_lanes, ours, wishes
from benchmarks._paired import added, cpu_pairs, median, middle, paired, ttft
from benchmarks._provider import MODEL, ROUND_TRIP_TIME_S, fact, providers
from benchmarks._report import Figure, Report
from fastlane.compat.requests import stock_bytes
from fastlane.emulator import RequestLog
from fastlane.plays.request_encoding import bodies
from fastlane.plays.request_encoding.play import RequestEncoding
from fastlane.providers import ProviderFacts

_BODY_BYTES = 123_400
"""The size of the talk's request as JSON."""

# Pure Python on every version, and not frozen into the interpreter.
_MODULES = ("argparse", "tarfile", "difflib", "statistics")
_INSTRUCTION = (
    "You are a code reviewer. Look for errors first: wrong results, leaks of files, sockets and locks, races, and "
    "inputs that were not thought of. Leave style alone. Review this module:\n\n"
)
# What the talk's prompt repeats is not known, only what was left of it: 2.0 kB of 123.4.
_REPEATED_CHARACTERS = 2_500


def _body(messages: list[Any]) -> dict[str, Any]:
    return {"messages": messages, "model": MODEL, "stream": True}


def _prompt(kind: str, body_bytes: int = _BODY_BYTES) -> list[Any]:
    """Return messages that make a body of about so many bytes: real source code, or the same code over and over."""
    text = "\n".join(inspect.getsource(importlib.import_module(name)) for name in _MODULES)
    if kind == "talk":
        text = text[:_REPEATED_CHARACTERS] * (body_bytes // _REPEATED_CHARACTERS + 1)

    def messages(characters: int) -> list[Any]:
        return [{"role": "user", "content": (_INSTRUCTION + text)[:characters]}]

    # JSON writes some characters as two.
    size = len(json.dumps(_body(messages(body_bytes)), separators=(",", ":"), ensure_ascii=False).encode())
    return messages(body_bytes * body_bytes // size)


def _encoding() -> RequestEncoding:
    """Return the play with facts of a provider that takes every form of body: what the embedded one does."""
    forms = fact(("json", "json+gzip", "msgpack", "msgpack+gzip"))
    endpoints = ("/chat/completions", "/completions", "/responses")
    return RequestEncoding(facts=ProviderFacts(slug="emulator", encodings=dict.fromkeys(endpoints, forms)))


def _in_lanes(
    each: Sequence[Groups], clients: Callable[[str], Sequence[Any]], rounds: int, pause_s: float
) -> tuple[list[dict[str, list[LanePair]]], list[Sequence[RequestLog]]]:
    """Send the prompts of each lane to a provider of its own; return the pairs and the provider's log of each."""
    with providers(len(each), round_trip_time_s=ROUND_TRIP_TIME_S) as started:
        lanes = [(clients(emulator.base_url), groups) for emulator, groups in zip(started, each, strict=True)]
        pairs = asyncio.run(in_lanes(lanes, rounds, apart_s=pause_s / len(each), pause_s=pause_s))
        return pairs, [emulator.log() for emulator in started]


# After idle seconds, beside `Connection()`

# A window of 90 segments is halved four times, once for each round trip and 200 ms.
_PAUSE_S = 1.2
_LANES = 3
_SIZES = {"4_kb": 4_000, "16_kb": 16_000, "64_kb": 64_000, "123_kb": _BODY_BYTES}


def encoding(quick: bool) -> Report:
    """Compare `RequestEncoding` with `Connection()` alone for prompts of 4 to 123 kB: time to first token.

    Real source code, on connections whose window has fallen back as it does while a model thinks; and 123 kB once more
    right behind that (`again`), where fewer bytes save less. Inside: from the call to the first content, encoding
    included. Outside: opening connections.
    """
    rounds = 5 if quick else 25
    again = {"123_kb": ("123_kb", "123_kb_again")}
    groups = [(again.get(name, (name,)), _prompt("source", size)) for name, size in _SIZES.items()]
    lanes, _ = _in_lanes(
        [groups] * _LANES, lambda url: [ours("async", url), ours("async", url, _encoding())], rounds, _PAUSE_S
    )
    figures: dict[str, Figure] = {}
    for case in lanes[0]:
        pairs = [pair for lane in lanes for pair in lane[case]]
        alone, own = [pair.first_ms for pair in pairs], [pair.second_ms for pair in pairs]
        figures |= {
            f"at_{case}_ttft_ratio": paired("", alone, own)["_ratio"],
            f"at_{case}_alone_ttft_ms": middle(alone),
            f"at_{case}_encoding_ttft_ms": middle(own),
            **added(f"at_{case}_saved", alone, own, "ms"),
            f"at_{case}_encoded_share": sum(pair.encoded for pair in pairs) / len(pairs),
        }
    return Report(
        figures={**figures, "pairs": rounds * _LANES},
        reach={
            "at_4_kb_encoded_share": "== 0",
            "at_16_kb_ttft_ratio": ">= 1.5",
            "at_64_kb_ttft_ratio": ">= 1.3",
            "at_123_kb_ttft_ratio": ">= 1.7",
            "at_123_kb_again_ttft_ratio": ">= 0.9",
        },
    )


# Every few seconds, beside openai's client

_HEADLINE_PAUSE_S = 6.0
_LANES_OF_A_KIND = 2
_REACH = {"talk": 4.0, "source": 2.5}


def headline(quick: bool) -> Report:
    """Compare `openai.AsyncOpenAI()` with fastlane and `RequestEncoding()` for a long prompt every six seconds.

    Prompts of 123 kB: one kind repeats its code (`talk`), one is real source code. The stock client has closed its
    connection by then, and sends JSON over HTTP/1.1. Inside: from the call to the first content.
    """
    rounds = 5 if quick else 25
    kinds = [kind for kind in _REACH for _ in range(_LANES_OF_A_KIND)]

    def clients(base_url: str) -> list[Any]:
        stock, own = ({"default_headers": wishes(tag=side)} for side in ("stock", "fastlane"))
        return [client_of("stock", "async", base_url, **stock), ours("async", base_url, _encoding(), **own)]

    lanes, logs = _in_lanes([[((kind,), _prompt(kind))] for kind in kinds], clients, rounds, _HEADLINE_PAUSE_S)
    figures: dict[str, Figure] = {}
    for kind in _REACH:
        numbers = [number for number, other in enumerate(kinds) if other == kind]
        pairs = [pair for number in numbers for pair in lanes[number][kind]]
        log = [one for number in numbers for one in logs[number]]
        if {one.content_encoding for one in log if one.tag == "stock"} != {None}:
            raise RuntimeError("the stock client was to send JSON as it is")
        if any(abs(one.bytes_in_decoded / _BODY_BYTES - 1) > 0.02 for one in log):
            raise RuntimeError(f"each call was to have about {_BODY_BYTES} bytes of JSON")
        theirs, own = [pair.first_ms for pair in pairs], [pair.second_ms for pair in pairs]
        figures |= {
            **ttft(f"{kind}_", theirs, own),
            f"{kind}_saved_ms": added("", theirs, own)["_us"],
            f"{kind}_sent_bytes": [one for one in log if one.tag == "fastlane"][-1].bytes_in,
        }
    return Report(
        figures={**figures, "pairs_of_a_kind": rounds * _LANES_OF_A_KIND},
        reach={f"{kind}_ttft_ratio": f">= {target}" for kind, target in _REACH.items()},
    )


# CPU

_BLOCK = 10
"""Bodies of one arm before the next arm's turn."""


def encoding_cpu(quick: bool) -> Report:
    """Measure the CPU of writing a prompt's body: openai's JSON against ours, gzipped by zlib or isal.

    The body holds 123 kB of real source code. Inside: the process's CPU while the functions that the clients call make
    the bytes. Outside: deciding, building the request and sending it.
    """
    body = _body(_prompt("source"))

    def write_json() -> bytes:
        plain = stock_bytes(body)
        assert plain is not None
        return plain

    def write_gzip() -> bytes:
        return bodies.write(write_json(), "json+gzip", bodies.Writing(gzip_level=1))[0]

    def without_isal() -> bytes:
        with patch.object(bodies, "_isal", lambda: None):
            return write_gzip()

    def block(write: Callable[[], bytes]) -> None:
        for _ in range(_BLOCK):
            write()

    arms = {"stock_json": lambda: openapi_dumps(body), "fastlane_json": write_json, "gzip_1": without_isal}
    with_isal = bodies._isal() is not None
    if with_isal:
        arms["isal_1"] = write_gzip
    written = {name: write() for name, write in arms.items()}
    for name, data in written.items():
        plain = data if name.endswith("json") else zlib.decompress(data, wbits=zlib.MAX_WBITS | 16)
        if json.loads(plain) != body:
            raise RuntimeError(f"{name} wrote something else than the body")
    pairs = 30 if quick else 200
    taken = cpu_pairs([partial(block, write) for write in arms.values()], pairs)
    figures: dict[str, Figure] = {"isal_1_cpu_ms": None}
    for name, nanoseconds in zip(arms, taken, strict=True):
        each = median([one / 1e6 / _BLOCK for one in nanoseconds])
        figures |= {f"{name}_cpu_ms": each.value, f"{name}_cpu_high_ms": each.high, f"{name}_bytes": len(written[name])}
    return Report(
        figures=figures,
        reach={"gzip_1_cpu_ms": "<= 0.9", "isal_1_cpu_ms": "<= 0.3"},
        conditions={"pairs": pairs, "isal": with_isal},
    )
