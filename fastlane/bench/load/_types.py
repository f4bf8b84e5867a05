"""How requests are spread over time, and when a run has enough of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A fixed number of users, each with one request in flight; every entry of `users` is a cell."""

    users: tuple[int, ...] = (8,)
    think_s: float = 0.1
    """Pause of a user before each block but its first, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Requests are sent when the schedule says, whatever became of those before; every entry of `rates` is a cell.

    Blocks arrive at random (Poisson).
    """

    rates: tuple[float, ...] = (1.0,)
    """Blocks per second; every arm sends once in each."""


Load = Closed | Open


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """What a run may cost: no block starts once one of these is spent. None is no limit; blocks under way finish."""

    seconds: float | None = 45.0
    calls: int | None = None
    """Requests of all arms and cells together, the first and the warm-up ones included."""
    money: float | None = None
    """US dollars by the catalog's prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """End a cell once every arm's typical ratio of `metric` is known this well, by a confidence sequence."""

    metric: str = "time_to_first_token"
    half_width: float = 0.03
    """Of the ratio's interval: 0.03 is plus or minus 3 %."""
