"""The place of one call among those that are sent at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastlane._urgency_records import AdmissionRecord

from ._core import Ticket
from ._evidence import Sample

if TYPE_CHECKING:
    from ._gate import Gate

_S = 1e9


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
        first_token_s: float | None = None,
        tokens: int | None = None,
        failed: bool = False,
        quietly: bool = False,
    ) -> None:
        """Give the place back; once, whatever is called again.

        `first_token_s` is counted in seconds from sending; where the call did not stream, None, and its duration is
        taken in its place. `tokens` are those that the provider counted, input and output. What has `failed` says
        nothing of the provider's places; a refusal is told to `answered`. A finaliser gives it back `quietly`: no lock
        is waited for.
        """
        self._gate._leave(self, first_token_s, tokens, failed, quietly)
        self._left = True  # not before: Ctrl-C may come amid it, and then a finaliser has it to do again

    def _sample(self, first_token_s: float | None, failed: bool, now_ns: int) -> Sample | None:
        if failed or self._refused:
            return None
        ticket = self._ticket
        duration_s = max((now_ns - ticket.sent_ns) / _S, 1e-9)
        kind = first_token_s is None, ticket.level == 0
        return Sample(
            kind,
            ticket.tokens.bit_length() // 2,
            duration_s if first_token_s is None else first_token_s,
            duration_s,
            ticket.in_flight,
        )
