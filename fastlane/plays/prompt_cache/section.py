"""How spans, metrics and reports show what a provider's prompt cache held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastlane.records.ledger import Figure, Ledger
from fastlane.records.plays import PromptCacheRecord
from fastlane.records.record import CallRecord
from fastlane.records.section import Measure, Metric

EXPECTED: Final = Metric(
    "fastlane.client.cache.expected_tokens",
    "counter",
    "{token}",
    "Tokens of prompts that the provider's cache was expected to have, by its facts",
)
READ: Final = Metric(
    "fastlane.client.cache.read_tokens",
    "counter",
    "{token}",
    "Tokens of prompts that were read from the provider's cache, by its own word",
)


class PromptCacheSection(PromptCacheRecord):
    """Shows what the provider's cache should have held, and what it did hold."""

    __slots__ = ()

    metrics = (EXPECTED, READ)
    figures = {  # noqa: RUF012 - never changed
        "cache_expected_tokens": Figure(
            "{token}", "estimated", "prompt tokens that caches should have held", only_with="cache_read_tokens"
        ),
    }

    def attributes(self) -> dict[str, Any]:
        """The prefix, and what was expected and read of it."""
        drift = self.drift
        return {
            "fastlane.cache.prefix.hash": self.family,
            "fastlane.cache.prefix.tokens": self.reusable_tokens,
            "fastlane.cache.expected_read_tokens": self.expected_tokens,
            "fastlane.cache.hit_ratio": self.hit_ratio,
            "fastlane.cache.mismatch_reason": drift and drift.kind,
            "fastlane.cache.mismatch_path": drift and drift.path,
            "fastlane.cache.lost_tokens": drift and drift.tokens_lost,
        }

    @property
    def warning(self) -> str | None:
        """What broke the prefix that the provider's cache should have held."""
        return None if self.drift is None else f"cache miss, {self.drift.kind.replace('_', ' ')}"

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Whether anything was read."""
        return ("prompt_cache",) if self.cached_tokens else ()

    def measures(self) -> Iterator[Measure]:
        """What was expected and read, so that the two can be compared: both, or neither."""
        if self.cached_tokens is not None:
            if self.expected_tokens is not None:
                yield Measure(EXPECTED, self.expected_tokens)
            yield Measure(READ, self.cached_tokens)

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """What should have been read."""
        return {"cache_expected_tokens": self.expected_tokens}

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether anything was read, by the provider's own word."""
        return not record.usage.estimated and (record.usage.cached_tokens or 0) > 0

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """The tokens that were read."""
        read = ledger.total("cache_read_tokens")
        tokens = read.value if read is not None else 0
        return f"{tokens:,} of {ledger.prompt_tokens_said:,} prompt tokens read (reported)"
