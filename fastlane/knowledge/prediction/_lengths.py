"""How many tokens the answers of a task have, by upstream."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

from ._upstream import Upstream

_USUAL_TOKENS = 300.0
"""Where neither the catalog nor any answer has said: about the mean of a chat service's (Mooncake, FAST'25: 348)."""
_MOST_TASKS = 1_000
_REMEMBERED = 50.0
# How many answers weigh as much as what the catalog says, or as other upstreams' answers; and as a mere guess.
_SAID, _GUESSED = 3.0, 0.3
_OUTLIER = 8.0
LENGTHS_SQUARE = exp(0.3**2)
"""e to the variance of the logarithm of an answer's tokens: of those of one task, two of three lie within a third of
the usual."""


class _Mean:
    """A mean of about the last 50 values, the first of which stand beside what was expected."""

    __slots__ = ("value", "weight")

    def __init__(self, value: float, weight: float) -> None:
        self.value = value
        self.weight = weight

    def note(self, value: float) -> None:
        self.weight = min(_REMEMBERED, self.weight + 1.0)
        # One endless answer is not to make all seem long.
        self.value += (min(value, _OUTLIER * self.value) - self.value) / self.weight


class TaskLengths:
    """Of one task: over all upstreams, and each upstream's own."""

    __slots__ = ("own", "shared")

    def __init__(self, usual: float, weight: float) -> None:
        self.shared = _Mean(usual, weight)
        self.own: dict[Upstream, _Mean] = {}

    def expected(self, upstream: Upstream, factor: float) -> float:
        """Mean tokens of an answer; `factor`: how many times those of others they are, by the catalog."""
        own = self.own.get(upstream)
        return own.value if own is not None else factor * self.shared.value

    def note(self, upstream: Upstream, factor: float, tokens: int) -> None:
        """Learn from one whole answer."""
        own = self.own.get(upstream)
        if own is None:
            own = self.own[upstream] = _Mean(factor * self.shared.value, min(_SAID, self.shared.weight))
        own.note(tokens)
        self.shared.note(tokens / factor)


class Lengths:
    """Mean tokens of answers by task; at most a thousand tasks, all others are one."""

    def __init__(self, usual: Mapping[str, float]) -> None:
        self._tasks: dict[str | None, TaskLengths] = {None: TaskLengths(_USUAL_TOKENS, _GUESSED)}
        for task, tokens in usual.items():
            self._tasks[task] = TaskLengths(tokens, _SAID)

    def of(self, task: str | None) -> TaskLengths:
        """What is known of a task; what is known of calls without one, where nothing is."""
        return self._tasks.get(task) or self._tasks[None]

    def note(self, task: str | None, upstream: Upstream, factor: float, tokens: int) -> None:
        """Learn from one whole answer."""
        if tokens < 1:
            return
        known = self._tasks.get(task)
        if known is None:
            if len(self._tasks) < _MOST_TASKS:
                known = self._tasks[task] = TaskLengths(_USUAL_TOKENS, _GUESSED)
            else:
                known = self._tasks[None]
        known.note(upstream, factor, tokens)
