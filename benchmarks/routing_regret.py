"""What `Routing` decides, against an oracle, in a simulated fleet of eight models that drift, jump, have fits and fail.

The fleet (`benchmarks/_fleet.py` says all of it) lives for twenty minutes; the requests are those of a chat service,
recorded where the record is, else made up with the same quantiles, some three a second. Each way to choose drives the
same calls with the same random numbers: what call n would take at each model depends neither on who asks nor on what
was asked before. It learns of an attempt when that has ended; ours is also told when an attempt begins and when its
first token is there, as the client tells it. An attempt that fails, or that has no first token in time, is followed by
one at the next model of the ranking, and its time counts. Beside ours: an oracle that knows every distribution of the
moment (not the draws) and takes the least mean; always the best by the catalog's figures; the least mean of the last
ten answers' times. Regret: mean end-to-end time over the oracle's, less 1.

Then, one call after the other in a fleet that only drifts, the model that is mostly chosen becomes slow (first token
three times, pace half). `left_median_calls`, `left_p95_calls`: of each change, the calls until at most one of the next
ten goes to the slow model in vain.

Inside: simulated seconds of the calls, failed attempts too. Outside: CPU time, which `routing_cost` takes, connections
and uploads, which are alike for all. Our own constants were chosen by fleets of the seeds 0 to 149; what is reported is
of the seeds from 1,000 on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks._fleet import MODELS, Fleet, Request, requests
from benchmarks._report import Figure, Report
from benchmarks._routers import ByPrior, Drive, LastTen, Oracle, Ours, Router

# Other seeds than those which it was looked at with while it was made.
_FIRST_SEED = 1_000
_SEEDS, _QUICK_SEEDS = 40, 16
_TRIALS, _QUICK_TRIALS = 200, 60
_WARM_CALLS, _WATCHED_CALLS = 200, 500
_WINDOW, _ENOUGH = 10, 0.1

_ROUTERS: dict[str, Callable[[Fleet], Router]] = {"ours": Ours, "best_by_prior": ByPrior, "last_ten": LastTen}


def _mean_s(drive: Drive) -> float:
    return float(np.mean([drive.call(number, one.at_s) for number, one in enumerate(drive.fleet.requests)]))


def _regrets(seeds: Sequence[int], made: list[Request]) -> dict[str, list[float]]:
    regrets: dict[str, list[float]] = {name: [] for name in _ROUTERS}
    for seed in seeds:
        fleet = Fleet(seed, made)
        oracle_s = _mean_s(Drive(fleet, Oracle(fleet)))
        for name, router in _ROUTERS.items():
            regrets[name].append(_mean_s(Drive(fleet, router(fleet))) / oracle_s - 1)
    return regrets


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the mean, from resampled seeds."""
    rng = np.random.default_rng(0)
    means = rng.choice(np.asarray(values), size=(2_000, len(values))).mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _excess(fleet: Fleet, chosen: int, number: int, at_s: float) -> float:
    """By how much the mean time there is above the best."""
    best = min(fleet.expected_s(index, number, at_s) for index in range(len(MODELS)))
    return fleet.expected_s(chosen, number, at_s) / best - 1.0


def _left(seed: int, made: list[Request]) -> int:
    """Calls until at most one of the next ten goes to a model that has become slow though another is a tenth faster."""
    rng = np.random.default_rng(seed)
    picked = [made[index] for index in rng.integers(len(made), size=_WARM_CALLS + _WATCHED_CALLS)]
    fleet = Fleet(seed, picked, steady=True)
    drive = Drive(fleet, Ours(fleet, seed))
    at_s, slow = 0.0, None
    wrong: list[bool] = []
    for number in range(len(picked)):
        if number == _WARM_CALLS:
            # The model of most of the last fifty calls.
            slow = int(np.bincount(drive.first_choices[-50:]).argmax())
            fleet.change(slow, at_s, 3.0, 0.5)
        began_s, at_s = at_s, at_s + drive.call(number, at_s) + 0.1
        if slow is not None:
            chosen = drive.first_choices[-1]
            wrong.append(chosen == slow and _excess(fleet, chosen, number, began_s) > _ENOUGH)
    starts = range(len(wrong) - _WINDOW)
    return next((start for start in starts if sum(wrong[start : start + _WINDOW]) <= 1), len(wrong))


def measure(quick: bool) -> Report:
    """Drive the fleets, then change them."""
    made, source = requests()
    seeds = range(_FIRST_SEED, _FIRST_SEED + (_QUICK_SEEDS if quick else _SEEDS))
    regrets = _regrets(seeds, made)
    trials = range(_FIRST_SEED, _FIRST_SEED + (_QUICK_TRIALS if quick else _TRIALS))
    figures: dict[str, Figure] = {f"{name}_regret_ratio": float(np.mean(values)) for name, values in regrets.items()}
    low, high = _interval(regrets["ours"])
    figures |= {
        "ours_regret_low_ratio": low,
        "ours_regret_high_ratio": high,
        "ours_to_last_ten_regret_ratio": float(np.mean(regrets["ours"]) / np.mean(regrets["last_ten"])),
    }
    left = [_left(seed, made) for seed in trials]
    for name, share in (("median", 0.5), ("p95", 0.95)):
        figures[f"left_{name}_calls"] = float(np.quantile(left, share, method="higher"))
    return Report(
        figures=figures,
        reach={
            "ours_regret_ratio": "<= 0.1",
            "ours_to_last_ten_regret_ratio": f"<= {1 / 3}",
            "left_p95_calls": "<= 20",
        },
        conditions={
            "fleets": f"{len(seeds)} seeds from {_FIRST_SEED} on, 8 models, 20 minutes each",
            "requests": f"{len(made):,}, {source}",
            "changes": len(trials),
        },
    )
