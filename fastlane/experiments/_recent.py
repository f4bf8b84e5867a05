"""The calls that the application may still score, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._assigned import Assigned

_MOST = 20_000


class Scorable(NamedTuple):
    """Where a score of a call belongs."""

    call_id: str
    arm: str
    unit_id_hash: str
    stage: int
    parse_failure: float | None
    """As which it is counted: see `_metrics`."""


class Recent:
    """The last 20,000 calls of this process, by their ids and by those of their answers."""

    __slots__ = ("_calls", "_names", "_scored")

    def __init__(self) -> None:
        self._calls: dict[str, Scorable] = {}
        self._names: dict[str, str] = {}
        self._scored: dict[tuple[str, int], None] = {}

    def remember(self, call_id: str, response_id: str | None, assigned: Assigned, parse_failure: float | None) -> None:
        """Remember a call that was counted."""
        self._calls[call_id] = Scorable(call_id, assigned.arm, assigned.unit_id_hash, assigned.stage, parse_failure)
        if response_id is not None:
            self._names[response_id] = call_id
        for names in (self._calls, self._names):
            if len(names) > _MOST:
                del names[next(iter(names))]

    def named(self, name: str) -> Scorable | None:
        """The call of that id, or with the answer of that id."""
        return self._calls.get(name) or self._calls.get(self._names.get(name, ""))

    def is_first(self, call_id: str, metric: int) -> bool:
        """Whether a call is scored for the first time: a second score does not count."""
        if (call_id, metric) in self._scored:
            return False
        self._scored[call_id, metric] = None
        if len(self._scored) > _MOST:
            del self._scored[next(iter(self._scored))]
        return True
