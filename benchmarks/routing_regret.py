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
five seconds ("sparse"), where little is ever known. Busy also without being told of beginnings and first tokens
(`ours_untold_regret_ratio`). Of ours are counted the attempts that were given up for want of a first token, and how
many of them would have had one: their answers were alive, and are paid for twice (`cut_off_alive_ratio`: of those that
were given up; `cut_off_calls_ratio`: of all calls).

Then recovery, one call after the other in a fleet that only drifts: the model that is mostly chosen becomes slow (first
token three times, pace half). It is read in three ways:

- `recovery_each_median_calls`, `recovery_each_p95_calls`, the strict one: of each change by itself, the calls until
  nine of the next ten are sent where the mean is at most 10 % above the best; `before_strict_ratio` is the share of
  tens before the change of which that was so, which is as much as can be hoped for;
- `recovery_mean_calls`: the calls until the next ten, in the mean over all changes, are at most 10 % above the best;
- `left_median_calls`, `left_p95_calls`: of each change, the calls until at most one of the next ten goes to the slow
  model in vain.

And back: the model that is mostly chosen is four times as slow, at half its pace, for 100 or for 300 calls, and then as
before. Counted are the calls until it is asked again (`found_again_100_..._calls`, `found_again_300_..._calls`), and
for one that was so from the first call on, and then becomes three times as fast as usual, at twice its pace
(`found_first_..._calls`); 500 where it was not. That is left to exploring.

Inside: simulated seconds of the calls, failed attempts too. Outside: CPU time, which `routing_cost` takes, connections
and uploads, which are alike for all. Our own constants were chosen by fleets of the seeds 0 to 149, the fleet's were
left as they were. What is reported is of the seeds from 1,000 on. Runs of these were looked at between (one of them
showed that recovery in the mean had become slower), but no value was chosen by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks._fleet import MODELS, SECONDS, Fleet, Request, requests
from benchmarks._report import Figure, Reach, Report
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
    "ours_untold": lambda fleet: Ours(fleet, told=False),
    "round_robin": RoundRobin,
    "best_by_prior": ByPrior,
    "last_ten": LastTen,
    "last_ten_exploring": lambda fleet: LastTen(fleet, 0.02),
}


class _Driven(NamedTuple):
    """What came of driving many fleets."""

    regrets: dict[str, list[float]]
    late: int
    """Attempts of ours that were given up for want of a first token."""
    cut_off: int
    calls: int


def _mean_s(drive: Drive, times: Sequence[float]) -> float:
    return float(np.mean([drive.call(number, at_s) for number, at_s in enumerate(times)]))


def _driven(seeds: Sequence[int], made: list[Request], times: Sequence[float]) -> _Driven:
    regrets: dict[str, list[float]] = {name: [] for name in ROUTERS}
    late = cut_off = 0
    for seed in seeds:
        fleet = Fleet(seed, made)
        oracle_s = _mean_s(Drive(fleet, Oracle(fleet)), times)
        for name, router in ROUTERS.items():
            drive = Drive(fleet, router(fleet))
            regrets[name].append(_mean_s(drive, times) / oracle_s - 1)
            if name == "ours":
                late += drive.late
                cut_off += drive.cut_off
    return _Driven(regrets, late, cut_off, len(seeds) * len(times))


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
    """One change, and the calls around it."""

    changed: int
    before: list[float]
    """Excess of the fifty calls before it."""
    chosen: list[int]
    """Of the calls after it."""
    excess: list[float]


class _Steady:
    """One call after the other, in a fleet that only drifts."""

    def __init__(self, seed: int, made: list[Request], calls: int) -> None:
        rng = np.random.default_rng(seed)
        picked = [made[index] for index in rng.integers(len(made), size=calls)]
        self.fleet = Fleet(seed, picked, steady=True)
        self.any = int(rng.integers(len(MODELS)))
        self.drive = Drive(self.fleet, Ours(self.fleet, seed))
        self.at_s = 0.0
        self.excess: list[float] = []

    def run(self, calls: int) -> None:
        """Send some more."""
        for number in range(len(self.excess), len(self.excess) + calls):
            taken_s = self.drive.call(number, self.at_s)
            self.excess.append(_excess(self.fleet, self.drive.first_choices[-1], number, self.at_s))
            self.at_s += taken_s + 0.1

    def change(self, changed: int, first: float, pace: float) -> None:
        """From now on, multiply what a model does."""
        self.fleet.change(changed, self.at_s, first, pace)

    @property
    def favourite(self) -> int:
        """The model of most of the last fifty calls."""
        return int(np.bincount(self.drive.first_choices[-50:]).argmax())


def _slower(seed: int, made: list[Request]) -> _Change:
    steady = _Steady(seed, made, _WARM_CALLS + _WATCHED_CALLS)
    steady.run(_WARM_CALLS)
    changed, before = steady.favourite, steady.excess[-50:]
    steady.change(changed, 3.0, 0.5)
    steady.run(_WATCHED_CALLS)
    return _Change(changed, before, steady.drive.first_choices[_WARM_CALLS:], steady.excess[_WARM_CALLS:])


