"""What `Routing` decides, against an oracle, in a simulated fleet of eight models that drift, jump, have fits and fail.

The fleet (`benchmarks/_fleet.py` says all of it) lives for twenty minutes; the requests are those of a chat service,
recorded where the record is, else made up with the same quantiles. Each way to choose drives the same calls with the
same random numbers: what call n would take at each model depends neither on who asks nor on what was asked before. It
learns of an attempt when that has ended; ours is also told when an attempt begins and when its first token is there,
as the client tells it. An attempt that fails, or that has no first token in time, is followed by one at the next model
of the ranking, and its time counts. Beside ours: an oracle that knows every distribution of the moment (not the draws)
and takes the least mean; round-robin; always the best by the catalog's figures; the least mean of the last ten
answers' times, as it is and with 2 % of the calls at random. Regret: mean end-to-end time over the oracle's, less 1.

Twice: with the requests as they come, some three a second, so that many are under way ("busy"), and with one every
five seconds ("sparse"), where little is ever known. Then recovery, one call after the other in a fleet that only
drifts: the model that is mostly chosen becomes slow (first token three times, pace half). Counted are the calls until
the next ten, over all changes, are sent where the mean is at most 10 % above the best (`recovery_calls`), and of each
by itself until at most one of the next ten goes to the slow model in vain (`left_..._calls`). And the reverse: a model
that was four times as slow as usual becomes the fastest, and the calls are counted until it is first asked again,
which is left to exploring (`found_again_..._calls`; 500 where it was not). Inside: simulated seconds of the calls,
failed attempts too. Outside: CPU time, which `routing_cost` takes, connections and uploads, which are alike for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks._fleet import MODELS, SECONDS, Fleet, Request, requests
from benchmarks._report import Figure, Reach, Report, main
from benchmarks._routers import ByPrior, Drive, LastTen, Oracle, Ours, RoundRobin, Router

# Other seeds than those which it was looked at with while it was made.
_FIRST_SEED = 1_000
_SEEDS, _QUICK_SEEDS = 40, 16
_TRIALS, _QUICK_TRIALS = 200, 60
_SPARSE_S = 5.0
_WARM_CALLS, _WATCHED_CALLS = 200, 500
_WINDOW, _ENOUGH = 10, 0.1

ROUTERS: dict[str, Callable[[Fleet], Router]] = {
    "ours": Ours,
    "round_robin": RoundRobin,
    "best_by_prior": ByPrior,
    "last_ten": LastTen,
    "last_ten_exploring": lambda fleet: LastTen(fleet, 0.02),
}


def _mean_s(fleet: Fleet, router: Router, times: Sequence[float]) -> float:
    drive = Drive(fleet, router)
    return float(np.mean([drive.call(number, at_s) for number, at_s in enumerate(times)]))


def _regrets(seeds: Sequence[int], made: list[Request], times: Sequence[float]) -> dict[str, list[float]]:
    regrets: dict[str, list[float]] = {name: [] for name in ROUTERS}
    for seed in seeds:
        fleet = Fleet(seed, made)
        oracle_s = _mean_s(fleet, Oracle(fleet), times)
        for name, router in ROUTERS.items():
            regrets[name].append(_mean_s(fleet, router(fleet), times) / oracle_s - 1)
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


class _Change(NamedTuple):
    """One change, and the calls after it."""

    changed: int
    before: float
    """Excess of the fifty calls before it."""
    chosen: list[int]
    excess: list[float]


def _changed(seed: int, made: list[Request], *, back: bool) -> _Change:
    rng = np.random.default_rng(seed)
    picked = [made[index] for index in rng.integers(len(made), size=_WARM_CALLS + _WATCHED_CALLS)]
    fleet = Fleet(seed, picked, steady=True)
    changed = int(rng.integers(len(MODELS)))
    if back:
        fleet.change(changed, 0, 4.0, 0.5)
    drive = Drive(fleet, Ours(fleet, seed))
    at_s = 0.0
    excess: list[float] = []
    for number in range(len(picked)):
        if number == _WARM_CALLS and back:
            fleet.change(changed, at_s, 1 / 12, 4.0)
        elif number == _WARM_CALLS:
            changed = int(np.bincount(drive.first_choices[-50:]).argmax())
            fleet.change(changed, at_s, 3.0, 0.5)
        taken_s = drive.call(number, at_s)
        excess.append(_excess(fleet, drive.first_choices[-1], number, at_s))
        at_s += taken_s + 0.1
    return _Change(
        changed,
        float(np.mean(excess[_WARM_CALLS - 50 : _WARM_CALLS])),
        drive.first_choices[_WARM_CALLS:],
        excess[_WARM_CALLS:],
    )


def _recovery(changes: Sequence[_Change]) -> int:
    mean = np.mean([change.excess for change in changes], axis=0)
    starts = range(len(mean) - _WINDOW)
    return next((start for start in starts if mean[start : start + _WINDOW].mean() <= _ENOUGH), len(mean))


def _left(change: _Change) -> int:
    """Calls until at most one of the next ten goes to the slow model though another one is a tenth faster."""
    wrong = [
        model == change.changed and excess > _ENOUGH for model, excess in zip(change.chosen, change.excess, strict=True)
    ]
    starts = range(len(wrong) - _WINDOW)
    return next((start for start in starts if sum(wrong[start : start + _WINDOW]) <= 1), len(wrong))


def _found_again(change: _Change) -> int:
    return next((number for number, model in enumerate(change.chosen) if model == change.changed), _WATCHED_CALLS)


def _quantile(values: Sequence[int], quantile: float) -> float:
    return float(np.quantile(values, quantile, method="higher"))


def measure(quick: bool) -> Report:
    """Drive the fleets, then change them."""
    made, source = requests()
    seeds = range(_FIRST_SEED, _FIRST_SEED + (_QUICK_SEEDS if quick else _SEEDS))
    busy = _regrets(seeds, made, [request.at_s for request in made])
    sparse = _regrets(seeds, made, [number * _SPARSE_S for number in range(int(SECONDS / _SPARSE_S))])
    trials = range(_FIRST_SEED, _FIRST_SEED + (_QUICK_TRIALS if quick else _TRIALS))
    slower = [_changed(seed, made, back=False) for seed in trials]
    left = [_left(change) for change in slower]
    found = [_found_again(_changed(seed, made, back=True)) for seed in trials]
    figures: dict[str, Figure] = {f"{name}_regret_ratio": float(np.mean(values)) for name, values in busy.items()}
    low, high = _interval(busy["ours"])
    figures |= {"ours_regret_low_ratio": low, "ours_regret_high_ratio": high}
    for other in ("last_ten", "last_ten_exploring"):
        figures[f"ours_to_{other}_regret_ratio"] = float(np.mean(busy["ours"]) / np.mean(busy[other]))
    figures |= {f"{name}_sparse_regret_ratio": float(np.mean(values)) for name, values in sparse.items()}
    figures |= {
        "before_change_excess_ratio": float(np.mean([change.before for change in slower])),
        "recovery_calls": _recovery(slower),
        "left_median_calls": _quantile(left, 0.5),
        "left_p95_calls": _quantile(left, 0.95),
        "found_again_median_calls": _quantile(found, 0.5),
        "found_again_p95_calls": _quantile(found, 0.95),
    }
    return Report(
        figures=figures,
        reach=(
            Reach(figure="ours_regret_ratio", op="<=", target=0.10),
            Reach(figure="ours_to_last_ten_regret_ratio", op="<=", target=1 / 3),
            Reach(figure="recovery_calls", op="<=", target=20),
            Reach(figure="left_p95_calls", op="<=", target=20),
        ),
        conditions={
            "fleets": f"{len(seeds)} seeds from {_FIRST_SEED} on, 8 models, 20 minutes each",
            "requests": f"{len(made):,}, {source}",
            "changes": f"{len(trials)} of each kind",
            "interval": "ours_regret_low_ratio to ours_regret_high_ratio: 95 % by resampled seeds",
        },
    )


if __name__ == "__main__":
    main("routing_regret", __doc__, measure)
