"""The claim of one call to a slot among the calls that are sent at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from fastlane.engine.effects import Acquire, Flow
from fastlane.records.urgency import AdmissionRecord

from ._settings import AdmissionSettings

if TYPE_CHECKING:
    from ._core import Core
    from ._gate import Gate

_S = 1_000_000_000

FREE, QUEUED, GRANTED = range(3)
Reason = Literal["place", "pace"]


class Slot:
    """One call's claim: a ticket of `effects.Acquire`, granted by a gate. See `acquire`."""

    __slots__ = (
        "_gate", "ageing_ns", "ahead", "arrival", "arrived_ns", "concurrency", "core", "granted_ns", "in_flight",
        "is_refused", "level", "max_wait_s", "number", "settings", "spent", "state", "tokens", "waited_for", "wake",
    )  # fmt: skip

    def __init__(
        self,
        level: int,
        settings: AdmissionSettings,
        tokens: int,
        gate: Gate | None = None,
        max_wait_s: float | None = None,
    ) -> None:
        """Make a claim that is not in the queue yet. `tokens`: what the call may take, input and output together."""
        self.level = level
        self.settings = settings
        self.ageing_ns = int(settings.ageing_s * _S)
        self.tokens = tokens
        self.max_wait_s = max_wait_s
        self.state = FREE
        self.core: Core | None = None
        """Which has queued or granted it; a child process has another one."""
        self.wake: Callable[[], bool] = bool
        self.arrived_ns = self.granted_ns = self.ahead = 0
        self.arrival = self.number = self.in_flight = 0
        self.concurrency: int | None = None
        self.waited_for: Reason | None = None
        self.spent: Any = None
        self.is_refused = False
        self._gate = gate

    @property
    def is_granted(self) -> bool:
        """Whether the call has its slot."""
        return self.state == GRANTED

    @property
    def record(self) -> AdmissionRecord:
        """How the call got it."""
        return AdmissionRecord(
            waited_s=(self.granted_ns - self.arrived_ns) / _S,
            waited_for=self.waited_for,
            ahead=self.ahead,
            concurrency=self.concurrency,
        )

    def acquire(self, http: Any) -> Flow:
        """Wait for the slot. Returns whether there is one: there is none where the HTTP client was closed.

        Raises QueueFullError where too many calls wait already, and QueueTimeoutError where the slot would certainly
        come after `max_wait_s` seconds, or has not come by then.
        """
        try:
            yield Acquire(http, self, self.max_wait_s)
        except TimeoutError:
            self.gate.give_up(self)
        return self.is_granted

    @property
    def gate(self) -> Gate:
        """Which grants it."""
        assert self._gate is not None
        return self._gate

    def start(self, wake: Callable[[], bool]) -> None:
        """Take the slot, or join the queue. Raises QueueFullError and QueueTimeoutError."""
        self.wake = wake
        self.gate.start(self)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of a response has come: it may tell of rate limits, and 429, 503 and 529 of too many at once."""
        self.gate.answered(self, status, headers)

    def settle(self, tokens: int) -> None:
        """The provider has counted so many tokens, input and output."""
        self.gate.settle(self, tokens)

    def release(self, *, tokens: int | None = 0, failed: bool = True) -> None:
        """Give the slot back, or leave the queue. Calling it again does nothing.

        `tokens`: those that the provider counted, input and output; 0 where nothing was sent, None where that is not
        known. A call that has `failed` says nothing of how many the provider serves.
        """
        self.gate.release(self, tokens, failed=failed)
