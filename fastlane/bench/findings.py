"""From raw records to what they show: figures, comparisons, verdicts, and each play's part."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

import numpy as np

from ..errors import ConfigurationError
from ._formatting import change_with_interval, counted, percent
from .recorded import METRICS, ArmInfo, Header, Key, RecordedRun, RequestMetric, Sample, errors_of, metric_named
from .statistics import (
    ENOUGH_PAIRS,
    Floats,
    Interval as Interval,
    Quantile as Quantile,
    hodges_lehmann,
    log_ratios,
    mean_changes,
    pairs_for_effect,
    pairs_for_equivalence,
    pairs_for_interval,
    quantile,
    quantile_ratio,
    signed_rank_p,
    smallest_effect,
    wanted,
)

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
    """Standard deviation with n - 1."""
    minimum: float | None
    maximum: float | None
    quantiles: Mapping[float, Quantile]
    """By share: 0.25, 0.5, 0.75, 0.9, 0.95, 0.99."""

    @property
    def variation(self) -> float | None:
        """The coefficient of variation: the deviation as a share of the mean."""
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
    """How many more pairs would show a change of the size seen, or equivalence; None where none would."""


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
    """All that one cell shows."""

    cell: str
    figures: tuple[Figures, ...]
    comparisons: tuple[ArmComparison, ...]
    throughput: Mapping[str, float]
    """Each arm's output tokens over the seconds in which it had requests in flight."""
    requests: Mapping[str, int]
    errors: Mapping[str, Mapping[str, int]]
    """How often each error came, by arm."""

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
    """One cell's change between no play and all, divided among the plays."""

    cell: str
    metric: str
    total: Interval
    """Change from none to all, in the metric's unit."""
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
    """Median of the arm's requests with the same prompt that warmed up; None where none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that a run shows."""

    cells: tuple[CellFindings, ...]
    attributions: tuple[Attribution, ...] = ()
    cold: tuple[Cold, ...] = ()
    margin: float = 0.03
    """The change, as a share, below which two arms count as equivalent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmValues:
    """One arm's requests of one cell by one metric."""

    values: Mapping[Key, float] = field(default_factory=dict)
    """Of the requests that succeeded and gave one."""
    failed: frozenset[Key] = frozenset()
    silent: int = 0
    """Requests that succeeded and gave no value."""


def reading(samples: Iterable[Sample], failed: Mapping[Key, str], metric: RequestMetric) -> ArmValues:
    """Return one metric of an arm's requests. A value below 0 or of no finite size is none: a clock's fault."""
    values: dict[Key, float] = {}
    silent = 0
    for sample in samples:
        key = sample.key
        if key in failed:
            continue
        value = metric.value(sample)
        if value is None or not 0 <= value < math.inf:
            silent += 1
        else:
            values[key] = float(value)
    return ArmValues(values=values, failed=frozenset(failed), silent=silent)


def counts_failed(metric: RequestMetric) -> bool:
    """Whether a request that failed is worse than every other by this metric: by times and speeds, not by sizes."""
    return metric.words == ("faster", "slower")


def throughput(samples: Iterable[Sample]) -> float:
    """Return output tokens per second in which requests were in flight; shards, which run side by side, add up."""
    by_shard: dict[int, list[Sample]] = {}
    for sample in samples:
        by_shard.setdefault(sample.shard, []).append(sample)
    return sum(_rate(each) for each in by_shard.values())


def _rate(samples: Sequence[Sample]) -> float:
    tokens = sum(sample.output_tokens or 0 for sample in samples)
    busy_ns = 0
    until_ns = -math.inf
    for begun_ns, ended_ns in sorted((sample.issued_ns, sample.ended_ns) for sample in samples):
        if ended_ns > until_ns:
            busy_ns += ended_ns - int(max(begun_ns, until_ns))
            until_ns = ended_ns
    return tokens / (busy_ns / 1e9) if busy_ns else 0.0


ALPHA: Final = 0.05
"""How often any interval of a cell's typical changes may miss, over all its metrics and arms."""


