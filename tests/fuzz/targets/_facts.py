"""Files with facts of providers: facts that say all that stood there, or a ConfigurationError that says where."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import tomli_w

from fastlane import ConfigurationError
from fastlane.providers import ProviderFacts, facts_of, registered
from fastlane.providers.facts import Fact
from fastlane.providers.files import parsed
from fastlane.providers.registry import facts_from, resolved
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._tables import FILE, check_refusal, drawn_file, drawn_tables, is_kept, read
from tests.fuzz.targets._target import Target, holds

_NAMES = (*ProviderFacts.model_fields, *Fact.model_fields, "/responses", "headers", "limits", "values", "most_tokens")


@cache
def _packaged() -> tuple[bytes, ...]:
    """The files that the package brings, the shorter ones first."""
    files = [one for one in resources.files("fastlane.providers").iterdir() if one.name.endswith(".toml")]
    return tuple(sorted((one.read_bytes() for one in files if one.name != "origins.toml"), key=len))


@cache
def _tables() -> tuple[dict[str, Any], ...]:
    return tuple(found for one in _packaged() if (found := read(one)) is not None)


def check(data: bytes) -> None:
    """By the first byte: a file of bytes, or tables drawn by them."""
    draw = Drawn(data[1:])
    tables: Any
    if data[:1] and data[0] % 3 == 0:
        written = drawn_file(data[1:])
        try:
            tables = parsed(written, FILE)
        except ConfigurationError as error:
            check_refusal(error)
            return
    else:
        tables = drawn_tables(draw, _tables(), _NAMES)
    try:
        facts = facts_from(tables, slug="drawn", file=FILE)
    except ConfigurationError as error:
        check_refusal(error)
        return
    _check_facts(facts, tables, draw)


def _written(facts: ProviderFacts) -> dict[str, Any]:
    return facts.model_dump(exclude_defaults=True)


def _check_facts(facts: ProviderFacts, tables: Any, draw: Drawn) -> None:
    again = _written(facts)
    missing = is_kept(tables, again)
    holds(missing is None, "what stood there is left out", missing, tables)
    holds(facts_from(again, slug="other", file=FILE) == facts, "facts that were written down are others", again)
    holds(pickle.loads(pickle.dumps(facts)) == facts, "facts that were pickled are others", again)
    holds(len(facts.digest) == 8 and len(repr(facts)) < 10_000, "facts have no repr")
    try:
        text = tomli_w.dumps(again)
    except (TypeError, UnicodeError, ValueError):
        pass  # TOML cannot say it: it did not stand in a file
    else:
        if text.isprintable() or text.isascii():
            holds(
                facts_from(parsed(text.encode(), FILE), slug="x", file=FILE) == facts,
                "a file of them says others",
                text,
            )
    try:
        resolved(facts)
        with registered(facts, origins=[draw.bytes_of(30).decode("utf-8", "replace")]) as whole:
            holds(whole.slug == facts.slug, "what was registered is another")
            facts_of("https://" + draw.bytes_of(40).decode("utf-8", "replace"))
    except ConfigurationError:
        return


def seeds() -> list[bytes]:
    """The package's own files, and bytes that draw changes of them."""
    drawn = chance(30, 120)
    return [*(b"\0" + bytes(64) + one[:6_000] for one in _packaged()[:6]), *(b"\1" + one for one in drawn)]


def fed_file(load: Callable[[bytes], object], make: Callable[[int], str]) -> Callable[[int], Callable[[], object]]:
    """Reading a file of a size."""

    def work(size: int) -> Callable[[], object]:
        written = make(size).encode()

        def run() -> None:
            try:
                load(written)
            except ConfigurationError:
                pass

        return run

    return work


def _load(written: bytes) -> object:
    return facts_from(parsed(written, FILE), slug="drawn", file=FILE)


_FACT = 'source = "https://a.test"\nchecked = 2026-11-22\nevidence = "documented"\n'
_MANY: Sequence[tuple[str, Callable[[int], str]]] = (
    ("many facts", lambda size: "".join(
        f"[parameters.p{number}]\nvalue = true\n{_FACT}" for number in range(size // 90))),
    ("many unknown keys", lambda size: "".join(f"k{number} = 1\n" for number in range(size // 12))),
    ("a long text", lambda size: f'name = "{"x" * size}"\n'),
    ("a long address", lambda size: f'base_url = "https://{"x" * size}"\n'),
    ("many origins", lambda size: "origins = [" + ",".join(f'"https://h{n}.test"' for n in range(size // 20)) + "]\n"),
)  # fmt: skip
TARGET = Target(
    name="facts",
    check=check,
    seeds=seeds,
    grown={name: fed_file(_load, make) for name, make in _MANY},
)
