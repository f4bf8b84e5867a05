"""The same unit of an experiment in each of its arms, phase by phase, and what all units together say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from ..errors import ConfigurationError
from ._model import PHASES, TraceEntry

BASELINES: Final = ("baseline", "control", "stock", "off", "before")
"""What an arm is called that the others are compared with, where nobody says which one that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentUnit:
    """One unit of an experiment: the same request or user action in each arm."""

    unit: str
    members: Mapping[str, int]
    """By arm: the index of the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """What one arm took, over the units that the baseline has too. Seconds."""

    arm: str
    pairs: int
    median_s: float
    phases_s: Mapping[str, float]
    """The median of each phase; they need not add up to the median of the whole."""
    unsplit: int
    """For how many of them nobody said what the time until the first token was spent with."""
    time_to_first_token_s: float | None
    """The median, over those that have one."""
    faster: int = 0
    """Pairs in which it took less time than the baseline."""
    slower: int = 0
    shown: bool = False
    """Whether so many pairs one way are more than chance makes: by the sign test, at 5 % over all arms together."""
    median_ratio: float | None = None
    """The median over all pairs of the arm's time by the baseline's: below 1 is faster."""
    total_ratio: float | None = None
    """All its time by all of the baseline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentComparison:
    """One experiment."""

    experiment: str
    baseline: str
    arms: tuple[ArmFigures, ...]
    """The baseline first."""
    groups: tuple[ExperimentUnit, ...]
    """Units that the baseline and another arm have, in order of time."""
    failed: int = 0
    """Entries that are left out because they failed: how long a failure took is no figure of an arm."""
    alone: int = 0
    """Entries that are left out because the baseline, or every other arm, lacks the unit."""
    unnamed: int = 0
    """Entries that are left out because nobody said which unit they are."""


def compare(entries: Sequence[TraceEntry], *, baseline: str | None = None) -> tuple[ExperimentComparison, ...]:
    """Compare the arms of every experiment among the entries.

    `baseline` names the arm that the others are compared with. Raises ConfigurationError where no experiment has it.
    """
    experiments: dict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        if entry.experiment is not None:
            experiments[entry.experiment.experiment].append(index)
    found = []
    arms: set[str] = set()
    for name, members in sorted(experiments.items()):
        own = {entry.experiment.arm for at in members if (entry := entries[at]).experiment is not None}
        arms |= own
        if len(own) > 1:
            found.append(_comparison(name, entries, members, _baseline(own, baseline)))
    if baseline is not None and baseline not in arms:
        known = ", ".join(sorted(arms)) or "none: no span says fastlane.experiment.arm"
        raise ConfigurationError(f"no arm {baseline!r} to compare with; the file's arms are {known}")
    return tuple(found)


def _baseline(arms: set[str], asked: str | None) -> str:
    if asked in arms and asked is not None:
        return asked
    named = next((arm for known in BASELINES for arm in sorted(arms) if arm.lower() == known), None)
    return named or min(arms, key=lambda arm: (not arm.startswith("baseline-"), arm))


def _comparison(
    name: str, entries: Sequence[TraceEntry], members: Sequence[int], baseline: str
) -> ExperimentComparison:
    units: dict[str, dict[str, list[int]]] = {}
    failed = unnamed = 0
    for at in members:
        entry = entries[at]
        marked = entry.experiment
        if marked is None or marked.unit is None:
            unnamed += 1
        elif entry.error is not None:
            failed += 1
        else:
            units.setdefault(marked.unit, {}).setdefault(marked.arm, []).append(at)
    groups: list[ExperimentUnit] = []
    alone = 0
    for unit, by_arm in units.items():
        # A unit may be a user with many requests: those that came first in each arm go together, and so on.
        for turn in range(max(map(len, by_arm.values()))):
            together = {arm: indexes[turn] for arm, indexes in by_arm.items() if turn < len(indexes)}
            if baseline in together and len(together) > 1:
                groups.append(ExperimentUnit(unit=unit, members=together))
            else:
                alone += len(together)
    groups.sort(key=lambda group: min(entries[at].start_ns for at in group.members.values()))
    others = sorted({arm for group in groups for arm in group.members} - {baseline})
    alpha = 0.05 / max(1, len(others))
    return ExperimentComparison(
        experiment=name,
        baseline=baseline,
        arms=tuple(_figures(arm, baseline, groups, entries, alpha) for arm in (baseline, *others)) if groups else (),
        groups=tuple(groups),
        failed=failed,
        alone=alone,
        unnamed=unnamed,
    )


def _figures(
    arm: str, baseline: str, groups: Sequence[ExperimentUnit], entries: Sequence[TraceEntry], alpha: float
) -> ArmFigures:
    pairs = [
        (entries[group.members[arm]], entries[group.members[baseline]]) for group in groups if arm in group.members
    ]
    own = [entry for entry, _ in pairs]
    firsts = [first for entry in own if (first := entry.time_to_first_token_s) is not None]
    ratios = [entry.duration_s / other.duration_s for entry, other in pairs if other.duration_s > 0]
    theirs_s = sum(other.duration_s for _, other in pairs)
    is_other = arm != baseline
    faster = sum(entry.duration_s < other.duration_s for entry, other in pairs)
    slower = sum(entry.duration_s > other.duration_s for entry, other in pairs)
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
        faster=faster if is_other else 0,
        slower=slower if is_other else 0,
        shown=is_other and _sign_test(faster, slower) <= alpha,
        median_ratio=median(ratios) if is_other and ratios else None,
        total_ratio=sum(entry.duration_s for entry in own) / theirs_s if is_other and theirs_s > 0 else None,
    )


def _sign_test(faster: int, slower: int) -> float:
    """Return the two-sided p value of so many signs one way and so many the other."""
    count, fewer = faster + slower, min(faster, slower)
    ways, total = 1, 0
    for below in range(fewer + 1):
        total += ways
        ways = ways * (count - below) // (below + 1)
    return min(1.0, float(2 * total / (1 << count)))
