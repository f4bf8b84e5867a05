"""The few tests that checks need to tell a difference between arms from chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def fisher(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return the two-sided p-value of Fisher's exact test: `first` of `of_first` against `second` of `of_second`.

    The sum of the probabilities of all tables with the same margins that are no likelier than this one. Exact for any
    counts, where a test of two proportions needs five of each.
    """
    drawn, whole = first + second, of_first + of_second
    if not of_first or not of_second or drawn in (0, whole):
        return 1.0
    counts = range(max(0, drawn - of_second), min(drawn, of_first) + 1)
    logs = {count: _choose(of_first, count) + _choose(of_second, drawn - count) for count in counts}
    total = _choose(whole, drawn)
    # A tolerance of 1e-7, because equally likely tables differ in their last digits.
    return min(1.0, sum(math.exp(log - total) for log in logs.values() if log <= logs[first] + 1e-7))


def difference_of_shares(first: int, of_first: int, second: int, of_second: int) -> tuple[float, float]:
    """Return the 95 % interval of `second / of_second - first / of_first`, both of at least one request.

    Newcombe's method 10 ("Interval estimation for the difference between independent proportions", Statistics in
    Medicine 17, 1998), from the Wilson intervals of both.
    """
    (low, share, high), (second_low, second_share, second_high) = _wilson(first, of_first), _wilson(second, of_second)
    difference = second_share - share
    return (
        max(-1.0, difference - math.hypot(second_share - second_low, high - share)),
        min(1.0, difference + math.hypot(second_high - second_share, share - low)),
    )


def _wilson(count: int, of: int) -> tuple[float, float, float]:
    """Return a share between the bounds of its 95 % interval."""
    share, z = count / of, 1.959964
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    whole = 1 + z * z / of
    return min(share, (middle - half) / whole), share, max(share, (middle + half) / whole)


def _choose(of: int, count: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)


def same_distribution(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of the two-sample Kolmogorov-Smirnov test, by its asymptotic distribution.

    Conservative where values repeat, as counts of tokens do. 1.0 where one of the two has no values.
    """
    if not first or not second:
        return 1.0
    left, right = np.sort(np.asarray(first, dtype=float)), np.sort(np.asarray(second, dtype=float))
    every = np.concatenate((left, right))
    distance = np.abs(
        np.searchsorted(left, every, side="right") / len(left)
        - np.searchsorted(right, every, side="right") / len(right)
    ).max()
    # Stephens' correction makes the limit good from a handful of values on.
    root = math.sqrt(len(left) * len(right) / (len(left) + len(right)))
    scaled = float(distance) * (root + 0.12 + 0.11 / root)
    if scaled < 0.2:  # The series converges too slowly there, to 1.
        return 1.0
    terms = (2 * (-1) ** (term - 1) * math.exp(-2 * (term * scaled) ** 2) for term in range(1, 101))
    return min(1.0, max(0.0, math.fsum(terms)))