def judge(
    *,
    typical: Interval | None,
    logs: Interval | None,
    pairs: int,
    family: int,
    metric: RequestMetric,
    margin: float,
) -> ComparisonVerdict:
    """Return what one comparison shows, read from the interval of its typical change alone.

    `typical` is the ratio with an interval that holds together with those of the `family`'s other comparisons, `logs`
    the log-ratio with a plain 95 % interval, from which the sizes of further runs are planned. A difference is shown
    where the interval excludes a ratio of 1, equivalence where it lies within `margin` and its inverse: even in
    logarithms, as the margin of bioequivalence is (80 to 125 %). Where both are shown, the arms are equivalent.
    """
    if typical is None or logs is None or typical.low is None or typical.high is None:
        needed = pairs_for_interval(ALPHA / family)
        return ComparisonVerdict(
            kind="too few pairs",
            sentence=f"{counted(needed - pairs, 'more pair')} needed: {pairs} of at least {needed}",
            more_pairs=needed - pairs,
        )
    smallest = smallest_effect(logs, ALPHA / family, pairs=pairs)
    differs = typical.high < 1 or typical.low > 1
    kind: Kind = "better" if (typical.high < 1) == metric.lower_is_better else "worse"
    change = f"{metric.words[kind == 'worse']} by {change_with_interval(typical, signed=False)}"
    if 1 / (1 + margin) <= typical.low and typical.high <= 1 + margin:
        said = f"though {change}" if differs else f"typical change {change_with_interval(typical)}"
        return ComparisonVerdict(
            kind="equivalent", sentence=f"equivalent within {percent(margin)}, {said}", smallest_effect=smallest
        )
    if differs:
        return ComparisonVerdict(kind=kind, sentence=change, smallest_effect=smallest)
    more, purpose = _more(logs, pairs, family, margin)
    sentence = "no difference shown"
    if smallest is not None:
        sentence += f"; this run could have shown {percent(smallest)}"
    if more is not None:
        sentence += f"; {counted(more, 'more pair')} needed to show {purpose}"
    return ComparisonVerdict(kind="no difference shown", sentence=sentence, smallest_effect=smallest, more_pairs=more)


def not_comparable(sentence: str) -> ComparisonVerdict:
    """Return the verdict where one arm gave no figure at all."""
    return ComparisonVerdict(kind="not comparable", sentence=sentence)


def _more(logs: Interval, pairs: int, family: int, margin: float) -> tuple[int | None, str]:
    """Return how many more pairs would show what takes fewer: the change seen, or equivalence."""
    by_effect = pairs_for_effect(logs, pairs, ALPHA / family)
    by_equivalence = pairs_for_equivalence(logs, pairs, margin, ALPHA / family)
    if by_equivalence is not None and (by_effect is None or by_equivalence < by_effect):
        return max(1, by_equivalence - pairs), f"equivalence within {percent(margin)}"
    if by_effect is None:
        return None, ""
    return max(1, by_effect - pairs), f"a change of the {percent(abs(math.expm1(logs.value)))} seen"


