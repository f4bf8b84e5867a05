"""The tier of one call while it lasts: asked, full, refused, served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from fastlane.errors import FastlaneError
from fastlane.protocol.fields import safe_name

from ._choice import is_downgrade

if TYPE_CHECKING:
    from fastlane.engine.call import Call

    from ._plan import TierPlan

# Not for this key: the plan that it belongs to has not got the tier.
_DENIED = frozenset({402, 403})


class TierUnavailableError(FastlaneError):
    """The tier that was asked for has no capacity, or is none for this key: the call asks for another one.

    It never reaches the application. As an error of openai's it passes through the retry loop, which would wait and
    ask for the same again.
    """

    def __init__(self, retries_taken: int) -> None:
        super().__init__()
        self.retries_taken = retries_taken
        """Retries before this attempt."""


class AskedTier:
    """Asks for the tier that was planned, and for the next one where that is full: once, and at once."""

    __slots__ = ("_plan", "_told", "asked", "full", "is_denied")

    def __init__(self, plan: TierPlan) -> None:
        self._plan = plan
        self._told: str | None = None
        self.asked = plan.asked
        """What the next attempt asks for."""
        self.full: tuple[str, ...] = ()
        """Tiers that had no capacity."""
        self.is_denied = False
        """Whether the tier is none for this key."""

    @property
    def is_left(self) -> bool:
        """Whether the call goes on at another tier than the one that was planned."""
        return bool(self.full) or self.is_denied

    @property
    def refusal(self) -> str:
        """The name of the tier among the fields that were refused."""
        return self._plan.refusal

    def at_next(self, call: Call) -> Call:
        """Return the call at the tier that follows."""
        plan = self._plan
        said = f"asked for {self.asked!r}" if self.asked is not None else "asked for none"
        why = "has no capacity" if self.full else "is refused to this key"
        body = {name: value for name, value in call.body.items() if name != plan.field}
        if self.asked is not None:
            body[plan.field] = self.asked
        changed = f"{said}, because the tier {plan.added!r} {why}"
        return call.replaced(body=body, changes=(*call.changes, changed))

    def took_back(self, fields: tuple[str, ...]) -> None:
        """Take note that the call went on without these fields."""
        if self._plan.added is not None and self._plan.field in fields:
            self.asked = None

    def may_be_full(self, status: int, options: Any) -> bool:
        """Whether an answer with this status may say that the tier is full, so that its body has to be looked at."""
        plan, body = self._plan, options.json_data
        if plan.added is None or not isinstance(body, Mapping) or body.get(plan.field) != plan.added or self.is_left:
            return False
        return (plan.falls and status == plan.full_status) or status in _DENIED

    def look(self, response: Any, retries_taken: int) -> None:
        """Look at the answer, read. Raises TierUnavailableError where the tier is full, or is refused to this key."""
        plan, status = self._plan, response.status_code
        if status in _DENIED:
            if not _names(response.content, plan.field, plan.added):
                return
            self.is_denied, self.asked = True, None
        elif plan.full_codes and not _says(response.content, plan.full_codes):
            return
        else:
            assert self.asked is not None
            self.full, self.asked = (*self.full, self.asked), plan.following
        raise TierUnavailableError(retries_taken)

    # What served

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer has come."""
        if self._plan.answer_header is not None and status < 300:
            self._told = safe_name(headers.get(self._plan.answer_header))

    def served(self, by_body: str | None) -> str | None:
        """The tier that served the call; None where nobody says."""
        return by_body if by_body is not None else self._told

    def is_downgraded(self, by_body: str | None) -> bool:
        """Whether that is slower than what the last attempt asked for."""
        return is_downgrade(self._plan, self.asked, self.served(by_body))


def _error_in(content: bytes) -> Mapping[str, Any]:
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    error = body.get("error", body) if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {"message": error if isinstance(error, str) else ""}


def _says(content: bytes, codes: frozenset[str]) -> bool:
    """Whether an error has one of the codes, or says it in words."""
    error = _error_in(content)
    if any(_code(error.get(name)) in codes for name in ("code", "type")):
        return True
    message = _code(error.get("message"))
    return any(code in message for code in codes)


def _names(content: bytes, field: str, tier: str | None) -> bool:
    """Whether an error is about the tier."""
    error = _error_in(content)
    message = str(error.get("message", ""))
    return error.get("param") == field or field in message or (tier is not None and f"{tier} tier" in message.lower())


def _code(value: object) -> str:
    return "_".join(value.lower().split()) if isinstance(value, str) else ""
