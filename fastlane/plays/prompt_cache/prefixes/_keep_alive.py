"""Say whether it is worth its price to keep a prefix in a provider's cache through the silence between calls.

A prefix of `P` tokens is kept for `L` seconds after its last use. A call that finds it pays `P` times the price of
cached tokens; one that does not, `P` times that of writing, and waits for the tokens to be read. Re-warming means:
after each `T < L` seconds of silence, send a request that reads the prefix, which costs `C = P * cached` and keeps it
for another `L`; after `n` of these in one silence, let it go. With `D = P * (write - cached)`, and what the time is
worth, for what a found prefix saves, and `G` for the time between two calls:

- a silence costs `C * (P[G > T] + P[G > 2 T] + ... + P[G > n T])`,
- and saves `D * P[L < G <= L + n T]`: without, the prefix would have been gone, and with, it is not yet;
- both are per call, and divided by the mean of `G` per second (renewal reward theorem: S. M. Ross, Stochastic
  Processes, 1996, 3.6).

The `k`-th request is worth sending, once it comes to it, where `D * P[L + (k - 1) T < G <= L + k T | G > k T] > C`. If
calls come at random (a Poisson process of rate `r`, which has no memory), that is the same for all `k`,
`D * exp(-r L) * (exp(r T) - 1) > C`, and it is worth doing always or never: not where calls are so frequent that they
keep the prefix themselves, nor where they are rare. Of measured times the best `n` is found by trying all.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from numbers import Real
from typing import Any, NamedTuple

from fastlane.errors import ConfigurationError

_HOUR_S = 3600.0
_MILLION = 1e6
# By so much of the lifetime a request comes before its end, because providers say "about", and requests take time.
_MARGIN = 0.1
# As many as can matter: nobody keeps a prefix for longer than this many lifetimes of silence.
_MOST_REQUESTS = 10_000


class Prices(NamedTuple):
    """What a million tokens cost, in whatever currency."""

    input: float
    """Tokens that are neither read from the cache nor written to it."""
    cached: float
    """Tokens that are read from the cache."""
    write: float | None = None
    """Tokens that are written to the cache; None: as `input`."""
    output: float = 0.0
    """Tokens that are generated: each request that re-warms generates `output_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAlivePlan:
    """Whether to keep a prefix in the cache, how, and what that costs and saves."""

    worth: bool
    every_s: float
    """Seconds of silence after which to re-warm."""
    most_requests: int | None
    """Requests in one silence after which to let the prefix go; None: as many as it takes. 0 where it is not worth it.
    """
    cost_per_hour: float
    """What the requests cost, in the currency of the prices. Where it is not worth it: what they would have cost."""
    saves_per_hour: float
    """What calls cost less, and the worth of the time they take less; before `cost_per_hour` is taken off."""
    reason: str
    """Why, in one sentence."""

    def next_in_s(self, silence_s: float, sent: int) -> float | None:
        """Return in how many seconds the next request is due; None: not before the prefix has been used again.

        `silence_s` have passed since the prefix was used last, by a call or by a request of these, of which `sent`
        have been sent since the last call.
        """
        if not self.worth or (self.most_requests is not None and sent >= self.most_requests):
            return None
        return max(0.0, self.every_s - silence_s)


def plan_keep_alive(
    *,
    prefix_tokens: int,
    lifetime_s: float,
    prices: Prices,
    calls_per_hour: float | None = None,
    gaps_s: Sequence[float] | None = None,
    seconds_per_uncached_token: float = 0.0,
    value_per_s: float = 0.0,
    output_tokens: int = 1,
) -> KeepAlivePlan:
    """Return whether to re-warm a prefix of `prefix_tokens` that a provider keeps for `lifetime_s` after its last use.

    How often calls with it come is given as `calls_per_hour`, which are taken to come at random, or as `gaps_s`, times
    between calls that were measured, which say more: real calls come in bursts. `seconds_per_uncached_token` is how
    much longer a call takes for each token that is not cached, and `value_per_s` what such a second is worth, in the
    currency of the prices. The module says how it is computed. Raises ConfigurationError for what cannot be.
    """
    _check(prefix_tokens, lifetime_s, prices, calls_per_hour, gaps_s, seconds_per_uncached_token, value_per_s)
    every_s = lifetime_s * (1 - _MARGIN)
    write = prices.input if prices.write is None else prices.write
    request = (prefix_tokens * prices.cached + output_tokens * prices.output) / _MILLION
    found = prefix_tokens * ((write - prices.cached) / _MILLION + seconds_per_uncached_token * value_per_s)
    most: int | None = None
    if gaps_s is not None:
        most, costs, saves, mean_s = _measured(sorted(gaps_s), every_s, lifetime_s, request, found)
    else:
        costs, saves, mean_s = _random((calls_per_hour or 0.0) / _HOUR_S, every_s, lifetime_s)
    per_hour = _HOUR_S / mean_s
    cost, saved = request * costs * per_hour, found * saves * per_hour
    worth = saved > cost
    return KeepAlivePlan(
        worth=worth,
        every_s=every_s,
        most_requests=most if worth else 0,
        cost_per_hour=cost,
        saves_per_hour=saved,
        reason=_reason(mean_s, lifetime_s, every_s, cost, saved),
    )


def _random(rate: float, every_s: float, lifetime_s: float) -> tuple[float, float, float]:
    """Requests and finds per call, and the mean time between calls, if calls come at random, and nobody gives up."""
    if rate <= 0:
        return 0.0, 0.0, math.inf
    return 1 / math.expm1(min(rate * every_s, 700.0)), math.exp(-rate * lifetime_s), 1 / rate


def _measured(
    gaps_s: list[float], every_s: float, lifetime_s: float, request: float, found: float
) -> tuple[int, float, float, float]:
    """The most requests in a silence that pay best, at least one, and then the same for measured times."""
    count = len(gaps_s)
    most = min(max(1, math.ceil((gaps_s[-1] - lifetime_s) / every_s)), _MOST_REQUESTS)
    longer = [count - bisect_right(gaps_s, number * every_s) for number in range(1, most + 1)]
    sent = list(accumulate(longer))
    # Silences that end in time without any request.
    short = bisect_right(gaps_s, lifetime_s)
    kept = [bisect_right(gaps_s, lifetime_s + number * every_s) - short for number in range(1, most + 1)]
    best = max(range(most), key=lambda at: found * kept[at] - request * sent[at])
    return best + 1, sent[best] / count, kept[best] / count, max(math.fsum(gaps_s) / count, 1e-9)


def _reason(mean_s: float, lifetime_s: float, every_s: float, cost: float, saved: float) -> str:
    if math.isinf(mean_s):
        return "no calls are to come"
    return (
        f"a call comes every {mean_s:,.0f} s on average, the prefix is kept for {lifetime_s:,.0f} s, and re-warming it "
        f"after every {every_s:,.0f} s of silence costs {cost:.3g} an hour and saves {saved:.3g}"
    )


def _check(
    prefix_tokens: int,
    lifetime_s: float,
    prices: Prices,
    calls_per_hour: float | None,
    gaps_s: Sequence[float] | None,
    seconds_per_uncached_token: float,
    value_per_s: float,
) -> None:
    if (calls_per_hour is None) == (gaps_s is None):
        raise ConfigurationError(
            "plan_keep_alive() takes either calls_per_hour=... or gaps_s=..., the times between calls: give one of them"
        )
    if not isinstance(prices, Prices):
        raise ConfigurationError(
            f"plan_keep_alive(prices=...) takes fastlane.Prices(input=..., cached=...), got {type(prices).__name__}"
        )
    amounts = {
        "prefix_tokens": prefix_tokens,
        "calls_per_hour": calls_per_hour or 0.0,
        "seconds_per_uncached_token": seconds_per_uncached_token,
        "value_per_s": value_per_s,
        **{f"prices.{name}": value or 0.0 for name, value in prices._asdict().items()},
    }
    for name, value in amounts.items():
        if not _is_amount(value):
            raise ConfigurationError(f"plan_keep_alive({name}=...) takes a number from 0, got {value!r:.80}")
    if not _is_amount(lifetime_s) or lifetime_s <= 0:
        raise ConfigurationError(f"plan_keep_alive(lifetime_s=...) takes seconds above 0, got {lifetime_s!r:.80}")
    if gaps_s is not None and (not gaps_s or not all(map(_is_amount, gaps_s))):
        raise ConfigurationError(
            "plan_keep_alive(gaps_s=...) takes at least one time between calls, in seconds from 0: got "
            + ("none" if not gaps_s else "another number")
        )


def _is_amount(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value) and float(value) >= 0