SHARES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Of the quantiles that are given where there are enough requests."""


def figures(cell: str, arm: str, metric: RequestMetric, read: ArmValues) -> Figures:
    """Return one metric of one arm."""
    # Sorted, so that records merged in another order give the same sums to the last digit.
    values = np.sort(np.fromiter(read.values.values(), dtype=np.float64, count=len(read.values)))
    lost = len(read.failed) if counts_failed(metric) else 0
    some = bool(values.size)
    return Figures(
        cell=cell,
        arm=arm,
        metric=metric.name,
        n=values.size,
        failed=len(read.failed) + read.silent,
        mean=float(values.mean()) if some else None,
        deviation=float(values.std(ddof=1)) if values.size > 1 else None,
        minimum=float(values.min()) if some else None,
        maximum=float(values.max()) if some else None,
        quantiles={
            share: quantile(values, share, failed=lost, lower_is_better=metric.lower_is_better) for share in SHARES
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """One comparison before its family is known."""

    arm: str
    reference: str
    metric: RequestMetric
    logs: Floats
    """Log-ratios of the pairs in which both succeeded."""
    ours: Floats
    """Values of all pairs, those that failed included where that counts."""
    theirs: Floats
    excuse: str | None
    """Why there is nothing to compare, where one arm gave no figure at all."""


def compare(
    cell: str,
    others: Sequence[tuple[str, str, RequestMetric, ArmValues, ArmValues]],
    *,
    copy: bool,
    margin: float,
    seed: int,
) -> list[ArmComparison]:
    """Compare arms with their references: each an arm's name, its reference's, the metric, and both readings.

    They are one family: with a probability of 95 % all intervals of their typical changes hold together (Bonferroni).
    Raises ConfigurationError for a margin that is not above 0.
    """
    if not margin > 0:
        raise ConfigurationError(f"expected a margin above 0, such as 0.03 for 3 %, got {margin}")
    found = [_pairs(*each) for each in others]
    family = max(1, sum(each.logs.size > 0 for each in found))
    return [_judged(each, cell, family=family, copy=copy, margin=margin, seed=seed) for each in found]


def _pairs(arm: str, reference: str, metric: RequestMetric, ours: ArmValues, theirs: ArmValues) -> _Pairs:
    both = sorted(ours.values.keys() & theirs.values.keys())
    own, other = (np.array([read.values[key] for key in both], dtype=np.float64) for read in (ours, theirs))
    logs = log_ratios(own, other)
    if counts_failed(metric):
        known = (ours.values.keys() | ours.failed) & (theirs.values.keys() | theirs.failed)
        worst = math.inf if metric.lower_is_better else 0.0
        every = sorted(known)
        own, other = (
            np.array([read.values.get(key, worst) for key in every], dtype=np.float64) for read in (ours, theirs)
        )
    silent = [name for name, read in ((arm, ours), (reference, theirs)) if not read.values and read.silent]
    excuse = f"not comparable: no request of {' or '.join(silent)} gave this figure" if silent else None
    return _Pairs(arm=arm, reference=reference, metric=metric, logs=logs, ours=own, theirs=other, excuse=excuse)


def _judged(
    pairs: _Pairs,
    cell: str,
    *,
    family: int,
    copy: bool,
    margin: float,
    seed: int,
) -> ArmComparison:
    count = pairs.logs.size
    typical = _exponential(hodges_lehmann(pairs.logs, 1 - ALPHA / family))
    changes = {
        share: change
        for share in SHARES
        if pairs.ours.size >= wanted(share)
        and (change := quantile_ratio(pairs.ours, pairs.theirs, share, seed=seed)) is not None
    }
    if pairs.excuse is not None:
        verdict = not_comparable(pairs.excuse)
    else:
        verdict = judge(
            typical=typical,
            logs=hodges_lehmann(pairs.logs),
            pairs=count,
            family=family,
            metric=pairs.metric,
            margin=margin,
        )
    return ArmComparison(
        cell=cell,
        arm=pairs.arm,
        reference=pairs.reference,
        metric=pairs.metric.name,
        pairs=count,
        typical=typical,
        p_value=signed_rank_p(pairs.logs) if count else None,
        quantiles=changes,
        verdict=verdict,
        copy=copy,
    )


def _exponential(logs: Interval | None) -> Interval | None:
    if logs is None:
        return None
    return Interval(
        value=math.exp(logs.value),
        low=None if logs.low is None else math.exp(logs.low),
        high=None if logs.high is None else math.exp(logs.high),
    )


# Below this share of the whole change, parts that add up to nothing cannot be scaled to it.
_NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Which arms of a run have which of the plays that are to be told apart; `alone` and `last` are by play."""

    none: str
    all: str
    plays: tuple[str, ...]
    alone: Mapping[str, str]
    """Arms that have only the play."""
    last: Mapping[str, str]
    """Arms that have every play but it."""

    @property
    def arms(self) -> tuple[str, ...]:
        """All that take part, in a fixed order."""
        return tuple(dict.fromkeys((self.none, self.all, *self.alone.values(), *self.last.values())))