def _found_again(seed: int, made: list[Request], spell: int | None) -> int:
    """Calls until a model that was slow for `spell` calls (None: from the first one on) is asked again."""
    slow = _WARM_CALLS if spell is None else spell
    warm = 0 if spell is None else _WARM_CALLS
    steady = _Steady(seed, made, warm + slow + _WATCHED_CALLS)
    steady.run(warm)
    changed = steady.any if spell is None else steady.favourite
    steady.change(changed, 4.0, 0.5)
    steady.run(slow)
    if spell is None:
        steady.change(changed, 1 / 12, 4.0)
    else:
        steady.change(changed, 1 / 4, 2.0)
    steady.run(_WATCHED_CALLS)
    after = steady.drive.first_choices[warm + slow :]
    return next((number for number, model in enumerate(after) if model == changed), _WATCHED_CALLS)


def _first(count: int, holds: Callable[[int], bool]) -> int:
    return next((start for start in range(count - _WINDOW) if holds(start)), count)


def _is_good(excess: Sequence[float], start: int) -> bool:
    """Whether nine of the ten calls from there on went where it is at most a tenth slower than at the best."""
    return sum(one <= _ENOUGH for one in excess[start : start + _WINDOW]) >= _WINDOW - 1


def _recovered(change: _Change) -> int:
    return _first(len(change.excess), lambda start: _is_good(change.excess, start))


def _recovered_in_the_mean(changes: Sequence[_Change]) -> int:
    mean = np.mean([change.excess for change in changes], axis=0)
    return _first(len(mean), lambda start: bool(mean[start : start + _WINDOW].mean() <= _ENOUGH))


def _left(change: _Change) -> int:
    """Calls until at most one of the next ten goes to the slow model though another one is a tenth faster."""
    wrong = [
        model == change.changed and excess > _ENOUGH for model, excess in zip(change.chosen, change.excess, strict=True)
    ]
    return _first(len(wrong), lambda start: sum(wrong[start : start + _WINDOW]) <= 1)


def _quantiles(name: str, values: Sequence[int]) -> dict[str, Figure]:
    median, most = (float(np.quantile(values, quantile, method="higher")) for quantile in (0.5, 0.95))
    return {f"{name}_median_calls": median, f"{name}_p95_calls": most}


def measure(quick: bool) -> Report:
    """Drive the fleets, then change them."""
    made, source = requests()
    seeds = range(_FIRST_SEED, _FIRST_SEED + (_QUICK_SEEDS if quick else _SEEDS))
    driven = _driven(seeds, made, [request.at_s for request in made])
    busy = driven.regrets
    sparse = _driven(seeds, made, [number * _SPARSE_S for number in range(int(SECONDS / _SPARSE_S))]).regrets
    trials = range(_FIRST_SEED, _FIRST_SEED + (_QUICK_TRIALS if quick else _TRIALS))
    slower = [_slower(seed, made) for seed in trials]
    before = [_is_good(change.before, start) for change in slower for start in range(50 - _WINDOW)]
    figures: dict[str, Figure] = {f"{name}_regret_ratio": float(np.mean(values)) for name, values in busy.items()}
    low, high = _interval(busy["ours"])
    figures |= {"ours_regret_low_ratio": low, "ours_regret_high_ratio": high}
    for other in ("last_ten", "last_ten_exploring"):
        figures[f"ours_to_{other}_regret_ratio"] = float(np.mean(busy["ours"]) / np.mean(busy[other]))
    figures |= {f"{name}_sparse_regret_ratio": float(np.mean(values)) for name, values in sparse.items()}
    figures |= {
        "cut_off_alive_ratio": driven.cut_off / driven.late if driven.late else 0.0,
        "cut_off_calls_ratio": driven.cut_off / driven.calls,
        "before_change_excess_ratio": float(np.mean([change.before for change in slower])),
        "before_strict_ratio": float(np.mean(before)),
    }
    figures |= _quantiles("recovery_each", [_recovered(change) for change in slower])
    figures["recovery_mean_calls"] = _recovered_in_the_mean(slower)
    figures |= _quantiles("left", [_left(change) for change in slower])
    for name, spell in (("found_again_100", 100), ("found_again_300", 300), ("found_first", None)):
        figures |= _quantiles(name, [_found_again(seed, made, spell) for seed in trials])
    return Report(
        figures=figures,
        reach=(
            Reach(figure="ours_regret_ratio", op="<=", target=0.10),
            Reach(figure="ours_to_last_ten_regret_ratio", op="<=", target=1 / 3),
            Reach(figure="recovery_each_median_calls", op="<=", target=20),
            Reach(figure="recovery_mean_calls", op="<=", target=20),
            Reach(figure="left_p95_calls", op="<=", target=20),
            Reach(figure="found_again_300_median_calls", op="<=", target=150),
            Reach(figure="found_again_300_p95_calls", op="<=", target=300),
        ),
        conditions={
            "fleets": f"{len(seeds)} seeds from {_FIRST_SEED} on, 8 models, 20 minutes each",
            "requests": f"{len(made):,}, {source}",
            "changes": f"{len(trials)} of each kind",
            "interval": "ours_regret_low_ratio to ours_regret_high_ratio: 95 % by resampled seeds",
        },
    )
