"""What prompts come to in tokens, and how much of them upstreams keep, as their answers have said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.knowledge.table import Table
from fastlane.knowledge.token_ratios import TokenRatios

if TYPE_CHECKING:
    from fastlane.knowledge.prediction._sighting import Sighting

# A byte of a request's JSON, frames and all: four characters of English to a token, and in other scripts, where a
# character has more bytes, about as many bytes.
_FIRST_TOKENS_PER_BYTE = 0.24
# Beyond these it is no text that was counted, but pictures, sounds or files.
_LEAST, _MOST = 0.08, 0.8
_FEWEST_BYTES = 400
# Shares of what was expected: what is known to keep prompts misses some, and of others it is not known whether they do.
_FIRST_SHARE = {True: 0.9, None: 0.5, False: 0.05}
_LEAST_SHARE = 0.02
_WEIGHT = 0.2


class LearnedSizes:
    """What is learned of sizes. Threads may share it."""

    def __init__(self) -> None:
        self._ratios = TokenRatios("tokens per byte of tasks", least=_LEAST, most=_MOST, max_entries=256)
        self._shares: Table[Upstream, tuple[float, int]] = Table("shares of caches", max_entries=1_024)

    def tokens_per_byte(self, task: str | None) -> float:
        """Tokens for each byte of a request's JSON: of this task's calls, or else of all."""
        return self._ratios.of(task) or self._ratios.of(None) or _FIRST_TOKENS_PER_BYTE

    def cached_share(self, upstream: Upstream, automatic: bool | None) -> float:
        """The share that an upstream has in its cache of what it has read within its life time."""
        # What comes of the first expectation is learned from what that was.
        first = _FIRST_SHARE[automatic if isinstance(automatic, bool) else None]
        return self._shares.fetch(upstream, lambda: (first, 0))[0]

    def note(self, sighting: Sighting) -> None:
        """Learn from one attempt. Numbers that cannot be are left out."""
        size, tokens = sighting.body_bytes, sighting.input_tokens
        if size and tokens and size >= _FEWEST_BYTES and _LEAST <= tokens / size <= _MOST:
            for task in {None, sighting.task}:
                self._ratios.learn(task, size, tokens)
        expected, cached = sighting.expected_cached_tokens, sighting.cached_tokens
        if expected and cached is not None and expected > 0 and cached >= 0:
            self._learn_share(Upstream(sighting.model, sighting.origin), cached / expected)

    def _learn_share(self, upstream: Upstream, of_expected: float) -> None:
        def change(known: tuple[float, int] | None) -> tuple[float, int]:
            share, count = known or (_FIRST_SHARE[True], 0)
            # What was expected had the share in it already.
            seen = min(1.0, share * of_expected)
            return max(_LEAST_SHARE, share + max(_WEIGHT, 1 / (count + 2)) * (seen - share)), count + 1

        self._shares.update(upstream, change)
