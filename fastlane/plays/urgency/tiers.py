"""The service tier of a call: which one it asks for by its urgency, and what it does when that has no capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from fastlane.engine.call import Call
from fastlane.errors import FastlaneError
from fastlane.protocol.fields import safe_name
from fastlane.providers.output_facts import for_model
from fastlane.records.plays import Level

if TYPE_CHECKING:
    from fastlane.providers.facts import Tiers

_USUAL_FIELD = "service_tier"
# Which tier the project itself asks for is not known, so that nothing can be slower than that.
_ANY = frozenset({"auto"})
# The plan that the key belongs to has not got the tier.
_DENIED = frozenset({402, 403})


class TierUnavailableError(FastlaneError):
    """The tier that was asked for has no capacity, or is refused to this key: the call asks for another one.

    It never reaches the application. An error of openai's would wait in the retry loop and ask for the same again.
    """

    def __init__(self, retries_taken: int) -> None:
        super().__init__()
        self.retries_taken = retries_taken
        """Retries before this attempt."""


@dataclass(slots=True, kw_only=True)
class RequestedTier:
    """The tier that a call asks for, and the next one where that is unavailable, once and at once."""

    field: str
    """The field of the body, "service_tier"."""
    asked: str | None
    """What the next attempt asks for; None where it asks for none."""
    added: str | None = None
    """The tier that the play has put into the body, and not the caller."""
    falls: bool = False
    """Whether the call goes to `following` where the added tier has no capacity."""
    following: str | None = None
    """What is asked for then; None: nothing, which is the usual tier."""
    full_status: int | None = None
    """The status that may say that a tier has no capacity."""
    full_codes: frozenset[str] = frozenset()
    """The error codes that say so with this status; empty where the status alone does."""
    ranks: tuple[tuple[str, ...], ...] = ()
    """The tiers from the slowest to the fastest, those that are equally fast together."""
    answer_header: str | None = None
    """The header in which a response says which tier served, where no field does."""
    timeout_s: float | None = None
    """Seconds that an answer of the asked tier may take, where the application sets no timeout."""
    full: tuple[str, ...] = ()
    """Tiers that had no capacity."""
    is_denied: bool = False
    """Whether the tier is refused to this key."""
    by_header: str | None = None
    """The tier that served, by the header of the response."""

    def added_to(self, call: Call) -> Call:
        """Return the call with the tier that is added, and with the time that an answer may take there."""
        if self.added is None:
            return call if self.timeout_s is None else call.replaced(timeout_s=self.timeout_s)
        return call.replaced(
            body={**call.body, self.field: self.added},
            changes=(*call.changes, f"Urgency asked for the tier {self.added!r}"),
            optional=(*call.optional, self.refusal),
            timeout_s=self.timeout_s,
        )

    @property
    def is_left(self) -> bool:
        """Whether the call goes on at another tier than the planned one."""
        return bool(self.full) or self.is_denied

    @property
    def refusal(self) -> str:
        """The name of the tier among the fields that were refused."""
        return f"{self.field}={self.added}"

    def at_next(self, call: Call) -> Call:
        """Return the call at the tier that follows."""
        asks = f"asked for {self.asked!r}" if self.asked is not None else "asked for none"
        why = "has no capacity" if self.full else "is refused to this key"
        body = {name: value for name, value in call.body.items() if name != self.field}
        if self.asked is not None:
            body[self.field] = self.asked
        changed = f"{asks}, because the tier {self.added!r} {why}"
        return call.replaced(body=body, changes=(*call.changes, changed))

    def took_back(self, fields: tuple[str, ...]) -> None:
        """Take note that the call went on without these fields, named as in `Call.optional`."""
        if self.added is not None and self.refusal in fields:
            self.asked = None

    def may_be_unavailable(self, status: int, options: Any) -> bool:
        """Whether a response with this status may say that the tier is unavailable, so that its body has to be read."""
        body = options.json_data
        if self.added is None or not isinstance(body, Mapping) or body.get(self.field) != self.added or self.is_left:
            return False
        return (self.falls and status == self.full_status) or status in _DENIED

    def check(self, response: Any, retries_taken: int) -> None:
        """Raise TierUnavailableError where a response whose body was read says so."""
        error = _error_in(response.content)
        if response.status_code in _DENIED:
            message = str(error.get("message", ""))
            is_named = self.field in message or f"{self.added} tier" in message.lower()
            if error.get("param") != self.field and not is_named:
                return
            self.is_denied, self.asked = True, None
        elif self.full_codes and not _has_code(error, self.full_codes):
            return
        else:
            assert self.asked is not None
            self.full, self.asked = (*self.full, self.asked), self.following
        raise TierUnavailableError(retries_taken)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Take note of the head of a response."""
        if self.answer_header is not None and status < 300:
            self.by_header = safe_name(headers.get(self.answer_header))

    def served(self, by_body: str | None) -> str | None:
        """Return the tier that served the call; None where the provider does not say."""
        return by_body if by_body is not None else self.by_header

    def is_downgraded(self, by_body: str | None) -> bool:
        """Whether that is slower than what the last attempt asked for."""
        return is_downgrade(self.ranks, self.asked, self.served(by_body))


