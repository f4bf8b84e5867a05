"""What `RequestEncoding` is worth: prompts to a provider that takes every form of body, as JSON and encoded.

The embedded provider has no time of its own. With one that thinks, both sides take that much longer: the difference
stays, the ratio shrinks. Sides take turns, in reversed order every other round.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Literal
from unittest.mock import patch

import openai
from openai._utils._json import openapi_dumps

from benchmarks._paired import added, cpu_pairs, median, paired, ttft
from benchmarks._provider import MODEL, fact, providers
from benchmarks._report import Figure, Report
from benchmarks._transport import LanePair, in_lanes, ours, wishes
from fastlane.compat.requests import stock_bytes
from fastlane.emulator import RequestLog
from fastlane.plays.request_encoding import bodies
from fastlane.plays.request_encoding.play import RequestEncoding
from fastlane.providers import ProviderFacts

_ROUND_TRIP_TIME_S = 0.04
_Kind = Literal["talk", "source"]
"""What a prompt holds: the same code over and over, as in the talk whose case is reproduced, or real source code."""

_KINDS: tuple[_Kind, ...] = ("talk", "source")
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


def _source() -> str:
    texts = []
    for name in _MODULES:
        spec = find_spec(name)
        get_source = getattr(spec.loader, "get_source", None) if spec is not None else None
        text = get_source(name) if get_source is not None else None
        if text is None:
            raise RuntimeError(f"this Python has no source text of {name}")
        texts.append(text)
    return "\n".join(texts)


def _body(messages: list[Any]) -> dict[str, Any]:
    """The body of a streamed call."""
    return {"messages": messages, "model": MODEL, "stream": True}


def _json_bytes(messages: list[Any]) -> int:
    """Bytes of that body as openai's client writes it."""
    return len(json.dumps(_body(messages), separators=(",", ":"), ensure_ascii=False).encode())


