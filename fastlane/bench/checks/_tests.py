"""The few tests that checks need to tell a difference between arms from chance."""

from __future__ import annotations

import math
from collections.abc import Sequence


def fisher(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return the two-sided p-value of Fisher's exact test: `first` of `of_first` against `second` of `of_second`.

    Exact for any counts, where a test of two proportions needs five of each.
    """
    from scipy.stats import fisher_exact

    return float(fisher_exact([[first, of_first - first], [second, of_second - second]]).pvalue)


def difference_of_shares(first: int, of_first: int, second: int, of_second: int) -> tuple[float, float]:
    """Return the 95 % interval of `second / of_second - first / of_first`, both of at least one request.

    Newcombe's method 10 ("Interval estimation for the difference between independent proportions", Statistics in
    Medicine 17, 1998), from the Wilson intervals of both.
    """
    from scipy.stats import binomtest

    share, second_share = first / of_first, second / of_second
    low, high = binomtest(first, of_first).proportion_ci(method="wilson")
    second_low, second_high = binomtest(second, of_second).proportion_ci(method="wilson")
    difference = second_share - share
    return (
        max(-1.0, difference - math.hypot(second_share - second_low, high - share)),
        min(1.0, difference + math.hypot(second_high - second_share, share - low)),
    )


def same_distribution(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of the two-sample Kolmogorov-Smirnov test. 1.0 where one of the two has less than two values.

    Conservative where values repeat, as counts of tokens do.
    """
    if min(len(first), len(second)) < 2:
        return 1.0
    from scipy.stats import ks_2samp

    return float(ks_2samp(first, second, method="asymp").pvalue)
