"""Leave out fields that plays added and the provider refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import openai

from .._clock import now_ns
from ..compat.clients import FinalRequestOptions
from ..compat.requests import changed_options
from ..knowledge.table import Table

if TYPE_CHECKING:
    from .call_state import CallState
    from .client_state import Caller

REFUSED_FOR_NS = 3_600 * 10**9
"""Nanoseconds for which a refused field is left out: an hour. Then it is sent again."""
_NONE: frozenset[str] = frozenset()


class RefusingUpstream(NamedTuple):
    """What refuses a field, and the account that it refuses it to."""

    origin: str
    model: str | None
    account: bytes
    """A digest of the key (`Accounts`): a provider may treat accounts differently."""


class Refusals:
    """Fields that providers have refused, each kept for `REFUSED_FOR_NS`. Threads may share it.

    If only one value of a field was refused, the entry has both: "service_tier=flex".
    """

    def __init__(self) -> None:
        self._until_ns: Table[RefusingUpstream, dict[str, int]] = Table("refused fields", max_entries=1_024)
        self.has_any = False
        """Whether a provider has refused any field so far."""

    def add(self, upstream: RefusingUpstream, fields: Iterable[str]) -> None:
        """Add fields without which a refused call has succeeded."""
        self.has_any = True
        refused = dict.fromkeys(fields, now_ns() + REFUSED_FOR_NS)
        self._until_ns.update(upstream, lambda known: {**(known or {}), **refused})

    def at(self, origin: str, model: str | None, caller: Caller) -> frozenset[str]:
        """Return the fields that an upstream has refused for the caller's account and that must not be sent now."""
        if not self._until_ns:
            return _NONE
        known = self._until_ns.get(RefusingUpstream(origin, model, caller.account.here))
        if known is None:
            return _NONE
        time_ns = now_ns()
        return frozenset(name for name, until_ns in known.items() if time_ns < until_ns)


refusals = Refusals()


def without_refused(
    state: CallState,
    options: FinalRequestOptions,
    error: openai.APIStatusError,
    doubted: list[tuple[RefusingUpstream, tuple[str, ...]]],
) -> FinalRequestOptions | None:
    """Return the options without the fields that plays added and the error names; None if it names none.

    A provider that does not know a field responds with an error that names it, and does no work. The fields are
    appended to `doubted`: they count as refused if the call succeeds without them.
    """
    if not state.optional or error.status_code not in (400, 402, 403, 422) or not isinstance(options.json_data, dict):
        return None
    fields = {name.partition("=")[0]: name for name in state.optional}
    named = _named(error, options.json_data, tuple(fields))
    if not named:
        return None
    if "stream" in named:
        named = tuple([name for name in fields if name in {*named, "stream_options"}])
        if state.upstream is not None:
            state.upstream.wait_for_whole_answer()
    state.optional = tuple([name for field, name in fields.items() if field not in named])
    state.changes = (*state.changes, f"sent again without {', '.join(named)}, which the provider's error names")
    account = state.client._fastlane.accounts.of(state.client, options).here
    doubted.append((RefusingUpstream(state.origin, state.model, account), tuple([fields[field] for field in named])))
    kept = {name: value for name, value in options.json_data.items() if name not in named}
    return changed_options(options, {"json_data": kept})


def _named(error: openai.APIStatusError, body: Mapping[str, Any], fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the fields that an error is about."""
    texts = list(_texts(error.body)) or [error.message]
    # Some errors name the number of tokens that is too large, and not the field.
    numbers = [name for name in fields if type(body.get(name)) is int and body[name] > 99]
    named = {name for name in numbers if any(re.search(rf"(?<!\w){body[name]}(?!\w)", text) for text in texts)}
    param = error.param.removeprefix("body.") if isinstance(error.param, str) else ""
    about = re.split(r"[.\[]", param)[0]
    if about in body:
        named |= {about}
    else:
        named |= {name for name in fields if any(_pattern(name).search(text) for text in texts)}
    return tuple([name for name in fields if name in named])


def _texts(body: object) -> Iterator[str]:
    """Yield the texts of an error's body and the paths in its `loc`, without the quoted request."""
    if isinstance(body, str):
        yield body
    elif isinstance(body, Mapping):
        for name, value in body.items():
            if name == "loc" and isinstance(value, list | tuple):  # pydantic's errors
                yield ".".join(map(str, value))
            elif name not in ("input", "ctx"):
                yield from _texts(value)
    elif isinstance(body, list | tuple):
        for value in body:
            yield from _texts(value)


@lru_cache(maxsize=256)
def _pattern(field: str) -> re.Pattern[str]:
    """Return a pattern for a field's name. An English word such as "stop" matches only as a field name."""
    name = re.escape(field)
    if "_" in field:
        return re.compile(rf"(?<!\w){name}(?!\w)")
    if field == "stream":
        name = "stream(?:ing)?"
    kind = "(?:argument|field|option|parameter|property)s?"
    refused = (
        r"(?:(?:is|are) )?(?:not (?:accepted|allowed|available|permitted|recognized|supported)|unknown|unsupported)"
        r"|(?:must|should|cannot|can only) be|(?:does|do) not support"
    )
    refuses = r"(?:accept|allow|permit|support)(?:s|ed)?|un(?:expected|known|recognized|supported)"
    return re.compile(
        rf"""['"`\[.]{name}['"`\].=:]"""
        rf"|{kind}(?: (?:is|received|supplied))?\W{{1,3}}{name}(?!\w)"
        rf"|(?<!\w){name}\W{{1,3}}(?:{kind}|{refused})(?!\w)"
        rf"|(?:{refuses})\W{{1,3}}(?:the )?{name}(?!\w)"
        rf"|(?<!\w){name}=|^(?:body\.)?{name}(?::|$)",
        re.IGNORECASE,
    )
