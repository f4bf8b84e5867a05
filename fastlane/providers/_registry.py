"""Which facts hold for an origin, a name, or a server that says what it is: the application's own first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from ..errors import ConfigurationError
from ..knowledge.table import Table as LearnedTable
from ._fact import Address, FrozenMapping, Table, Texts, frozen
from ._load import checked, packaged, parsed, read_file, read_packaged, resolved
from ._matching import Pattern, origin_of, pattern_of
from ._schema import ProviderFacts

UNKNOWN = "unknown"

# Origins whose facts are at hand. One application may have a resource of its own for each of its tenants.
_MOST_ORIGINS = 1_000


def _compiled(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"expected a regular expression ({error})") from None
    return value


def _patterns(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        pattern_of(one)
    return value


class Signs(BaseModel):
    """What a server says of itself; each sign is enough."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    header: Table[Annotated[str, AfterValidator(_compiled)]] = FrozenMapping({})
    """Answer header, in lower case, to a regular expression that is found in its value."""
    header_names: Annotated[Texts, BeforeValidator(frozen)] = ()
    owned_by: Annotated[Texts, BeforeValidator(frozen)] = ()
    """What its list of models says under `owned_by`."""

    def in_headers(self, headers: Mapping[str, str]) -> bool:
        """Whether headers, in lower case, say so."""
        return any(name in headers for name in self.header_names) or any(
            re.search(pattern, headers[name]) for name, pattern in self.header.items() if name in headers
        )


class Place(BaseModel):
    """Where a provider is, and what it is known by: one table of origins.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    hosts: Annotated[Texts, BeforeValidator(frozen), AfterValidator(_patterns)] = ()
    says: Signs = Signs()
    source: Address
    checked: date
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Registered:
    number: int
    facts: ProviderFacts
    patterns: tuple[Pattern, ...]


# Threads share these without a lock: each change is one operation on a dict. What was found is thrown away after a
# change, as a whole, so that what another thread has just found in what held before stays in the dict that is gone.
_registered: dict[str, _Registered] = {}
_numbers = itertools.count()
_found: dict[str, ProviderFacts] = {}
_heard: LearnedTable[str, str] = LearnedTable("provider headers", max_entries=_MOST_ORIGINS)
"""By origin: the kind of server that it says it is; an empty text where it does not."""


def facts_of(origin: str) -> ProviderFacts:
    """Return what is known of the provider at an origin, such as "https://api.openai.com:443".

    What was registered counts first, then what the package brings, then what the server there has said of itself; an
    origin of which none of these knows has the facts named "unknown", which promise nothing. The second question for an
    origin costs a look into a dict.
    """
    at_hand = _found
    facts = at_hand.get(origin)
    if facts is None:
        if len(at_hand) >= _MOST_ORIGINS:
            at_hand.clear()
        facts = at_hand[origin] = _facts_at(origin)
    return facts


def facts_named(slug: str) -> ProviderFacts:
    """Return the facts of that name. Raises ConfigurationError, which names the known ones, where there are none."""
    entry = _registered.get(slug)
    return entry.facts if entry is not None else _packaged(slug)


def facts_said(headers: Mapping[str, str], owned_by: str | None = None) -> ProviderFacts | None:
    """Return the facts of the kind of server that says so of itself; None where it does not.

    `headers` are an answer's; `owned_by` is what its list of models (`GET /models`) says under that name. Headers count
    first: a proxy passes the models of others on.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    for slug, place in places().items():
        if place.says.in_headers(lower):
            return facts_named(slug)
    for slug, place in places().items():
        if owned_by in place.says.owned_by:
            return facts_named(slug)
    return None


def hear(origin: str, headers: Mapping[str, str]) -> None:
    """Take note of what the server at an origin says of itself in the headers of an answer.

    Its first answer counts, and only where nobody has said whose the origin is. Later ones cost a look into a dict.
    """
    if _heard.get(origin) is not None:
        return
    said = facts_said(headers) if facts_of(origin).slug == UNKNOWN else None
    _heard.put(origin, "" if said is None else said.slug)
    if said is not None:
        _found.pop(origin, None)


def load(path: str | Path) -> ProviderFacts:
    """Read a file of facts, laid over what it extends.

    Raises ConfigurationError, which says the file, the key, what was expected and what came.
    """
    return resolved(read_file(Path(path)), _base_of(Path(path).stem))


def register(facts: ProviderFacts | str | Path, *, origins: Iterable[str] = ()) -> None:
    """Let facts, or the file in which they stand, hold for the whole process.

    They hold at `origins` and at the origins that they name themselves. Where the package has facts of the same slug,
    they are laid over these, fact by fact, and hold wherever these did. Registering a slug again replaces what was
    registered before. Clients see it from their next call on. Raises ConfigurationError.
    """
    given = facts if isinstance(facts, ProviderFacts) else read_file(Path(facts))
    patterns = tuple(pattern_of(origin) for origin in (*given.origins, *origins))
    whole = resolved(given, _base_of(given.slug))
    if whole.extends is None and whole.slug in places():
        whole = whole.over(_packaged(whole.slug))
    _change(whole.slug, _Registered(next(_numbers), whole, patterns))


@contextmanager
def registered(facts: ProviderFacts | str | Path, *, origins: Iterable[str] = ()) -> Iterator[ProviderFacts]:
    """Register facts for as long as the block runs, and give what holds then; see `register`."""
    slug = facts.slug if isinstance(facts, ProviderFacts) else read_file(Path(facts)).slug
    before = _registered.get(slug)
    register(facts, origins=origins)
    try:
        yield facts_named(slug)
    finally:
        _change(slug, before)


def names() -> tuple[str, ...]:
    """Return the slug of every known set of facts, in order."""
    return tuple(sorted({*places(), UNKNOWN, *_registered.copy()}))


def _change(slug: str, entry: _Registered | None) -> None:
    global _found  # noqa: PLW0603 - replaced, never emptied: see above
    if entry is None:
        _registered.pop(slug, None)
    else:
        _registered[slug] = entry
    _found = {}


def _facts_at(url: str) -> ProviderFacts:
    origin = origin_of(url)
    if origin is None:
        return facts_named(UNKNOWN)
    own = [
        (pattern.precision, entry.number, entry.facts)
        for entry in _registered.copy().values()
        for pattern in entry.patterns
        if pattern.matches(origin)
    ]
    if own:
        return max(own, key=lambda found: found[:2])[2]
    packaged_ones = [(pattern.precision, slug) for pattern, slug in _hosts() if pattern.matches(origin)]
    return facts_named(max(packaged_ones)[1] if packaged_ones else _heard.get(url) or UNKNOWN)


def _base_of(slug: str) -> Callable[[str], ProviderFacts]:
    # Facts that extend those of their own name mean what the package has under it, not what they are to replace.
    return lambda extended: _packaged(extended) if extended == slug else facts_named(extended)


@cache
def places() -> Mapping[str, Place]:
    """Return where each provider is, and what it is known by; those in front of others first."""
    file = "origins.toml"
    return FrozenMapping(
        {slug: checked(Place, table, f"{file}: {slug}") for slug, table in parsed(packaged(file), file).items()}
    )


@cache
def _hosts() -> tuple[tuple[Pattern, str], ...]:
    return tuple((pattern_of(host), slug) for slug, place in places().items() for host in place.hosts)


@cache
def _packaged(slug: str) -> ProviderFacts:
    if slug != UNKNOWN and slug not in places():
        raise ConfigurationError(f"expected the name of a known provider ({', '.join(names())}), got {slug!r}")
    return resolved(read_packaged(slug), _packaged)
