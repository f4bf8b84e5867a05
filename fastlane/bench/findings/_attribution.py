"""What each play contributes to the change between no play and all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..recorded import ArmInfo, RequestMetric
from ..statistics import ENOUGH_PAIRS, Floats, Interval, mean_changes
from ._readings import ArmValues
from ._types import Attribution, Share

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
