"""The tier of one call while it lasts: asked, full, refused, served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import openai
import orjson

from fastlane.compat.call_options import changed_options
from fastlane.errors import FastlaneError
from fastlane.protocol.fields import field, safe_name

from ._choice import is_downgrade

if TYPE_CHECKING:
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

    __slots__ = ("_plan", "_told", "asked", "full")

    def __init__(self, plan: TierPlan) -> None:
        self._plan = plan
        self._told: str | None = None
        self.asked = plan.asked
        """What the next attempt asks for."""
        self.full: tuple[str, ...] = ()
        """Tiers that had no capacity."""

    @property
    def added(self) -> str | None:
        """The tier that was added to the call; None where it is the caller's own, or none."""
        return self._plan.added

    def prepared(self, client: Any, options: Any) -> Any:
        """The options of the next attempts: at the tier that is asked for now, waiting as long as that may take."""
        plan = self._plan
        changes: dict[str, Any] = {}
        body = options.json_data
        if self.asked != plan.asked and isinstance(body, Mapping) and body.get(plan.field) == plan.added:
            changes["json_data"] = self._body(body)
        elif plan.timeout_s is not None and self.asked == plan.asked:
            given, usual = options.timeout, openai.DEFAULT_TIMEOUT
            if isinstance(given, openai.NotGiven) and client.timeout == usual and plan.timeout_s > (usual.read or 0):
                changes["timeout"] = openai.Timeout(plan.timeout_s, connect=usual.connect)
        return changed_options(options, changes) if changes else options

    def _body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        field = self._plan.field
        changed = {name: value for name, value in body.items() if name != field}
        if self.asked is not None:
            changed[field] = self.asked
        return changed

    def may_be_full(self, status: int) -> bool:
        """Whether an answer with this status may say that the tier is full, so that its body has to be looked at."""
        plan = self._plan
        if plan.added is None or self.asked != plan.added:
            return False
        return (plan.falls and status == plan.full_status) or status in _DENIED

    def look(self, response: Any, retries_taken: int) -> None:
        """Look at the answer, read. Raises TierUnavailableError where the tier is full, or is refused to this key."""
        plan, status = self._plan, response.status_code
        if status in _DENIED:
            if not _names(response.content, plan.field, plan.added):
                return
        elif plan.full_codes and not _says(response.content, plan.full_codes):
            return
        else:
            assert self.asked is not None
            self.full, self.asked = (*self.full, self.asked), plan.following
        raise TierUnavailableError(retries_taken)

    def fallen(self, client: Any, observation: Any, options: Any, unavailable: TierUnavailableError) -> Any:
        """The options of the call at its next tier: as many retries are left as there were."""
        observation.next_kind = "plain"
        said = f"asked for {self.asked!r}" if self.asked is not None else "asked for none"
        why = "has no capacity" if self.full else "is refused to this key"
        observation.changes = (*observation.changes, f"{said}, because the tier {self._plan.added!r} {why}")
        most = options.max_retries if isinstance(options.max_retries, int) else client.max_retries
        changes = {"json_data": self._body(options.json_data), "max_retries": max(0, most - unavailable.retries_taken)}
        plan = self._plan
        if plan.timeout_s is not None and options.timeout == openai.Timeout(
            plan.timeout_s, connect=openai.DEFAULT_TIMEOUT.connect
        ):
            changes["timeout"] = openai.NOT_GIVEN
        return changed_options(options, changes)

    # What served

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer has come."""
        if self._plan.answer_header is not None and status < 300:
            self._told = safe_name(headers.get(self._plan.answer_header))

    def in_answer(self, answer: Any) -> str | None:
        """The tier that a whole answer or an event of a stream names, in the place that facts say."""
        for name in self._plan.answer_path:
            answer = None if answer is None else field(answer, name)
        return answer if isinstance(answer, str) else None

    @property
    def is_elsewhere(self) -> bool:
        """Whether answers name it elsewhere than in the usual field."""
        return bool(self._plan.answer_path)

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
