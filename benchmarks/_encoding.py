"""Prompts of a given size, and provider facts that say that the embedded provider takes every form of body."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from importlib.util import find_spec
from typing import Any, Literal

import fastlane
from benchmarks._provider import MODEL
from fastlane.emulator import Emulator
from fastlane.plays.request_encoding.play import RequestEncoding
from fastlane.providers import Fact, ProviderFacts

Kind = Literal["talk", "source"]
"""What a prompt holds: the same code over and over, as in the talk whose case is reproduced, or real source code."""

KINDS: tuple[Kind, ...] = ("talk", "source")
BODY_BYTES = 123_400
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


def body(messages: list[Any]) -> dict[str, Any]:
    """The body of a streamed call."""
    return {"messages": messages, "model": MODEL, "stream": True}


def json_bytes(messages: list[Any]) -> int:
    """Bytes of that body as openai's client writes it."""
    return len(json.dumps(body(messages), separators=(",", ":"), ensure_ascii=False).encode())


def prompt(kind: Kind, body_bytes: int = BODY_BYTES) -> list[Any]:
    """Messages that make a body of exactly so many bytes."""
    text = _source()
    if kind == "talk":
        text = text[:_REPEATED_CHARACTERS] * (body_bytes // _REPEATED_CHARACTERS + 1)
    text = _INSTRUCTION + text

    def messages(characters: int, padding: int = 0) -> list[Any]:
        return [{"role": "user", "content": text[:characters] + " " * padding}]

    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if json_bytes(messages(middle)) <= body_bytes else (low, middle - 1)
    made = messages(low, body_bytes - json_bytes(messages(low)))
    if json_bytes(made) != body_bytes or low == len(text):
        raise RuntimeError(f"the prompts do not reach {body_bytes} bytes")
    return made


def everything() -> ProviderFacts:
    """Facts of a provider that takes every form of body: what the embedded one does."""
    fact: Fact[Any] = Fact(
        value=("json", "json+gzip", "msgpack", "msgpack+gzip"),
        source="https://localhost/docs/emulator",
        checked=date(2026, 11, 22),
        evidence="measured",
    )
    endpoints = ("/chat/completions", "/completions", "/responses")
    return ProviderFacts(slug="emulator", encodings=dict.fromkeys(endpoints, fact))


_pools = itertools.count(1)


def plays(*, encoding: bool, **settings: Any) -> list[fastlane.Play]:
    """`Connection()` with a pool that no other client uses, and `RequestEncoding()` beside it or not."""
    # Far from what other benchmarks use: a millisecond of idle time makes pools differ.
    connection = fastlane.Connection(idle_s=250.0 + next(_pools) / 1e3)
    return [connection, RequestEncoding(facts=everything(), **settings)] if encoding else [connection]


@contextmanager
def one_log(emulator: Emulator) -> Iterator[Callable[[], Any]]:
    """Give what reads the record of the one request that the provider has had within the block."""
    emulator.clear()

    def read() -> Any:
        (request,) = emulator.log()
        return request

    yield read