def design_of(arms: Sequence[ArmInfo]) -> Design | None:
    """Return how a run's arms tell its plays apart; None where they do not.

    That takes an arm with all plays, one with none (`plays=()`, or else the reference if its client has no plays), and
    for every play an arm with it alone and one with all but it.
    """
    candidates = [arm for arm in arms if arm.role != "again" and arm.plays is not None]
    whole = max(candidates, key=lambda arm: len(set(arm.plays or ())), default=None)
    if whole is None or len(set(whole.plays or ())) < 2:
        return None
    plays = tuple(dict.fromkeys(whole.plays or ()))
    # An asynchronous client is not the synchronous one without a play.
    alike = {frozenset(arm.plays or ()): arm.name for arm in reversed(candidates) if arm.client == whole.client}
    references = (arm for arm in arms if arm.role == "reference" and whole.reference in (None, arm.name))
    stock = next((arm.name for arm in references if arm.plays is None), None)
    none = alike.get(frozenset(), stock)
    everything = frozenset(plays)
    alone = {play: alike[frozenset({play})] for play in plays if frozenset({play}) in alike}
    last = {play: alike[everything - {play}] for play in plays if everything - {play} in alike}
    # Half of it would say nothing of what plays do together: the sum of what each does alone is in the interaction.
    if none is None or any(play not in alone or play not in last for play in plays):
        return None
    return Design(none=none, all=whole.name, plays=plays, alone=alone, last=last)


def attribute(
    cell: str, metric: RequestMetric, design: Design, readings: Mapping[str, ArmValues], *, seed: int
) -> Attribution | None:
    """Divide one cell's change of a metric among the plays; None without a block in which all arms succeeded.

    Means, because they alone add up: what a play saves in one request of ten is no part of the typical change and
    all of the total. A play's part is the mean of what it changes alone and what it changes last, which are the two
    ends of Shapley's value ("A value for n-person games", 1953) and all of it for two plays; parts are then scaled so
    that they add up to the whole. Intervals are of a bootstrap over whole blocks.
    """
    blocks = _blocks(design, readings)
    if not len(blocks):
        return None
    contrasts = _contrasts(design)
    means, drawn = mean_changes(blocks, contrasts, seed=seed)
    plays = len(design.plays)
    enough = len(blocks) >= ENOUGH_PAIRS
    parts, drawn_parts = _parts(means[None, :], plays)[0], _parts(drawn, plays)
    interaction, drawn_interaction = _interaction(means[None, :], plays)[0], _interaction(drawn, plays)
    return Attribution(
        cell=cell,
        metric=metric.name,
        total=_interval(means[0], drawn[:, 0], enough),
        shares=tuple(
            Share(
                play=play,
                alone=_interval(means[1 + at], drawn[:, 1 + at], enough),
                last=_interval(means[1 + plays + at], drawn[:, 1 + plays + at], enough),
                share=_interval(parts[at], drawn_parts[:, at], enough),
            )
            for at, play in enumerate(design.plays)
        ),
        interaction=_interval(interaction, drawn_interaction, enough),
    )


def _blocks(design: Design, readings: Mapping[str, ArmValues]) -> Floats:
    """Return a row for each block in which all arms succeeded, a column for each arm."""
    columns = [readings[arm].values for arm in design.arms]
    keys = sorted(set.intersection(*(set(column) for column in columns)))
    rows = [[column[key] for column in columns] for key in keys]
    return np.array(rows, dtype=np.float64).reshape(len(keys), len(columns))


def _contrasts(design: Design) -> Floats:
    """Return what is computed of the arms' means: the whole change, each play's alone, each play's last."""

    def less(left: str, right: str) -> Floats:
        return np.array([(arm == left) - (arm == right) for arm in design.arms], dtype=np.float64)

    rows = [less(design.all, design.none)]
    rows += [less(design.alone[play], design.none) for play in design.plays]
    rows += [less(design.all, design.last[play]) for play in design.plays]
    return np.array(rows)


def _parts(changes: Floats, plays: int) -> Floats:
    """Return each play's part of the whole, scaled so that they add up to it; a row for each row of changes."""
    total = changes[:, :1]
    middle = (changes[:, 1 : 1 + plays] + changes[:, 1 + plays :]) / 2
    added = middle.sum(axis=1, keepdims=True)
    scalable = np.abs(added) > _NOTHING * np.abs(middle).sum(axis=1, keepdims=True)
    factor = np.divide(total, added, out=np.ones_like(total), where=scalable)
    parts: Floats = middle * factor
    return parts


def _interaction(changes: Floats, plays: int) -> Floats:
    difference: Floats = changes[:, 0] - changes[:, 1 : 1 + plays].sum(axis=1)
    return difference


def _interval(value: float, drawn: Floats, enough: bool) -> Interval:
    if not enough:
        return Interval(value=float(value))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(value=float(value), low=float(low), high=float(high))


