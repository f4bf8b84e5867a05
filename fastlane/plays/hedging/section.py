"""How spans, metrics and reports show a second attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastlane.records.ledger import Figure, Ledger
from fastlane.records.plays import HedgingRecord
from fastlane.records.record import CallRecord
from fastlane.records.section import Measure, Metric

HEDGES: Final = Metric(
    "fastlane.client.hedges", "counter", "{attempt}", "Second attempts for calls that were late, won or lost"
)
TOKENS: Final = Metric(
    "fastlane.client.hedge.extra_tokens",
    "counter",
    "{token}",
    "Tokens of the prompts that the losing attempts of hedged calls have read, estimated",
)


class HedgingSection(HedgingRecord):
    """Shows whether a second attempt was made, and what came of it."""

    __slots__ = ()

    metrics = (HEDGES, TOKENS)
    figures = {  # noqa: RUF012 - never changed
        "hedge": Figure("", "measured"),
        "hedges_made": Figure("{attempt}", "measured"),
        "hedge_tokens": Figure("{token}", "estimated", "tokens of attempts that lost to another", is_spent=True),
        "hedge_price": Figure("currency", "estimated", "their price, in the catalog's currency", is_spent=True),
    }

    def attributes(self) -> dict[str, Any]:
        """The delay and the outcome."""
        return {
            "fastlane.hedge.sent": self.hedged,
            "fastlane.hedge.delay": self.delay_s,
            "fastlane.hedge.won": self.won,
            "fastlane.hedge.extra_input_tokens": self.extra_input_tokens,
        }

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Whether a second attempt was made."""
        return ("hedge",) if self.hedged else ()

    def measures(self) -> Iterator[Measure]:
        """The second attempt, and what it cost."""
        if not self.hedged:
            return
        yield Measure(HEDGES, 1, {"fastlane.hedge.outcome": "won" if self.won else "lost"})
        if self.extra_input_tokens is not None:
            yield Measure(TOKENS, self.extra_input_tokens, {"gen_ai.token.type": "input"})

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """Who won, and what the loser cost."""
        is_decided = self.hedged and self.won is not None
        return {
            "hedge": ("won" if self.won else "lost") if is_decided else None,
            "hedges_made": 1 if self.hedged else None,
            "hedge_tokens": self.extra_input_tokens,
            "hedge_price": self.extra_price,
        }

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether a second attempt was made."""
        own = record.get(cls)
        return own is not None and own.hedged

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """Who won, and what it cost."""
        shown = f"{ledger.count('hedge', 'won'):,} won, {ledger.count('hedge', 'lost'):,} lost"
        spent = ledger.total("hedge_tokens")
        return shown if spent is None else f"{shown}, {spent.value:,} tokens spent on it (estimated)"
