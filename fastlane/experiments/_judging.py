"""Which arms are to end, by the sums of all processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from .._clock import wall_ns
from ._document import Document, EndedArm
from ._guards import Guard, alpha_of_guards
from ._metrics import METRICS
from ._sums import Sums
from ._verdicts import Comparison, alpha_of, compared

log = logging.getLogger("fastlane")

OnEnd = Callable[[EndedArm], Any]


def judged(document: Document, guards: Sequence[Guard]) -> list[EndedArm]:
    """Arms that are shown to be worse than a guard allows, and have not ended."""
    found: list[EndedArm] = []
    reference = document.reference
    others = [arm for arm, _ in document.definition["arms"] if arm != reference]
    alpha = alpha_of_guards(len(guards), len(others), alpha_of(document.stage))
    for arm in others:
        if arm in document.ended or arm not in document.sums:
            continue
        for guard in guards:
            reason = guard.broken(document.sums[arm], document.sums_of(reference), alpha)
            if reason is not None:
                found.append(ending(document, arm, by=guard.metric, reason=reason))
                break
    return found


def ending(document: Document, arm: str, *, by: str, reason: str) -> EndedArm:
    """That an arm ends now, and what is known of it."""
    sums = document.sums.get(arm) or Sums()
    return EndedArm(
        experiment=document.definition["name"],
        arm=arm,
        reason=reason,
        by=by,
        wall_ns=wall_ns(),
        stage=document.stage,
        units=sums.unit_count,
        calls=round(sums.calls),
        comparisons=comparisons_of(document, arm),
    )


def comparisons_of(document: Document, arm: str) -> tuple[Comparison, ...]:
    """Each metric of an arm against the reference."""
    reference = document.sums.get(document.reference) or Sums()
    sums = document.sums.get(arm) or Sums()
    numbers = [number for number in range(len(METRICS)) if sum(reference.of(number)[0]) or sum(sums.of(number)[0])]
    arms = len(document.definition["arms"]) - 1
    # Bonferroni's inequality over all that is looked at: Holm's steps would need p-values, which nobody has here.
    alpha = alpha_of(document.stage) / max(1, arms * len(numbers))
    found = [compared(number, sums, reference, alpha) for number in numbers]
    return tuple([one for one in found if one is not None])


def announce(ended: Sequence[EndedArm], on_end: OnEnd | None) -> None:
    """Say that arms have ended, in the log and to the application."""
    for one in ended:
        log.warning(
            "the arm %r of the experiment %r has ended after %d calls: %s. Its units go to the reference arm",
            one.arm,
            one.experiment,
            one.calls,
            one.reason,
        )
        if on_end is not None:
            try:
                on_end(one)
            except Exception as error:  # noqa: BLE001 - the arm has ended all the same
                log.warning("on_end of the experiment %r raised %s", one.experiment, type(error).__name__)