def find(recorded: RecordedRun, *, margin: float = 0.03, seed: int = 0) -> Findings:
    """Return everything that a run shows; the same for the same records, margin and seed.

    Only measured requests count: each arm process's first is given as `cold`, and those that warmed up are left out.
    Arms are compared by the blocks in which both took part, cell by cell. `margin` is the change, as a share, below
    which two arms count as equivalent; `seed` is for the intervals that come of drawing again.
    Raises ConfigurationError for a margin that is not above 0, or a metric in the header that nobody knows.
    """
    metrics = [metric_named(name) for name in recorded.header.metrics]
    # Reports by load, length and user show more than what arms are compared by; only comparisons are tests.
    described = [*metrics, *(metric for metric in METRICS.values() if metric not in metrics)]
    design = design_of(recorded.header.arms)
    cells: list[CellFindings] = []
    attributions: list[Attribution] = []
    for cell in (each.name for each in recorded.header.cells):
        samples = {arm.name: recorded.measured(cell, arm.name) for arm in recorded.header.arms}
        errors = {arm: errors_of(own) for arm, own in samples.items()}
        readings = {
            (arm, metric.name): reading(own, errors[arm], metric)
            for arm, own in samples.items()
            for metric in described
        }
        cells.append(
            CellFindings(
                cell=cell,
                figures=tuple(
                    figures(cell, arm, metric, readings[arm, metric.name])
                    for metric in described
                    if metric in metrics or any(readings[other, metric.name].values for other in samples)
                    for arm in samples
                ),
                comparisons=tuple(
                    compared
                    for others, copy in _families(recorded)
                    for compared in compare(
                        cell,
                        _against(recorded.header, others, metrics, readings),
                        copy=copy,
                        margin=margin,
                        seed=seed,
                    )
                ),
                throughput={arm: throughput(own) for arm, own in samples.items() if own},
                requests={arm: len(own) for arm, own in samples.items()},
                errors={arm: dict(Counter(failed.values()).most_common()) for arm, failed in errors.items()},
            )
        )
        if design is not None:
            attributions += _attributed(cell, metrics, design, readings, seed)
    return Findings(cells=tuple(cells), attributions=tuple(attributions), cold=tuple(_cold(recorded)), margin=margin)


def _families(recorded: RecordedRun) -> Iterator[tuple[list[ArmInfo], bool]]:
    """Yield the arms whose comparisons are adjusted together: the references' copies are a family of their own."""
    references = recorded.header.references
    yield [arm for arm in recorded.header.arms if arm.role != "again" and arm not in references], False
    yield [arm for arm in recorded.header.arms if arm.role == "again"], True


def _against(
    header: Header,
    others: Sequence[ArmInfo],
    metrics: Sequence[RequestMetric],
    readings: Mapping[tuple[str, str], ArmValues],
) -> list[tuple[str, str, RequestMetric, ArmValues, ArmValues]]:
    references = {arm.name: header.reference_of(arm.name).name for arm in others}
    return [
        (arm, reference, metric, readings[arm, metric.name], readings[reference, metric.name])
        for metric in metrics
        for arm, reference in references.items()
    ]


def _attributed(
    cell: str,
    metrics: Sequence[RequestMetric],
    design: Design,
    readings: Mapping[tuple[str, str], ArmValues],
    seed: int,
) -> Iterator[Attribution]:
    for metric in metrics:
        own = {arm: readings[arm, metric.name] for arm in design.arms}
        found = attribute(cell, metric, design, own, seed=seed)
        if found is not None:
            yield found


def _cold(recorded: RecordedRun) -> Iterator[Cold]:
    warm: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in recorded.samples:
        if sample.part == "warm-up" and sample.error is None and (first := sample.time_to_first_token_s) is not None:
            warm[sample.arm, sample.conversation].append(first)
    for sample in recorded.samples:
        if sample.part == "cold":
            first, whole = sample.time_to_first_token_s, sample.api_end_to_end_s
            same = warm.get((sample.arm, sample.conversation))
            yield Cold(
                arm=sample.arm,
                time_to_first_token_ms=None if first is None else first * 1e3,
                api_end_to_end_ms=None if whole is None else whole * 1e3,
                error=sample.error,
                warm_time_to_first_token_ms=median(same) * 1e3 if same else None,
            )