def _prompt(kind: _Kind, body_bytes: int = _BODY_BYTES) -> list[Any]:
    """Messages that make a body of about so many bytes."""
    text = _source()
    if kind == "talk":
        text = text[:_REPEATED_CHARACTERS] * (body_bytes // _REPEATED_CHARACTERS + 1)

    def messages(characters: int) -> list[Any]:
        return [{"role": "user", "content": (_INSTRUCTION + text)[:characters]}]

    # JSON writes some characters as two.
    return messages(body_bytes * body_bytes // _json_bytes(messages(body_bytes)))


def _everything() -> ProviderFacts:
    """Facts of a provider that takes every form of body: what the embedded one does."""
    forms = fact(("json", "json+gzip", "msgpack", "msgpack+gzip"))
    endpoints = ("/chat/completions", "/completions", "/responses")
    return ProviderFacts(slug="emulator", encodings=dict.fromkeys(endpoints, forms))


# After idle seconds, beside `Connection()`

# A window of 90 segments is halved four times, once for each round trip and 200 ms.
_PAUSE_S = 1.2
_LANES = 3
_SIZES = {"4_kb": 4_000, "16_kb": 16_000, "64_kb": 64_000, "123_kb": _BODY_BYTES}


def encoding(quick: bool) -> Report:
    """What `RequestEncoding` is worth for prompts of 4 to 123 kB: time to first token beside `Connection()` alone.

    Real source code over 40 ms, each call on a connection that was idle: the window has fallen back to its beginning,
    as it does while a model thinks. And 123 kB once more right behind that (`again`), over windows that the call before
    has opened, where fewer bytes save less. Both sides have a warm connection of fastlane's. Inside: from the
    application's call to the first content that it reads, and so everything that encoding takes. Outside: opening the
    connections. Asynchronous, in lanes with a provider each.
    """
    rounds = 5 if quick else 25
    again = {"123_kb": ("123_kb", "123_kb_again")}
    groups = [(again.get(name, (name,)), _prompt("source", size)) for name, size in _SIZES.items()]
    with providers(_LANES, round_trip_time_s=_ROUND_TRIP_TIME_S) as started:
        each = []
        for url in (emulator.base_url for emulator in started):
            sides = [ours("async", url), ours("async", url, RequestEncoding(facts=_everything()))]
            each.append((sides, groups))
        lanes = asyncio.run(in_lanes(each, rounds, apart_s=_PAUSE_S / _LANES, pause_s=_PAUSE_S))
    figures: dict[str, Figure] = {}
    for case in lanes[0]:
        pairs = [pair for lane in lanes for pair in lane[case]]
        alone, own = [pair.first_ms for pair in pairs], [pair.second_ms for pair in pairs]
        figures |= {
            f"at_{case}_ttft_ratio": paired("", alone, own)["_ratio"],
            f"at_{case}_alone_ttft_ms": median(alone).value,
            f"at_{case}_encoding_ttft_ms": median(own).value,
            **added(f"at_{case}_saved", alone, own, "ms"),
            f"at_{case}_encoded_share": sum(pair.encoded for pair in pairs) / len(pairs),
        }
    figures["pairs"] = rounds * _LANES
    return Report(
        figures=figures,
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
_REACH: dict[_Kind, float] = {"talk": 4.0, "source": 2.5}


def _headline_clients(base_url: str) -> list[openai.AsyncOpenAI]:
    stock, own = wishes(tag="stock"), wishes(tag="fastlane")
    return [
        openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, default_headers=stock),
        ours("async", base_url, RequestEncoding(facts=_everything()), default_headers=own),
    ]


def _headline_figures(kind: _Kind, pairs: Sequence[LanePair], log: Sequence[RequestLog]) -> dict[str, Figure]:
    theirs, own = [pair.first_ms for pair in pairs], [pair.second_ms for pair in pairs]
    if {one.content_encoding for one in log if one.tag == "stock"} != {None}:
        raise RuntimeError("the stock client was to send JSON as it is")
    if any(abs(one.bytes_in_decoded / _BODY_BYTES - 1) > 0.02 for one in log):
        raise RuntimeError(f"each call was to have about {_BODY_BYTES} bytes of JSON")
    return {
        **ttft(f"{kind}_", theirs, own),
        f"{kind}_saved_ms": added("", theirs, own)["_us"],
        f"{kind}_sent_bytes": [one for one in log if one.tag == "fastlane"][-1].bytes_in,
    }


def headline(quick: bool) -> Report:
    """A long prompt now and then: `openai.OpenAI()` as it comes against fastlane with `RequestEncoding()`.

    Prompts of 123 kB, six seconds apart, over 40 ms: one kind repeats its code (`talk`), one is real source code. The
    stock client has closed its connection by then, opens another one and sends JSON over HTTP/1.1; ours still has its
    connection, and sends fewer bytes. Inside: from the application's call to the first content that it reads. Outside:
    the provider's own time, which is none here. Asynchronous, in lanes with a provider each, so that no lane keeps
    another's connection warm.
    """
    rounds = 5 if quick else 25
    kinds = [kind for kind in _KINDS for _ in range(_LANES_OF_A_KIND)]
    with providers(len(kinds), round_trip_time_s=_ROUND_TRIP_TIME_S) as started:
        each = [
            (_headline_clients(emulator.base_url), [((kind,), _prompt(kind))])
            for emulator, kind in zip(started, kinds, strict=True)
        ]
        apart_s = _HEADLINE_PAUSE_S / len(kinds)
        lanes = asyncio.run(in_lanes(each, rounds, apart_s=apart_s, pause_s=_HEADLINE_PAUSE_S))
        logs = [emulator.log() for emulator in started]
    figures: dict[str, Figure] = {}
    for kind in _KINDS:
        own = [number for number, other in enumerate(kinds) if other == kind]
        pairs = [pair for number in own for pair in lanes[number][kind]]
        figures |= _headline_figures(kind, pairs, [one for number in own for one in logs[number]])
    figures["pairs_of_a_kind"] = rounds * _LANES_OF_A_KIND
    return Report(
        figures=figures,
        reach={f"{kind}_ttft_ratio": f">= {target}" for kind, target in _REACH.items()},
    )


# CPU

_BLOCK = 10
"""Bodies of one arm before the next arm's turn."""


@cache
def _source_body() -> dict[str, Any]:
    return _body(_prompt("source"))


def _stock() -> bytes:
    return openapi_dumps(_source_body())


def _json() -> bytes:
    plain = stock_bytes(_source_body())
    assert plain is not None
    return plain


def _gzip() -> bytes:
    return bodies.write(_json(), "json+gzip", bodies.Writing(gzip_level=1))[0]


def _gzip_without_isal() -> bytes:
    with patch.object(bodies, "_isal", lambda: None):
        return _gzip()


def _block(write: Callable[[], bytes]) -> None:
    for _ in range(_BLOCK):
        write()


def encoding_cpu(quick: bool) -> Report:
    """CPU time of writing a prompt's body: openai's JSON against ours, gzipped by zlib or isal.

    The body holds 123 kB of real source code of the running Python. Each arm makes bytes of the same mapping: openai's
    function as its client calls it; ours as fastlane's client does, JSON first and then the form that is sent, by the
    same functions. Inside: the CPU time of the process while the bytes are made. Outside: looking at the connection,
    deciding, building the request and sending it. What was written is read again and compared with what it was made of.
    The arms take turns, in reversed order every other round.
    """
    arms = {"stock_json": _stock, "fastlane_json": _json, "gzip_1": _gzip_without_isal}
    with_isal = bodies._isal() is not None
    if with_isal:
        arms["isal_1"] = _gzip
    written = {name: write() for name, write in arms.items()}
    for name, data in written.items():
        plain = data if name.endswith("json") else zlib.decompress(data, wbits=zlib.MAX_WBITS | 16)
        if json.loads(plain) != _source_body():
            raise RuntimeError(f"{name} wrote something else than the body")
    pairs = 30 if quick else 200
    taken = cpu_pairs([partial(_block, write) for write in arms.values()], pairs)
    figures: dict[str, Figure] = {"isal_1_cpu_ms": None}
    for name, nanoseconds in zip(arms, taken, strict=True):
        each = median([one / 1e6 / _BLOCK for one in nanoseconds])
        figures |= {f"{name}_cpu_ms": each.value, f"{name}_cpu_high_ms": each.high, f"{name}_bytes": len(written[name])}
    return Report(
        figures=figures,
        reach={"gzip_1_cpu_ms": "<= 0.9", "isal_1_cpu_ms": "<= 0.3"},
        conditions={"pairs": pairs, "isal": with_isal},
    )


BENCHMARKS = {"encoding": encoding, "headline": headline, "encoding_cpu": encoding_cpu}
