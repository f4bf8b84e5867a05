"""How many tokens the answers of a task have, by upstream."""

from __future__ import annotations

from collections.abc import Mapping

from ._upstream import Upstream

_USUAL_TOKENS = 300.0
"""Where neither the catalog nor any answer has said: about the mean of a chat service's (Mooncake, FAST'25: 348)."""
_MOST_TASKS = 1_000
_REMEMBERED = 50.0
_PRIOR_WEIGHT = 3.0
_OUTLIER = 8.0


class _Mean:
    """A mean of about the last 50 values, the first of which stand beside what was expected."""

    __slots__ = ("count", "value")

    def __init__(self, value: float) -> None:
        self.value = value
        self.count = 0.0

    def note(self, value: float) -> None:
        self.count = min(_REMEMBERED, self.count + 1)
        # One endless answer is not to make all seem long.
        self.value += (min(value, _OUTLIER * self.value) - self.value) / (self.count + _PRIOR_WEIGHT)


class TaskLengths:
    """Of one task: over all upstreams, and each upstream's own."""

    __slots__ = ("_own", "_shared")

    def __init__(self, usual: float) -> None:
        self._shared = _Mean(usual)
        self._own: dict[Upstream, _Mean] = {}

    def expected(self, upstream: Upstream, factor: float) -> float:
        """Mean tokens of an answer; `factor`: how many times those of others they are, by the catalog."""
        own = self._own.get(upstream)
        return own.value if own is not None else factor * self._shared.value

    def note(self, upstream: Upstream, factor: float, tokens: int) -> None:
        """Learn from one whole answer."""
        own = self._own.get(upstream)
        if own is None:
            own = self._own[upstream] = _Mean(factor * self._shared.value)
        own.note(tokens)
        self._shared.note(tokens / factor)


class Lengths:
    """Mean tokens of answers by task; at most a thousand tasks, all others are one."""

    def __init__(self, usual: Mapping[str, float]) -> None:
        self._tasks: dict[str | None, TaskLengths] = {None: TaskLengths(_USUAL_TOKENS)}
        for task, tokens in usual.items():
            self._tasks[task] = TaskLengths(tokens)

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
                known = self._tasks[task] = TaskLengths(_USUAL_TOKENS)
            else:
                known = self._tasks[None]
        known.note(upstream, factor, tokens)
