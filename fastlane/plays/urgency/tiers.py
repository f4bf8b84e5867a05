"""The service tier of a call: which one it asks for by its urgency, and what it does when that has no capacity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from fastlane.engine.call import Call
from fastlane.errors import FastlaneError
from fastlane.providers.facts import value_of
from fastlane.providers.output_facts import for_model
from fastlane.records.plays import Level

if TYPE_CHECKING:
    from fastlane.providers.facts import Tiers


class TierFullError(FastlaneError):
    """The requested tier has no capacity: the call requests another one.

    It never reaches the application. An error of openai's would wait in the retry loop and ask for the same again.
    """

    def __init__(self, retries_taken: int) -> None:
        super().__init__()
        self.retries_taken = retries_taken
        """Retries before this attempt."""


@dataclass(slots=True)
class RequestedTier:
    """The tier that a call asks for, and the usual one where that is full, once and at once."""

    facts: Tiers
    field: str
    """The field of the body, "service_tier"."""
    asked: str | None
    """What the next attempt asks for; None if it asks for none."""
    added: str | None = None
    """The tier that the play has put into the body, and not the caller."""
    is_full: bool = False
    """Whether the added tier had no capacity."""

    def applied_to(self, call: Call) -> Call:
        """Return the call with the tier that it asks for, and with the time that an answer may take there."""
        if self.is_full:
            body = {name: value for name, value in call.body.items() if name != self.field}
            if self.asked is not None:
                body[self.field] = self.asked
            asks = f"asked for {self.asked!r}" if self.asked is not None else "asked for none"
            changed = f"{asks}, because the tier {self.added!r} has no capacity"
            return call.replaced(body=body, changes=(*call.changes, changed))
        timeout_s = None if self.asked is None else value_of(self.facts.timeout_s.get(self.asked))
        if self.added is None:
            return call if timeout_s is None else call.replaced(timeout_s=timeout_s)
        changed, optional = f"Urgency asked for the tier {self.added!r}", f"{self.field}={self.added}"
        return call.with_fields({self.field: self.added}, (changed,), (optional,)).replaced(timeout_s=timeout_s)

    def took_back(self, fields: tuple[str, ...]) -> None:
        """Take note that the call went on without these fields, named as in `Call.optional`."""
        if self.added is not None and f"{self.field}={self.added}" in fields:
            self.asked = None

    def may_be_full(self, status: int, options: Any) -> bool:
        """Whether a response with this status may say that the tier is full, so that its body has to be read."""
        body = options.json_data
        is_asked = self.added is not None and isinstance(body, Mapping) and body.get(self.field) == self.added
        return is_asked and not self.is_full and status == value_of(self.facts.full_status)

    def check(self, response: Any, retries_taken: int) -> None:
        """Raise TierFullError where a response whose body was read says so."""
        codes = frozenset(value_of(self.facts.full_codes) or ())
        if codes and not _has_code(response.content, codes):
            return
        standard = value_of(self.facts.standard)
        self.is_full, self.asked = True, standard if standard in (value_of(self.facts.values) or ()) else None
        raise TierFullError(retries_taken)


def requested_tier(call: Call, level: Level, *, is_on: bool) -> RequestedTier | None:
    """Return the tier of a call; None if the provider's tiers are not known.

    `is_on`: whether a call that can wait asks for a slower tier. The caller's own is recorded in any case.
    """
    tiers = None if call.facts is None else call.facts.tiers
    field = None if tiers is None else value_of(tiers.field)
    if tiers is None or field is None:
        return None
    if field in call.body:
        given = call.body[field]
        # The caller's own, None included, is neither changed nor left for another.
        return RequestedTier(tiers, field, given if isinstance(given, str) else None)
    endpoints = value_of(tiers.endpoints)
    if not is_on or level == "interactive" or (endpoints is not None and call.endpoint not in endpoints):
        return RequestedTier(tiers, field, None)
    asked = for_model(tiers.patient, call.model)
    if asked == value_of(tiers.standard) or f"{field}={asked}" in call.refused:
        asked = None
    return RequestedTier(tiers, field, asked, asked)


def _has_code(content: bytes, codes: frozenset[str]) -> bool:
    """Whether the error in a response has one of the codes, or says it in words."""
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        return False
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        error = {"message": error}
    message = _code(error.get("message"))
    return any(_code(error.get(name)) in codes for name in ("code", "type")) or any(code in message for code in codes)


def _code(value: object) -> str:
    return "_".join(value.lower().split()) if isinstance(value, str) else ""
