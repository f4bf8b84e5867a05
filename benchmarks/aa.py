"""Two arms that are the same, looked at every ten pairs: how often a difference is said where there is none.

Simulated: 1,000 experiments of 1,000 random-order pairs against a provider that drifts, is noisy and has a tail (as
`benchmarks/_swaying.py` says). Really run: 30 experiments of the engine, an arm and its copy, against the embedded
provider, whose time to the first token sways in the same way, request by request. Of each series every rule is asked
after 20, 30, 40 … pairs, and a difference said at any of these looks is a false verdict: of the confidence sequence
(`sequence_…`) and, to show that the question is hard, of an interval made for a single look (`naive_…`). Once, at the
end, the report's interval is asked (`report_…`: Hodges-Lehmann, which inverts Wilcoxon's signed-rank test). Shares have
their 95 % intervals by Wilson beside them. `block_false_share` is what running one arm and then the other would have
said, by a rank test, of the simulated provider.

Inside: the time to the first token as the caller sees it: for simulated requests the number itself, for real ones all
that the client, the engine and the machine add. Outside: each arm process's first request and its warm-up.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import mannwhitneyu

from benchmarks._report import Figure, Report
from benchmarks._swaying import (
    METRIC,
    NOISE,
    TAIL,
    TAIL_SHARE,
    Looked,
    drift,
    log_ratios_of,
    look,
    plain,
    run,
    share,
    simulated,
)
from fastlane.bench import Arm
from fastlane.bench.findings import find
from fastlane.bench.statistics import signed_rank_p

_PAIRS = 1_000


def _rules(name: str, looked: list[Looked]) -> dict[str, float]:
    return {
        **share(f"{name}_sequence_false", (each.sequence is not None for each in looked)),
        **share(f"{name}_naive_false", (each.naive is not None for each in looked)),
    }


def _simulated(experiments: int) -> dict[str, Figure]:
    series = [simulated(1.0, _PAIRS, seed) for seed in range(experiments)]
    return {
        **_rules("simulated", [look(each.tolist()) for each in series]),
        **share("simulated_report_false", (signed_rank_p(each) <= 0.05 for each in series)),
        **share("simulated_block_false", (_block_after_block(seed) for seed in range(experiments))),
    }


def _block_after_block(seed: int, requests: int = 200) -> bool:
    """Whether a rank test finds a difference between 200 requests and the 200 after them."""
    random = np.random.default_rng((1, seed))
    logs = drift(2 * requests, random) + random.normal(0, NOISE, 2 * requests)
    logs += (random.random(2 * requests) < TAIL_SHARE) * random.exponential(TAIL, 2 * requests)
    return bool(mannwhitneyu(logs[:requests], logs[requests:]).pvalue <= 0.05)


def _really_run(experiments: int, pairs_each: int) -> dict[str, Figure]:
    looked, said, pairs, failed = [], [], [], 0
    for seed in range(experiments):
        recorded = run([Arm(name="baseline", client=plain)], pairs_each, again=True, seed=seed)
        again = recorded.header.copies[0]
        looked.append(look(log_ratios_of(recorded, again.name, "baseline")))
        comparison = find(recorded, seed=seed).cells[0].comparison(again.name, METRIC)
        if comparison is None:
            raise RuntimeError("the run was to compare the copy with the reference")
        typical = comparison.typical
        if typical is None or typical.low is None or typical.high is None:
            raise RuntimeError("as many pairs were to have an interval")
        said.append(typical.low > 1 or typical.high < 1)
        pairs.append(comparison.pairs)
        failed += sum(sample.error is not None for sample in recorded.measured())
    return {
        **_rules("run", looked),
        **share("run_report_false", said),
        "run_pairs_each": float(np.median(pairs)),
        "run_failed_requests": failed,
    }


def measure(quick: bool) -> Report:
    """Simulate, and run."""
    simulations, runs, pairs = (200, 2, 60) if quick else (1_000, 30, 300)
    return Report(
        figures={**_simulated(simulations), **_really_run(runs, pairs)},
        reach={"simulated_sequence_false_share": "<= 0.05", "run_sequence_false_share": "<= 0.05"},
        conditions={"simulated": simulations, "run": runs, "run_pairs_each_meant": pairs},
    )
