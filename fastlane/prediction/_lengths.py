"""How many tokens the answers of a task have, by upstream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ._upstream import Upstream

_USUAL_TOKENS = 300.0
_MOST_TASKS = 1_000
_REMEMBERED = 50
_PRIOR_WEIGHT = 3.0
_OUTLIER = 8.0


@dataclass(slots=True)
class _Mean:
    value: float
    count: float = 0.0

    def note(self, value: float) -> None:
        self.count = min(_REMEMBERED, self.count + 1)
        self.value += (min(value, _OUTLIER * self.value) - self.value) / (self.count + _PRIOR_WEIGHT)


class Lengths:
    """Mean tokens of answers; of a task's answers over all upstreams, and each upstream's own where it was seen."""

    def __init__(self, usual: Mapping[str, float]) -> None:
        self._usual = dict(usual)
        self._tasks: dict[str | None, _Mean] = {}
        self._own: dict[tuple[str | None, Upstream], _Mean] = {}

    def expected(self, task: str | None, upstream: Upstream, factor: float) -> float:
        """Tokens that an answer is likely to have, where nothing is known but its task."""
        own = self._own.get((task, upstream))
        if own is not None:
            return own.value
        shared = self._tasks.get(task)
        return factor * (shared.value if shared is not None else self._usual.get(task or "", _USUAL_TOKENS))

    def note(self, task: str | None, upstream: Upstream, factor: float, tokens: int) -> None:
        """Learn from one whole answer."""
        if tokens < 1:
            return
        if len(self._tasks) >= _MOST_TASKS and task not in self._tasks:
            task = None
        own = self._own.get((task, upstream))
        if own is None:
            own = self._own[task, upstream] = _Mean(self.expected(task, upstream, factor))
        own.note(tokens)
        shared = self._tasks.get(task)
        if shared is None:
            shared = self._tasks[task] = _Mean(self._usual.get(task or "", _USUAL_TOKENS))
        shared.note(tokens / max(1e-3, factor))
