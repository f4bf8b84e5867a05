"""What the replicas of an application tell each other of one model's limits: what they spend, and when they rest."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ._limit import Limit
from ._reading import MOST_LIMIT, MOST_WAIT_S

Tell: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Takes what is for the other replicas. Waits for nothing, and raises nothing."""

# What is spent is told in sums: a store sends five times a second.
_EVERY_S = 0.1
_LIMITS_EVERY_S = 5.0
# What is older has come back to its limit; the store tells those who come late of what was.
_MOST_AGE_S = 60.0
# No replica spends more between two events, and no limit is larger, or counts over a longer time.
_MOST_REQUESTS, _MOST_TOKENS = 1e5, 1e9
_MOST_WINDOW_S = 32 * 86_400.0
_MOST_REST_S = 86_400.0


class News(NamedTuple):
    """What another replica has told, read."""

    at_s: float
    requests: float
    tokens: float
    rest_until_s: float
    limits: tuple[tuple[str, float, float, float], ...]
    """Name, limit, window in seconds and what was left."""


class Replicas:
    """One replica's part in that."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name = name
        self._tell = tell
        self._requests = self._tokens = 0.0
        self._told_s = self._limits_told_s = -math.inf

    @property
    def name(self) -> str:
        """Of this replica: a child process is another one."""
        return f"{self._name}-{os.getpid()}"

    def spent(self, now_s: float, requests: float, tokens: float, limits: Mapping[str, Limit]) -> None:
        """Count what leaves now, and tell of it soon."""
        self._requests += requests
        self._tokens += tokens
        self.flush(now_s, limits)

    def flush(self, now_s: float, limits: Mapping[str, Limit]) -> None:
        """Tell what has been spent, where something was and the last time is not just now."""
        if self._requests and now_s - self._told_s >= _EVERY_S:
            self._say(now_s, limits, {})

    def rests(self, now_s: float, until_s: float, limits: Mapping[str, Limit]) -> None:
        """Tell that the provider asked for a rest."""
        self._say(now_s, limits, {"rest_s": until_s - now_s})

    def _say(self, now_s: float, limits: Mapping[str, Limit], more: Mapping[str, Any]) -> None:
        event: dict[str, Any] = {
            "kind": "pacing",
            "by": self.name,
            "requests": self._requests,
            "tokens": self._tokens,
            **more,
        }
        if now_s - self._limits_told_s >= _LIMITS_EVERY_S and limits:
            event["limits"] = [[one.name, one.limit, one.window_s, one.level] for one in limits.values()]
            self._limits_told_s = now_s
        self._requests = self._tokens = 0.0
        self._told_s = now_s
        self._tell(event)

    def news(self, event: Mapping[str, Any], at_s: float, now_s: float) -> News:
        """Read what another replica has reported; a rest lasts a minute at most.

        Anybody may have written it: raises LookupError, TypeError or ValueError for what no replica writes.
        """
        at_s = min(at_s, now_s)
        rest_s = _amount(event.get("rest_s", 0.0), _MOST_REST_S)
        is_old = now_s - at_s > _MOST_AGE_S
        return News(
            at_s=at_s,
            requests=0.0 if is_old else _amount(event["requests"], _MOST_REQUESTS),
            tokens=0.0 if is_old else _amount(event["tokens"], _MOST_TOKENS),
            rest_until_s=at_s + min(MOST_WAIT_S, rest_s) if rest_s else 0.0,
            limits=tuple(
                (
                    str(name),
                    _amount(limit, MOST_LIMIT, least=1.0),
                    _amount(window_s, _MOST_WINDOW_S, least=1.0),
                    min(max(0.0, _number(level)), limit),
                )
                for name, limit, window_s, level in event.get("limits", ())
            )
            if not is_old
            else (),
        )


def _amount(value: Any, most: float, *, least: float = 0.0) -> float:
    amount = _number(value)
    if not least <= amount <= most:
        raise ValueError(f"expected a number from {least:g} to {most:g}")
    return amount


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("expected a finite number")
    return float(value)