def requested_tier(call: Call, level: Level, wanted: Mapping[str, str | None] | None) -> RequestedTier | None:
    """Return the tier of a call; None where the provider's tiers are not known, and the call names none.

    `wanted`: the application's tiers by level; None: as the facts say.
    """
    tiers = None if call.facts is None else call.facts.tiers
    field = _tier_field(tiers, wanted, level)
    if field is None:
        return None
    if field in call.body:
        given = call.body[field]
        # The caller's own, None included, is neither changed nor left for another.
        return _tier(tiers, field, given if isinstance(given, str) else None, None)
    asked = _chosen(call, level, tiers, wanted)
    standard = _value(tiers.standard) if tiers is not None else None
    if asked == standard or f"{field}={asked}" in call.refused:
        asked = None
    return _tier(tiers, field, asked, asked)


def is_downgrade(ranks: Sequence[Sequence[str]], asked: str | None, served: str | None) -> bool:
    """Whether `served` is known to be slower than `asked`, by the tiers from the slowest to the fastest."""
    if asked is None or served is None or asked in _ANY:
        return False
    rank_of = {name: rank for rank, names in enumerate(ranks) for name in names}
    return asked in rank_of and served in rank_of and rank_of[served] < rank_of[asked]


def _tier_field(tiers: Tiers | None, wanted: Mapping[str, str | None] | None, level: Level) -> str | None:
    """Return the body's field that asks for a tier; None where the provider has none."""
    if tiers is None or tiers.field is None:
        # Nothing is known of the provider: only what the application asks for.
        return _USUAL_FIELD if wanted is not None and wanted.get(level) is not None else None
    return tiers.field.value


def _chosen(call: Call, level: Level, tiers: Tiers | None, wanted: Mapping[str, str | None] | None) -> str | None:
    if wanted is not None and level in wanted:
        asked = wanted[level]
        values = _value(tiers.values) if tiers is not None else None
        return asked if values is None or asked in values else None
    if tiers is None or level == "interactive":
        return None
    endpoints = _value(tiers.endpoints)
    if endpoints is not None and call.endpoint not in endpoints:
        return None
    return for_model(tiers.patient, call.model)


def _tier(tiers: Tiers | None, field: str, asked: str | None, added: str | None) -> RequestedTier:
    if tiers is None:
        return RequestedTier(field=field, asked=asked, added=added)
    ranks = _value(tiers.order) or ()
    standard, values = _value(tiers.standard), _value(tiers.values) or ()
    names = [name for same in ranks for name in same]
    # Only from a slower tier to the usual one: where a faster one is full, the usual one is fuller.
    is_slower = added in names and standard in names and names.index(added) < names.index(standard)
    status = _value(tiers.full_status)
    return RequestedTier(
        field=field,
        asked=asked,
        added=added,
        falls=is_slower and status is not None,
        following=standard if standard in values else None,
        full_status=status,
        full_codes=frozenset(_value(tiers.full_codes) or ()),
        ranks=ranks,
        answer_header=_value(tiers.answer_header),
        timeout_s=None if asked is None else _value(tiers.timeout_s.get(asked)),
    )


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value


def _error_in(content: bytes) -> Mapping[str, Any]:
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    error = body.get("error", body) if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {"message": error if isinstance(error, str) else ""}


def _has_code(error: Mapping[str, Any], codes: frozenset[str]) -> bool:
    """Whether an error has one of the codes, or says it in words."""
    if any(_code(error.get(name)) in codes for name in ("code", "type")):
        return True
    message = _code(error.get("message"))
    return any(code in message for code in codes)


def _code(value: object) -> str:
    return "_".join(value.lower().split()) if isinstance(value, str) else ""
