"""What the best order of sending could leave a flood, if interactive calls are to be nearly as fast as alone."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

_DRAWS = 20_000
_QUARTILE = 0.6744897501960817


class Bound(NamedTuple):
    """What becomes of both sides."""

    ratio: float
    """The 95th percentile of the interactive calls' time to first token against that of calls which never wait."""
    share: float
    """How much of the places' time that interactive calls leave is the flood's."""


def best(places: int, arrivals_per_s: float, quartiles_s: tuple[float, float], decode_s: float, most: float) -> Bound:
    """The largest share of a policy whose ratio is at most `most`; where none is, that of the smallest ratio.

    The policy knows the places and the flood never ends; it sends of the flood while more than `r` places are free, and
    hands over in no time: of policies without knowledge of the future a threshold is the best (Ramjee, Towsley and
    Nagarajan, "On optimal call admission control in cellular networks", 1997). Calls under way are then a
    birth-death process of `places - r` and more, taking services for exponential: an interactive call that finds all
    places taken waits for as many calls to be over as there are before it, itself included. `quartiles_s`: the lower
    and the upper one of log-normal first tokens.
    """
    middle = math.log(quartiles_s[0] * quartiles_s[1]) / 2
    sigma = math.log(quartiles_s[1] / quartiles_s[0]) / 2 / _QUARTILE
    service_s = math.exp(middle + sigma * sigma / 2) + decode_s
    load = arrivals_per_s * service_s
    found = []
    for kept in range(4 * places + 1):
        # The more is kept, the less is left.
        found.append(_kept(places, kept / 4, load, service_s, middle, sigma))
        if found[-1].ratio <= most:
            return found[-1]
    return min(found)


def _kept(places: int, kept: float, load: float, service_s: float, middle: float, sigma: float) -> Bound:
    """With so many places kept free; a fraction of one for that fraction of the time."""
    states: dict[int, float] = {}
    for whole, part in ((math.floor(kept), 1 - kept % 1), (math.ceil(kept), kept % 1)):
        lowest = places - whole
        weights = [1.0]
        for state in range(lowest + 1, lowest + 50 * places + 50):
            weights.append(weights[-1] * load / min(state, places))
        for state, weight in enumerate(weights, lowest):
            states[state] = states.get(state, 0.0) + part * weight / sum(weights)
    random = Random(0)
    alone, waited = [], []
    drawn = random.choices(list(states), list(states.values()), k=_DRAWS)
    for state in drawn:
        first_s = random.lognormvariate(middle, sigma)
        alone.append(first_s)
        before = state - places + 1
        waited.append(first_s + (random.gammavariate(before, service_s / places) if before > 0 else 0.0))
    ratio = sorted(waited)[int(0.95 * _DRAWS)] / sorted(alone)[int(0.95 * _DRAWS)]
    busy = sum(min(state, places) * share for state, share in states.items())
    return Bound(ratio, (busy - load) / (places - load))
