"""What the pairs of a run look like one by one: in how many an arm was better, and whether that changed on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ..recorded import RequestMetric, Sample
from ._material import Material
from ._words import change, counted, lowered, percent

_ENOUGH_FOR_HALVES = 20
"""Pairs from which the first and the last half say something by themselves."""


def pairs_text(material: Material) -> str:
    """Return in how many pairs each arm was better, by the first metric."""
    if not material.metrics or not material.compared_arms:
        return "There is no arm to compare."
    metric = material.metrics[0]
    said = []
    for arm in material.compared_arms:
        ratios = [ratio for _, ratio in pair_ratios(material, arm.name, metric)]
        if ratios:
            better = sum(ratio < 1 if metric.lower_is_better else ratio > 1 for ratio in ratios)
            said.append(f"{arm.name} was {metric.words[0]} in {percent(better / len(ratios))} of {_pairs(ratios)}")
    return f"By {lowered(metric.title)}, {'; '.join(said)}." if said else "No pair of requests succeeded."


def drift_text(material: Material) -> str:
    """Return whether the ratio of the pairs moved between the first and the last half of the run."""
    if not material.metrics or not material.compared_arms:
        return "There is no arm to compare."
    metric = material.metrics[0]
    said = []
    for arm in material.compared_arms:
        ratios = [ratio for _, ratio in sorted(pair_ratios(material, arm.name, metric))]
        if len(ratios) >= _ENOUGH_FOR_HALVES:
            half = len(ratios) // 2
            first, last = median(ratios[:half]), median(ratios[half:])
            said.append(f"{arm.name} {change(first)} in the first half, {change(last)} in the last")
    if not said:
        return f"Fewer than {_ENOUGH_FOR_HALVES} pairs: too few to see a drift."
    return f"The middle pair's change of {lowered(metric.title)}: {'; '.join(said)}."


def pair_ratios(material: Material, arm: str, metric: RequestMetric) -> Iterator[tuple[int, float]]:
    """Return when each pair began and the arm's value over the reference's, of the cells that may be used."""
    samples = material.samples()
    reference = material.recorded.header.reference_of(arm).name
    for cell in material.valid_cells:
        theirs = {sample.key: sample for sample in samples.get((cell.name, reference), ())}
        for sample in samples.get((cell.name, arm), ()):
            other = theirs.get(sample.key)
            ours_value, theirs_value = _value(sample, metric), _value(other, metric)
            if other is not None and ours_value and theirs_value:
                yield min(sample.issued_ns, other.issued_ns), ours_value / theirs_value


def _value(sample: Sample | None, metric: RequestMetric) -> float | None:
    return None if sample is None or sample.error is not None else metric.value(sample)


def _pairs(ratios: Sequence[float]) -> str:
    return counted(len(ratios), "pair")
