"""From a run's raw records to all that they show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ..recorded import METRICS, ArmInfo, Header, RecordedRun, RequestMetric, Sample, metric_named
from ._attribution import Design, attribute, design_of
from ._comparing import compare, figures
from ._readings import ArmValues, counted, errors_of, reading, throughput
from ._types import Attribution, CellFindings, Cold, Findings


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
    by_cell: dict[str, dict[str, list[Sample]]] = {
        cell.name: {arm.name: [] for arm in recorded.header.arms} for cell in recorded.header.cells
    }
    for sample in recorded.samples:
        if sample.part == "measured" and sample.arm in by_cell.get(sample.cell, ()):
            by_cell[sample.cell][sample.arm].append(sample)
    design = design_of(recorded.header.arms)
    cells: list[CellFindings] = []
    attributions: list[Attribution] = []
    for cell, samples in by_cell.items():
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
                errors={arm: counted(failed) for arm, failed in errors.items()},
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
