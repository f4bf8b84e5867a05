"""The place of one call among those that are sent at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastlane.records.urgency import AdmissionRecord

from ._core import Ticket

if TYPE_CHECKING:
    from ._gate import Gate


class Permit:
    """A call's place, from just before it is sent until it is over. Whoever forgets it gives it back."""

    __slots__ = ("_gate", "_generation", "_left", "_over", "_refused", "_ticket", "_waited_s")

    def __init__(self, gate: Gate, ticket: Ticket, generation: int, waited_s: float) -> None:
        self._gate = gate
        self._ticket = ticket
        self._generation = generation
        self._over = self._refused = False
        self._waited_s = waited_s
        self._left = False

    def __del__(self) -> None:
        if not getattr(self, "_left", True):  # Ctrl-C may come while it is made
            self.leave(failed=True, quietly=True)

    @property
    def record(self) -> AdmissionRecord:
        """How the call got it."""
        ticket = self._ticket
        return AdmissionRecord(
            waited_s=self._waited_s,
            waited_for=ticket.waited_for,
            ahead=ticket.ahead,
            concurrency=ticket.concurrency,
        )

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer has come: it may tell of rate limits, and 429, 503 and 529 of too many at once."""
        self._gate._answered(self, status, headers)

    def leave(
        self,
        *,
        tokens: int | None = None,
        failed: bool = False,
        quietly: bool = False,
    ) -> None:
        """Give the place back; once, whatever is called again.

        `tokens` are those that the provider counted, input and output. What has `failed` says
        nothing of the provider's places; a refusal is told to `answered`. A finaliser gives it back `quietly`: no lock
        is waited for.
        """
        self._gate._leave(self, tokens, failed, quietly)
        self._left = True  # not before: Ctrl-C may come amid it, and then a finaliser has it to do again
