"""Which facts hold for an origin, a name, or a server that identifies itself: the user's first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigurationError
from .facts import Address, Part, ProviderFacts, Texts
from .files import checked, content_of, parsed
from .origins import OriginPattern, origin_of, pattern_of

UNKNOWN = "unknown"
"""The slug of the facts that hold for an origin of which nothing is known."""

# One application may have a resource of its own for each of its tenants.
_MOST_ORIGINS = 1_000


class ServerSigns(Part):
    """How a server identifies itself. Each sign is enough."""

    header: Mapping[str, str] = {}
    """Response header, in lower case, to a regular expression that is found in its value."""
    header_names: Texts = ()
    owned_by: Texts = ()
    """`owned_by` in its list of models."""

    def in_headers(self, headers: Mapping[str, str]) -> bool:
        """Return whether headers, in lower case, have one of the signs."""
        return any(name in headers for name in self.header_names) or any(
            re.search(pattern, headers[name]) for name, pattern in self.header.items() if name in headers
        )


class ProviderOrigins(Part):
    """Where a provider is and how it identifies itself: one table of origins.toml."""

    hosts: Texts = ()
    says: ServerSigns = ServerSigns()
    source: Address
    checked: date
    note: str = ""


class _Registered(NamedTuple):
    number: int
    facts: ProviderFacts
    patterns: tuple[OriginPattern, ...]


# Threads share these without a lock: each change is one operation on a dict. A change replaces `_found` as a whole, so
# that what another thread has just found by the old state stays in the old dict.
_registered: dict[str, _Registered] = {}
_numbers = itertools.count()
_found: dict[str, ProviderFacts] = {}
_identified: dict[str, str] = {}
"""By origin: the slug of the server that answered there, or an empty text."""


def facts_of(origin: str) -> ProviderFacts:
    """Return what is known of the provider at an origin, such as "https://api.openai.com:443".

    Registered facts count first, then the package's, then those of the server that identified itself there. Otherwise
    the facts named "unknown" hold, which promise nothing. Facts of an origin are looked up once.
    """
    known = _found
    facts = known.get(origin)
    if facts is None:
        if len(known) >= _MOST_ORIGINS:
            known.clear()
        facts = known[origin] = _facts_at(origin)
    return facts


def facts_named(slug: str) -> ProviderFacts:
    """Return the facts of that name. Raises ConfigurationError, which names the known ones."""
    entry = _registered.get(slug)
    return entry.facts if entry is not None else _packaged(slug)


def identified_facts(headers: Mapping[str, str], owned_by: str | None = None) -> ProviderFacts | None:
    """Return the facts of the kind of server that identifies itself; None if it does not.

    `headers` are those of a response; `owned_by` is in its list of models (`GET /models`). Headers count first: a proxy
    passes the models of others on.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    by_headers = (slug for slug, place in places().items() if place.says.in_headers(lower))
    by_models = (slug for slug, place in places().items() if owned_by in place.says.owned_by)
    slug = next(itertools.chain(by_headers, by_models), None)
    return None if slug is None else facts_named(slug)


def note_server(origin: str, headers: Mapping[str, str]) -> None:
    """Remember how the server at an origin identifies itself in its first response, where the origin is unknown."""
    if origin in _identified:
        return
    if len(_identified) >= _MOST_ORIGINS:
        _identified.clear()
    facts = identified_facts(headers) if facts_of(origin).slug == UNKNOWN else None
    _identified[origin] = "" if facts is None else facts.slug
    if facts is not None:
        _found.pop(origin, None)


def read(path: Path) -> ProviderFacts:
    """Read one file, without what it extends. Raises ConfigurationError."""
    return facts_from(parsed(content_of(path, "provider facts"), str(path)), slug=path.stem, file=str(path))


def facts_from(tables: Mapping[str, Any], *, slug: str, file: str) -> ProviderFacts:
    """Return the facts in the tables of a file, without what they extend. Raises ConfigurationError."""
    return checked(ProviderFacts, {"slug": slug.lower(), **tables}, file)


def load(path: str | Path) -> ProviderFacts:
    """Read a file of facts, merged with what it extends.

    Raises ConfigurationError, which names the file, the key, what was expected and what was given.
    """
    return resolved(read(Path(path)))


def register(facts: ProviderFacts | str | Path, *, origins: Iterable[str] = ()) -> None:
    """Let facts, or those of a file, hold for the whole process.

    They hold at `origins` and at the origins that they name themselves. Facts with the slug of the package's are laid
    over these, fact by fact, and hold wherever these did. Registering a slug again replaces what was registered before.
    Clients use them from their next call on. Raises ConfigurationError.
    """
    given = facts if isinstance(facts, ProviderFacts) else read(Path(facts))
    patterns = tuple(pattern_of(origin) for origin in (*given.origins, *origins))
    whole = resolved(given)
    if whole.extends is None and whole.slug in places():
        whole = whole.over(_packaged(whole.slug))
    _change(whole.slug, _Registered(next(_numbers), whole, patterns))


@contextmanager
def registered(facts: ProviderFacts | str | Path, *, origins: Iterable[str] = ()) -> Iterator[ProviderFacts]:
    """Register facts while the block runs, and give what holds then; see `register`."""
    given = facts if isinstance(facts, ProviderFacts) else read(Path(facts))
    before = _registered.get(given.slug)
    register(given, origins=origins)
    try:
        yield facts_named(given.slug)
    finally:
        _change(given.slug, before)


def names() -> tuple[str, ...]:
    """Return the slug of every known set of facts, in order."""
    return tuple(sorted({*places(), UNKNOWN, *_registered.copy()}))


def resolved(facts: ProviderFacts, named: Callable[[str], ProviderFacts] = facts_named) -> ProviderFacts:
    """Return facts merged with those that they extend. Raises ConfigurationError if these are not known."""
    if facts.extends is None:
        return facts
    try:
        # Facts that extend their own slug extend the package's, not what they are to replace.
        return facts.over(_packaged(facts.slug) if facts.extends == facts.slug else named(facts.extends))
    except ConfigurationError as error:
        raise ConfigurationError(f"{facts.slug}: extends: {error}") from None


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
    matching = [(pattern.precision, slug) for pattern, slug in _hosts() if pattern.matches(origin)]
    return facts_named(max(matching)[1] if matching else _identified.get(url) or UNKNOWN)


@cache
def places() -> Mapping[str, ProviderOrigins]:
    """Return where each provider is and how it identifies itself; those in front of others first."""
    file = "origins.toml"
    tables = _packaged_tables(file)
    return {slug: checked(ProviderOrigins, table, f"{file}: {slug}") for slug, table in tables.items()}


@cache
def _hosts() -> tuple[tuple[OriginPattern, str], ...]:
    return tuple((pattern_of(host), slug) for slug, place in places().items() for host in place.hosts)


@cache
def _packaged(slug: str) -> ProviderFacts:
    if slug != UNKNOWN and slug not in places():
        raise ConfigurationError(f"expected the name of a known provider ({', '.join(names())}), got {slug!r}")
    file = f"{slug}.toml"
    return resolved(facts_from(_packaged_tables(file), slug=slug, file=file), _packaged)


def _packaged_tables(file: str) -> dict[str, Any]:
    return parsed(resources.files("fastlane.providers").joinpath(file).read_bytes(), file)
