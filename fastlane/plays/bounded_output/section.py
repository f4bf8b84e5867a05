"""How spans and reports show the bound of an answer, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlane.records.ledger import Entry, Figure, Ledger, sum_of_known
from fastlane.records.plays import BoundedOutputRecord
from fastlane.records.record import CallRecord


class BoundedOutputSection(BoundedOutputRecord):
    """Shows the bound of an answer, why it was stopped, and whether it was valid."""

    __slots__ = ()

    figures = {  # noqa: RUF012 - never changed
        "tokens_not_generated": Figure("{token}", "estimated", "output tokens not generated, by early stop"),
        "rejected_answers": Figure("{call}", "measured", "answers asked for again", is_spent=True),
        "rejected_tokens": Figure("{token}", "reported", "tokens of these and of their prompts", is_spent=True),
    }

    def attributes(self) -> dict[str, Any]:
        """The bound, the end and the verdict."""
        is_checked = self.verdict is not None
        return {
            "fastlane.output.verdict": self.verdict,
            "fastlane.output.valid": self.verdict == "valid" if is_checked else None,
            "fastlane.output.repair_count": len(self.rejected) if is_checked else None,
            "fastlane.output.ceiling_tokens": self.ceiling_tokens,
            "fastlane.output.stop_reason": self.stop_reason,
            "fastlane.output.tokens_not_generated": self.tokens_not_generated,
        }

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Whether a bound was sent, and whether the stream was stopped."""
        bounded = ("bounded_output",) if self.ceiling_tokens is not None else ()
        return (*bounded, "early_stop") if self.stop_reason is not None else bounded

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """Tokens that were not generated, and what rejected answers cost."""
        rejected = self.rejected
        tokens = sum_of_known(count for one in rejected for count in (one.input_tokens, one.output_tokens))
        is_guess = tokens is not None and any(one.estimated for one in rejected)
        return {
            "tokens_not_generated": self.tokens_not_generated,
            "rejected_answers": len(rejected) or None,
            "rejected_tokens": Entry("rejected_tokens", tokens or 0, "{token}", "estimated") if is_guess else tokens,
        }

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether the answer was bounded, stopped or asked for again."""
        own = record.get(cls)
        return own is not None and bool(own.ceiling_tokens or own.stop_reason or own.rejected)

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """How many answers, and how many tokens."""
        outputs = [own for record in records if (own := record.get(cls)) is not None]
        counts = {
            "given a ceiling": sum(output.ceiling_tokens is not None for output in outputs),
            "stopped": sum(output.stop_reason is not None for output in outputs),
            "asked again": sum(bool(output.rejected) for output in outputs),
        }
        shown = [f"{count:,} {what}" for what, count in counts.items() if count]
        total = ledger.total("tokens_not_generated")
        if total is not None and total.value:
            shown.append(f"{total.value:,} tokens not generated (estimated)")
        return ", ".join(shown)
