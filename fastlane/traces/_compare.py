"""The same unit of an experiment in each of its arms, phase by phase, and what all units together show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import comb
from statistics import median
from typing import Final, NamedTuple

from ..errors import ConfigurationError
from ._model import PHASES, TraceArm, TraceEntry

BASELINES: Final = ("baseline", "control", "stock", "off", "before")
"""Names of the arm that the others are compared with, where the caller names none."""
_ALPHA: Final = 0.05


class ExperimentUnit(NamedTuple):
    """One unit of an experiment: the same request or user action in each arm."""

    unit: str
    members: Mapping[str, int]
    """By arm: the index of the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """What one arm took, over the units that the baseline has too. Seconds and their medians."""

    arm: str
    pairs: int
    median_s: float
    phases_s: Mapping[str, float]
    """The median of each phase; they need not add up to the median of the whole."""
    unsplit: int
    """Entries whose time until the first token is known only as a whole."""
    time_to_first_token_s: float | None
    faster: int
    """Pairs in which it took less time than the baseline."""
    slower: int
    shown: bool
    """Whether `faster` and `slower` differ by more than chance: a sign test at 5 % over all arms together."""
    median_ratio: float
    """The median over all pairs of the arm's time by the baseline's: below 1 is faster."""
    total_ratio: float
    """All its time by all of the baseline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentComparison:
    """One experiment. `failed`, `alone` (in one arm) and `unnamed` (without a unit) count entries that are left out."""

    experiment: str
    baseline: str
    arms: tuple[ArmFigures, ...]
    """The baseline first."""
    groups: tuple[ExperimentUnit, ...]
    """Units that the baseline and another arm have, in order of time."""
    failed: int
    alone: int
    unnamed: int


def compare(entries: Sequence[TraceEntry], *, baseline: str | None = None) -> tuple[ExperimentComparison, ...]:
    """Compare the arms of every experiment among the entries.

    `baseline` names the arm that the others are compared with. Raises ConfigurationError if no experiment has it.
    """
    experiments: dict[str, list[tuple[int, TraceArm]]] = defaultdict(list)
    for index, entry in enumerate(entries):
        if entry.experiment is not None:
            experiments[entry.experiment.experiment].append((index, entry.experiment))
    arms = {name: {mark.arm for _, mark in members} for name, members in sorted(experiments.items())}
    if baseline is not None and not any(baseline in own for own in arms.values()):
        known = ", ".join(sorted(set().union(*arms.values()))) or "none: no span says fastlane.experiment.arm"
        known = known.encode("unicode_escape").decode()  # nothing in a file commands the terminal
        raise ConfigurationError(f"no arm {baseline!r} to compare with; the file's arms are {known}")
    return tuple(
        _comparison(name, entries, experiments[name], _baseline(own, baseline))
        for name, own in arms.items()
        if len(own) > 1
    )


def _baseline(arms: set[str], named: str | None) -> str:
    def rank(arm: str) -> tuple[bool, int, bool, str]:
        known = BASELINES.index(arm.lower()) if arm.lower() in BASELINES else len(BASELINES)
        return arm != named, known, not arm.startswith("baseline-"), arm

    return min(arms, key=rank)


def _comparison(
    name: str, entries: Sequence[TraceEntry], members: Sequence[tuple[int, TraceArm]], baseline: str
) -> ExperimentComparison:
    units: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, mark in members:
        if mark.unit is not None and entries[at].error is None:
            units[mark.unit][mark.arm].append(at)
    groups: list[ExperimentUnit] = []
    alone = 0
    for unit, by_arm in units.items():
        # A unit may be a user with many requests: the first of each arm are compared, then the second, and so on.
        for turn in zip_longest(*by_arm.values()):
            together = {arm: at for arm, at in zip(by_arm, turn, strict=True) if at is not None}
            if baseline in together and len(together) > 1:
                groups.append(ExperimentUnit(unit, together))
            else:
                alone += len(together)
    groups.sort(key=lambda group: min(entries[at].start_ns for at in group.members.values()))
    others = sorted({arm for group in groups for arm in group.members} - {baseline})
    arms = []
    for arm in (baseline, *others) if groups else ():
        both = [group.members for group in groups if arm in group.members]
        pairs = [(entries[own[arm]], entries[own[baseline]]) for own in both]
        arms.append(_figures(arm, pairs, _ALPHA / len(others)))
    return ExperimentComparison(
        experiment=name,
        baseline=baseline,
        arms=tuple(arms),
        groups=tuple(groups),
        failed=sum(mark.unit is not None and entries[at].error is not None for at, mark in members),
        alone=alone,
        unnamed=sum(mark.unit is None for _, mark in members),
    )


def _figures(arm: str, pairs: Sequence[tuple[TraceEntry, TraceEntry]], alpha: float) -> ArmFigures:
    own = [entry for entry, _ in pairs]
    firsts = [first for entry in own if (first := entry.time_to_first_token_s) is not None]
    times = [(entry.duration_s, other.duration_s) for entry, other in pairs]
    ratios = [ours / theirs for ours, theirs in times if theirs > 0] or [1.0]
    faster, slower = sum(ours < theirs for ours, theirs in times), sum(ours > theirs for ours, theirs in times)
    count = faster + slower
    chance = 2 * sum(comb(count, below) for below in range(min(faster, slower) + 1)) / 2**count
    return ArmFigures(
        arm=arm,
        pairs=len(pairs),
        median_s=median(entry.duration_s for entry in own),
        phases_s={
            phase: median(entry.durations_s.get(phase, 0.0) for entry in own)
            for phase in PHASES
            if any(entry.durations_s.get(phase) for entry in own)
        },
        unsplit=sum("unsplit" in entry.durations_s for entry in own),
        time_to_first_token_s=median(firsts) if firsts else None,
        faster=faster,
        slower=slower,
        shown=chance <= alpha,
        median_ratio=median(ratios),
        total_ratio=sum(ours for ours, _ in times) / (sum(theirs for _, theirs in times) or 1.0),
    )
