"""From raw records to what they show: figures, comparisons, verdicts, and each play's part."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal, NamedTuple

import numpy as np

from . import statistics as stats
from ._formatting import change_with_interval, counted, percent
from .recorded import METRICS, ArmInfo, Key, RecordedRun, RequestMetric, Sample, errors_of, metric_named
from .statistics import Floats, Interval as Interval, Quantile as Quantile

Kind = Literal["better", "worse", "equivalent", "no difference shown", "too few pairs", "not comparable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One metric of one arm in one cell, over the requests that gave a value; in the metric's unit."""

    cell: str
    arm: str
    metric: str
    n: int
    failed: int
    """Requests that failed, or gave no value; those that failed count as slower than every other in the quantiles."""
    mean: float | None
    deviation: float | None
    minimum: float | None
    maximum: float | None
    quantiles: Mapping[float, Quantile]

    @property
    def variation(self) -> float | None:
        """The deviation as a share of the mean."""
        return self.deviation / self.mean if self.mean and self.deviation is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonVerdict:
    """What may be said of one comparison, and in words."""

    kind: Kind
    sentence: str
    """Such as "faster by 31 % [27, 35]" or "no difference shown; this run could have shown 4 %"."""
    smallest_effect: float | None = None
    """The smallest change, as a share such as 0.04, that a run of this size would have shown in 90 of 100 cases."""
    more_pairs: int | None = None
    """How many more pairs would show a change of the size seen, or equivalence; None if none would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """One arm's metric over the reference's, by the pairs in which both succeeded; ratios, below 1 is less."""

    cell: str
    arm: str
    reference: str
    metric: str
    pairs: int
    typical: Interval | None
    """By what factor a request typically changes: Hodges-Lehmann on paired log-ratios; None without pairs.

    With a probability of 95 % the intervals of all metrics and arms of the cell hold together. The verdict is read from
    this interval.
    """
    p_value: float | None
    """Of Wilcoxon's signed-rank test; of this comparison alone, not adjusted for the others of the cell."""
    quantiles: Mapping[float, Interval] = field(default_factory=dict)
    """Ratios of the arms' quantiles, intervals by a bootstrap over pairs; only shares that this n allows."""
    verdict: ComparisonVerdict
    copy: bool = False
    """Whether the arm is the reference's own copy: its interval is the instrument's band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFindings:
    """All that one cell shows; throughput, requests and errors by arm."""

    cell: str
    figures: tuple[Figures, ...]
    comparisons: tuple[ArmComparison, ...]
    throughput: Mapping[str, float]
    requests: Mapping[str, int]
    errors: Mapping[str, Mapping[str, int]]

    def of(self, arm: str, metric: str) -> Figures | None:
        """Return one arm's figures of one metric."""
        return next((each for each in self.figures if each.arm == arm and each.metric == metric), None)

    def comparison(self, arm: str, metric: str) -> ArmComparison | None:
        """Return one arm's comparison by one metric."""
        return next((each for each in self.comparisons if each.arm == arm and each.metric == metric), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one play contributes to the change between no play and all of them, in the metric's unit."""

    play: str
    alone: Interval | None
    """Change when it is added to nothing (add one in)."""
    last: Interval | None
    """Change when it is added to all others (leave one out)."""
    share: Interval
    """What is attributed to it: the mean of both, scaled so that the shares add up to the whole change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One cell's change between no play and all, divided among the plays, in the metric's unit."""

    cell: str
    metric: str
    total: Interval
    shares: tuple[Share, ...]
    interaction: Interval
    """The whole change minus the sum of what each play does alone: not 0 where plays help or hinder each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """One arm process's very first request, which no other figure includes."""

    arm: str
    time_to_first_token_ms: float | None
    api_end_to_end_ms: float | None
    error: str | None
    warm_time_to_first_token_ms: float | None = None
    """Median of the arm's requests with the same prompt that warmed up; None if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that a run shows."""

    cells: tuple[CellFindings, ...]
    attributions: tuple[Attribution, ...] = ()
    cold: tuple[Cold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmValues:
    """One arm's requests of one cell by one metric."""

    values: Mapping[Key, float] = field(default_factory=dict)
    failed: frozenset[Key] = frozenset()
    silent: int = 0
    """Requests that succeeded and gave no value."""


SHARES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
MARGIN: Final = 0.03
"""Two arms whose change, as a share, is smaller are equivalent."""
ALPHA: Final = 0.05
"""How often any interval of a cell's typical changes may miss, over all its metrics and arms."""
# Below this share of the whole change, parts that add up to nothing cannot be scaled to it.
_NOTHING: Final = 1e-9

Pair = tuple[str, str, RequestMetric, ArmValues, ArmValues]


def find(recorded: RecordedRun, *, seed: int = 0) -> Findings:
    """Return everything that a run shows; the same for the same records, and the same seed of the bootstrap.

    Only measured requests count, and arms are compared by the blocks in which both took part.
    """
    header = recorded.header
    metrics = [metric_named(name) for name in header.metrics]
    others = [metric for metric in METRICS.values() if metric not in metrics]
    compared = [arm for arm in header.arms if arm not in header.references]
    design = design_of(header.arms)
    cells: list[CellFindings] = []
    attributions: list[Attribution] = []
    for cell in (each.name for each in header.cells):
        samples = {arm.name: recorded.measured(cell, arm.name) for arm in header.arms}
        errors = {arm: errors_of(own) for arm, own in samples.items()}
        values = {
            (arm, metric.name): _values(own, errors[arm], metric)
            for metric in METRICS.values()
            for arm, own in samples.items()
        }
        # Reports by load and length show more than what arms are compared by; only comparisons are tests.
        shown = [*metrics, *(each for each in others if any(values[arm, each.name].values for arm in samples))]
        comparisons: list[ArmComparison] = []
        # The references' copies are a family of their own.
        for copy in (False, True):
            pairs = [
                (arm.name, reference, metric, values[arm.name, metric.name], values[reference, metric.name])
                for metric in metrics
                for arm in compared
                if (arm.role == "again") == copy and (reference := header.reference_of(arm.name).name)
            ]
            comparisons += compare(cell, pairs, copy=copy, seed=seed)
        cells.append(
            CellFindings(
                cell=cell,
                figures=tuple(_figures(cell, arm, each, values[arm, each.name]) for each in shown for arm in samples),
                comparisons=tuple(comparisons),
                throughput={arm: throughput(own) for arm, own in samples.items() if own},
                requests={arm: len(own) for arm, own in samples.items()},
                errors={arm: dict(Counter(failed.values()).most_common()) for arm, failed in errors.items()},
            )
        )
        if design is not None:
            found = (_attribution(cell, metric, design, values, seed) for metric in metrics)
            attributions += [each for each in found if each is not None]
    return Findings(cells=tuple(cells), attributions=tuple(attributions), cold=tuple(_cold(recorded)))


def _values(samples: Iterable[Sample], failed: Mapping[Key, str], metric: RequestMetric) -> ArmValues:
    """Return one metric of an arm's requests. A value below 0 or of no finite size is none: a clock's fault."""
    found = {sample.key: metric.value(sample) for sample in samples if sample.key not in failed}
    values = {key: float(value) for key, value in found.items() if value is not None and 0 <= value < math.inf}
    return ArmValues(values=values, failed=frozenset(failed), silent=len(found) - len(values))


def _counts_failed(metric: RequestMetric) -> bool:
    """Whether a failed request is worse than every other by this metric: by times and speeds, not by sizes."""
    return metric.words == ("faster", "slower")


def throughput(samples: Iterable[Sample]) -> float:
    """Return output tokens per second in which requests were in flight; shards, which run side by side, add up."""
    by_shard: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_shard[sample.shard].append(sample)
    total = 0.0
    for own in by_shard.values():
        busy_ns, until_ns = 0, 0
        for issued_ns, ended_ns in sorted((sample.issued_ns, sample.ended_ns) for sample in own):
            busy_ns += max(0, ended_ns - max(issued_ns, until_ns))
            until_ns = max(until_ns, ended_ns)
        total += sum(sample.output_tokens or 0 for sample in own) / (busy_ns / 1e9) if busy_ns else 0.0
    return total


def _figures(cell: str, arm: str, metric: RequestMetric, found: ArmValues) -> Figures:
    # Sorted, so that records merged in another order give the same sums to the last digit.
    values = np.sort(np.fromiter(found.values.values(), dtype=np.float64))
    lost = len(found.failed) if _counts_failed(metric) else 0
    lower = metric.lower_is_better
    some = bool(values.size)
    return Figures(
        cell=cell,
        arm=arm,
        metric=metric.name,
        n=values.size,
        failed=len(found.failed) + found.silent,
        mean=float(values.mean()) if some else None,
        deviation=float(values.std(ddof=1)) if values.size > 1 else None,
        minimum=float(values[0]) if some else None,
        maximum=float(values[-1]) if some else None,
        quantiles={share: stats.quantile(values, share, failed=lost, lower_is_better=lower) for share in SHARES},
    )


def compare(cell: str, pairs: Sequence[Pair], *, copy: bool, seed: int) -> list[ArmComparison]:
    """Compare arms with their references as one family: all intervals of typical changes hold together (Bonferroni)."""
    both = [_both(ours, theirs, ours.values.keys() & theirs.values.keys()) for *_, ours, theirs in pairs]
    logs = [stats.log_ratios(*values) for values in both]
    family = max(1, sum(each.size > 0 for each in logs))
    return [
        _compared(cell, pair, own, family=family, copy=copy, seed=seed) for pair, own in zip(pairs, logs, strict=True)
    ]


def _both(ours: ArmValues, theirs: ArmValues, keys: Iterable[Key], failed: float = math.nan) -> tuple[Floats, Floats]:
    """Return both arms' values of these blocks, with `failed` for a request that gave none."""
    ordered = sorted(keys)
    own, other = ([each.values.get(key, failed) for key in ordered] for each in (ours, theirs))
    return np.array(own, dtype=np.float64), np.array(other, dtype=np.float64)


def _compared(cell: str, pair: Pair, logs: Floats, *, family: int, copy: bool, seed: int) -> ArmComparison:
    arm, reference, metric, ours, theirs = pair
    keys = ours.values.keys() & theirs.values.keys()
    if _counts_failed(metric):
        keys = (ours.values.keys() | ours.failed) & (theirs.values.keys() | theirs.failed)
    own, other = _both(ours, theirs, keys, math.inf if metric.lower_is_better else 0.0)
    shares = [share for share in SHARES if own.size >= stats.wanted(share)]
    typical = None
    if middle := stats.hodges_lehmann(logs, 1 - ALPHA / family):
        low, high = (None if bound is None else math.exp(bound) for bound in (middle.low, middle.high))
        typical = Interval(value=math.exp(middle.value), low=low, high=high)
    silent = [name for name, each in ((arm, ours), (reference, theirs)) if not each.values and each.silent]
    if silent:
        sentence = f"not comparable: no request of {' or '.join(silent)} gave this figure"
        verdict = ComparisonVerdict(kind="not comparable", sentence=sentence)
    else:
        verdict = _verdict(typical, logs, family, metric)
    return ArmComparison(
        cell=cell,
        arm=arm,
        reference=reference,
        metric=metric.name,
        pairs=logs.size,
        typical=typical,
        p_value=stats.signed_rank_p(logs) if logs.size else None,
        quantiles=stats.quantile_ratios(own, other, shares, seed=seed),
        verdict=verdict,
        copy=copy,
    )


def _verdict(typical: Interval | None, ratios: Floats, family: int, metric: RequestMetric) -> ComparisonVerdict:
    """Return what one comparison shows, read from the interval of its typical change alone.

    A difference is shown where the interval excludes 1, equivalence where it lies within MARGIN and its inverse.
    Where both are shown, the arms are equivalent. A plain 95 % interval of the log-`ratios` plans further runs.
    """
    pairs, alpha = ratios.size, ALPHA / family
    logs = stats.hodges_lehmann(ratios)
    if typical is None or logs is None or typical.low is None or typical.high is None:
        needed = stats.pairs_for_interval(alpha)
        sentence = f"{counted(needed - pairs, 'more pair')} needed: {pairs} of at least {needed}"
        return ComparisonVerdict(kind="too few pairs", sentence=sentence, more_pairs=needed - pairs)
    smallest = stats.smallest_effect(logs, alpha, pairs=pairs)
    differs = typical.high < 1 or typical.low > 1
    kind: Kind = "better" if (typical.high < 1) == metric.lower_is_better else "worse"
    change = f"{metric.words[kind == 'worse']} by {change_with_interval(typical, signed=False)}"
    if typical.low >= 1 / (1 + MARGIN) and typical.high <= 1 + MARGIN:
        seen = f"though {change}" if differs else f"typical change {change_with_interval(typical)}"
        sentence = f"equivalent within {percent(MARGIN)}, {seen}"
        return ComparisonVerdict(kind="equivalent", sentence=sentence, smallest_effect=smallest)
    if differs:
        return ComparisonVerdict(kind=kind, sentence=change, smallest_effect=smallest)
    sentence = "no difference shown"
    if smallest is not None:
        sentence += f"; this run could have shown {percent(smallest)}"
    purposes = {
        f"equivalence within {percent(MARGIN)}": stats.pairs_for_equivalence(logs, pairs, MARGIN, alpha),
        f"a change of the {percent(abs(math.expm1(logs.value)))} seen": stats.pairs_for_effect(logs, pairs, alpha),
    }
    more = None
    if plans := [(max(1, needed - pairs), purpose) for purpose, needed in purposes.items() if needed is not None]:
        more, purpose = min(plans, key=lambda plan: plan[0])
        sentence += f"; {counted(more, 'more pair')} needed to show {purpose}"
    return ComparisonVerdict(kind="no difference shown", sentence=sentence, smallest_effect=smallest, more_pairs=more)


class Design(NamedTuple):
    """The arms that tell a run's plays apart; by play: the arm with it alone, and the one with all others."""

    none: str
    all: str
    alone: Mapping[str, str]
    last: Mapping[str, str]


def design_of(arms: Sequence[ArmInfo]) -> Design | None:
    """Return how a run's arms tell its plays apart; None if they do not.

    That takes an arm with all plays, one with none, and for every play one with it alone and one with all but it.
    """
    candidates = [arm for arm in arms if arm.role != "again" and arm.plays is not None]
    whole = max(candidates, key=lambda arm: len(set(arm.plays or ())), default=None)
    plays = frozenset(whole.plays or () if whole else ())
    if whole is None or len(plays) < 2:
        return None
    # An asynchronous client is not the synchronous one without a play.
    alike = {frozenset(arm.plays or ()): arm.name for arm in reversed(candidates) if arm.client == whole.client}
    references = (arm for arm in arms if arm.role == "reference" and whole.reference in (None, arm.name))
    none = alike.get(frozenset(), next((arm.name for arm in references if arm.plays is None), None))
    ordered = dict.fromkeys(whole.plays or ())
    alone = {play: alike[frozenset({play})] for play in ordered if frozenset({play}) in alike}
    last = {play: alike[plays - {play}] for play in ordered if plays - {play} in alike}
    # Half of the arms would say nothing of what plays do together.
    return Design(none, whole.name, alone, last) if none and len(alone) == len(last) == len(plays) else None


def _attribution(
    cell: str, metric: RequestMetric, design: Design, values: Mapping[tuple[str, str], ArmValues], seed: int
) -> Attribution | None:
    """Divide one cell's change of a metric among the plays; None without a block in which all arms succeeded.

    Of means, because they alone add up. A play's part is the mean of the two ends of Shapley's value (1953), what it
    changes alone and last, scaled so that the parts add up to the whole. Intervals are by a bootstrap over blocks.
    """
    changes = [(design.all, design.none)]
    changes += [(arm, design.none) for arm in design.alone.values()]
    changes += [(design.all, arm) for arm in design.last.values()]
    arms = list(dict.fromkeys(arm for change in changes for arm in change))
    columns = [values[arm, metric.name].values for arm in arms]
    keys = sorted(set.intersection(*map(set, columns)))
    if not keys:
        return None
    blocks = np.array([[column[key] for column in columns] for key in keys], dtype=np.float64)
    contrasts = np.array([[float((arm == left) - (arm == right)) for arm in arms] for left, right in changes])
    # The first row is of all blocks, the others of those that were drawn.
    rows = np.vstack(stats.mean_changes(blocks, contrasts, seed=seed))
    plays = len(design.alone)
    total, alone, last = rows[:, 0], rows[:, 1 : 1 + plays], rows[:, 1 + plays :]
    middle = (alone + last) / 2
    added = middle.sum(axis=1)
    scalable = np.abs(added) > _NOTHING * np.abs(middle).sum(axis=1)
    parts = middle * np.divide(total, added, out=np.ones_like(total), where=scalable)[:, None]

    def interval(column: Floats) -> Interval:
        if len(keys) < stats.ENOUGH_PAIRS:
            return Interval(value=float(column[0]))
        low, high = np.quantile(column[1:], (0.025, 0.975))
        return Interval(value=float(column[0]), low=float(low), high=float(high))

    return Attribution(
        cell=cell,
        metric=metric.name,
        total=interval(total),
        shares=tuple(
            Share(play=play, alone=interval(alone[:, at]), last=interval(last[:, at]), share=interval(parts[:, at]))
            for at, play in enumerate(design.alone)
        ),
        interaction=interval(total - alone.sum(axis=1)),
    )


def _cold(recorded: RecordedRun) -> Iterator[Cold]:
    warm: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in recorded.samples:
        if sample.part == "warm-up" and sample.error is None and (first := sample.time_to_first_token_s) is not None:
            warm[sample.arm, sample.conversation].append(first * 1e3)
    for sample in recorded.samples:
        if sample.cold:
            same = warm.get((sample.arm, sample.conversation))
            yield Cold(
                arm=sample.arm,
                time_to_first_token_ms=METRICS["time_to_first_token"].value(sample),
                api_end_to_end_ms=METRICS["api_end_to_end"].value(sample),
                error=sample.error,
                warm_time_to_first_token_ms=median(same) if same else None,
            )
