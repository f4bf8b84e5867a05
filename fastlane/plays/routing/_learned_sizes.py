"""What prompts come to in tokens, and how much of them upstreams keep, as their answers have said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlane.knowledge.prediction._upstream import Upstream

if TYPE_CHECKING:
    from fastlane.knowledge.prediction._sighting import Sighting

# A byte of a request's JSON, frames and all: four characters of English to a token, and in other scripts, where a
# character has more bytes, about as many bytes.
_FIRST_TOKENS_PER_BYTE = 0.24
# Beyond these it is no text that was counted, but pictures, sounds or files.
_LEAST, _MOST = 0.08, 0.8
_FEWEST_BYTES = 400
_SAMPLES = 15
_MOST_TASKS = 256
_MOST_UPSTREAMS = 1_024
# Shares of what was expected: what is known to keep prompts misses some, and of others it is not known whether they do.
_FIRST_SHARE = {True: 0.9, None: 0.5, False: 0.05}
_LEAST_SHARE = 0.02
_WEIGHT = 0.2


class LearnedSizes:
    """Ratios, each the middle one of the latest. Values are replaced as a whole: threads may share it."""

    def __init__(self) -> None:
        self._ratios: dict[str | None, tuple[float, ...]] = {}
        self._middle: dict[str | None, float] = {}
        self._shares: dict[Upstream, tuple[float, int]] = {}

    def tokens_per_byte(self, task: str | None) -> float:
        """Tokens for each byte of a request's JSON: of this task's calls, or else of all."""
        found = self._middle.get(task)
        if found is None:
            found = self._middle.get(None, _FIRST_TOKENS_PER_BYTE)
        return found

    def cached_share(self, upstream: Upstream, automatic: bool | None) -> float:
        """The share that an upstream has in its cache of what it has read within its life time."""
        found = self._shares.get(upstream)
        if found is None:
            # What comes of the first expectation is learned from what that was.
            found = self._shares[upstream] = (_FIRST_SHARE[automatic if isinstance(automatic, bool) else None], 0)
        return found[0]

    def note(self, sighting: Sighting) -> None:
        """Learn from one attempt. Numbers that cannot be are left out."""
        size, tokens = sighting.body_bytes, sighting.input_tokens
        if size and tokens and size >= _FEWEST_BYTES and _LEAST <= (ratio := tokens / size) <= _MOST:
            for task in {sighting.task, None}:
                self._add(task, ratio)
        expected, cached = sighting.expected_cached_tokens, sighting.cached_tokens
        if expected and cached is not None and expected > 0 and cached >= 0:
            self._share(sighting, cached / expected)

    def _add(self, task: str | None, ratio: float) -> None:
        samples = self._ratios[task] = (*self._ratios.get(task, ())[1 - _SAMPLES :], ratio)
        self._middle[task] = sorted(samples)[len(samples) // 2]
        if len(self._ratios) > _MOST_TASKS:
            for oldest in [one for one in list(self._ratios) if one is not None][: _MOST_TASKS // 2]:
                self._ratios.pop(oldest, None)
                self._middle.pop(oldest, None)

    def _share(self, sighting: Sighting, of_expected: float) -> None:
        upstream = Upstream(sighting.model, sighting.origin)
        share, count = self._shares.get(upstream, (_FIRST_SHARE[True], 0))
        # What was expected had the share in it already.
        seen = min(1.0, share * of_expected)
        weight = max(_WEIGHT, 1 / (count + 2))
        self._shares[upstream] = (max(_LEAST_SHARE, share + weight * (seen - share)), count + 1)
        # Sightings of other processes may have other catalogs.
        if len(self._shares) > _MOST_UPSTREAMS:
            for oldest in list(self._shares)[: _MOST_UPSTREAMS // 2]:
                self._shares.pop(oldest, None)
