"""Whether arms can be compared: they differ in nothing but in what a play changes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..recorded import ArmInfo, Cell, Sample
from ._sight import Check, Sight, percent, result
from ._tests import difference_of_shares, fisher, same_distribution
from ._tokens import produced
from ._types import CheckResult, Level

CHANCE: Final = 0.01
"""A difference that chance makes less often than this is none of chance; divided by the number of arms that are
compared. Stricter than 5 %, because a run has many cells and every one of them is refused by it."""
PROMPT_TOLERANCE: Final = 0.02
"""Salts that make prompts differ do not all come to the same number of tokens."""
ANSWER_TOLERANCE: Final = 0.03
"""Answers that differ by less move an end-to-end time by less than the margin of equivalence."""
FAILED_SHARE: Final = 0.1
"""More failures than one in ten, and there is no p90."""
BAND_CHANCE: Final = 0.001
"""Two copies of one client that differ at this level: with it one sound cell in a thousand is refused."""

PROMPTS: Final = "the same prompts"
ANSWERS: Final = "the same lengths of answers"
ERRORS: Final = "the same errors"
CONNECTIONS: Final = "new connections"
CACHED: Final = "cached tokens"
BAND: Final = "A/A copy"

# What each play is known not to touch. One that is not named here, such as a user's own, may change anything.
_SILENT: Final[Mapping[str, frozenset[str]]] = {
    PROMPTS: frozenset(("Connection", "RequestEncoding", "Hedging")),
    ANSWERS: frozenset(("Connection", "RequestEncoding", "Hedging", "PromptCache")),
    CONNECTIONS: frozenset(("RequestEncoding", "PromptCache", "ContextTrimming", "BoundedOutput")),
    CACHED: frozenset(("Connection", "RequestEncoding", "BoundedOutput")),
}


def explained(check: str, reference: ArmInfo, arm: ArmInfo) -> str:
    """Return what of an arm may make it differ from the reference in this respect; "" for nothing.

    A copy has nothing that may. Two clients of different kinds (another library; one with plays and one without) may
    hold connections otherwise, and that is what such a comparison shows; neither changes what is asked or answered.
    """
    if arm.role == "again":
        return ""
    names = {play.partition("(")[0] for play in set(reference.plays or ()) ^ set(arm.plays or ())}
    names -= _SILENT[check]
    if check == CONNECTIONS and (arm.client != reference.client or (arm.plays is None) != (reference.plays is None)):
        names.add("its client")
    return ", ".join(sorted(names))


def verdict(check: str, sight: Sight, arm: ArmInfo) -> tuple[Level, str]:
    """What a difference is worth: a finding where the arm was meant to differ, else a fault."""
    why = explained(check, sight.reference(arm), arm)
    if why:
        return "flagged", f"; {why} may do so, which is then part of what the arm gains or loses"
    return "refused", "; nothing that the arm was given does so: the two are not comparable, record again"


def compared(sight: Sight) -> Iterator[tuple[Cell, ArmInfo]]:
    yield from ((cell, arm) for cell in sight.recorded.header.cells for arm in sight.others)


def same_prompts(sight: Sight) -> Iterator[CheckResult]:
    """Look for pairs that did not ask the same."""
    for cell, arm in compared(sight):
        reference = sight.reference(arm)
        theirs = {sample.key: sample for sample in sight.measured(cell, reference)}
        pairs = [(theirs[own.key], own) for own in sight.measured(cell, arm) if own.key in theirs]
        if not pairs:
            yield result(PROMPTS, "not checked", f"{arm.name} has no pair with {reference.name}", cell=cell, arm=arm)
            continue
        other = [own for their, own in pairs if _asked(their) != _asked(own)]
        if other:
            yield result(
                PROMPTS,
                "refused",
                f"{len(other)} of {len(pairs)} pairs of {arm.name} and {reference.name} asked for different things "
                f"(such as {other[0].tag}): record again with the same prompts in both",
                cell=cell,
                arm=arm,
                pairs=len(other),
            )
            continue
        ratios = [
            own.input_tokens / their.input_tokens for their, own in pairs if own.input_tokens and their.input_tokens
        ]
        middle = statistics.median(ratios) if ratios else 1.0
        if abs(middle - 1) > PROMPT_TOLERANCE:
            level, why = verdict(PROMPTS, sight, arm)
            yield result(
                PROMPTS,
                level,
                f"the provider counted {percent(middle)} of {reference.name}'s input tokens for {arm.name}, prompt by "
                f"prompt{why}",
                cell=cell,
                arm=arm,
                ratio=middle,
            )
        else:
            yield result(PROMPTS, "passed", f"{len(pairs)} pairs asked for the same", cell=cell, arm=arm, ratio=middle)


def _asked(sample: Sample) -> tuple[object, ...]:
    return (sample.conversation, sample.turn, sample.meant_input_tokens, sample.asked_output_tokens)


def same_answers(sight: Sight) -> Iterator[CheckResult]:
    """Look for arms whose answers are longer or shorter than the reference's."""
    for cell, arm in compared(sight):
        reference = sight.reference(arm)
        theirs, own = produced(sight, cell, reference), produced(sight, cell, arm)
        if not theirs or not own:
            yield result(ANSWERS, "not checked", f"no answers of {arm.name} to compare", cell=cell, arm=arm)
            continue
        chance = same_distribution(theirs, own)
        ratio = statistics.fmean(own) / max(1e-9, statistics.fmean(theirs))
        if chance < CHANCE / len(sight.others) and abs(ratio - 1) > ANSWER_TOLERANCE:
            level, why = verdict(ANSWERS, sight, arm)
            yield result(
                ANSWERS,
                level,
                f"{arm.name}'s answers have {percent(ratio)} of the output tokens of {reference.name}'s (Kolmogorov-"
                f"Smirnov p = {chance:.2g}), and so much of their end-to-end time{why}",
                cell=cell,
                arm=arm,
                ratio=ratio,
                p_value=chance,
            )
        else:
            yield result(
                ANSWERS,
                "passed",
                f"{arm.name}'s answers are as long as {reference.name}'s",
                cell=cell,
                arm=arm,
                ratio=ratio,
                p_value=chance,
            )


def same_errors(sight: Sight) -> Iterator[CheckResult]:
    """Look for arms that fail, or are turned away for asking too often, more or less often than the reference."""
    kinds: tuple[tuple[str, Callable[[Sample], bool]], ...] = (
        ("are turned away for asking too often (429)", lambda sample: (sample.error or "").endswith(" 429")),
        ("fail", lambda sample: sample.error is not None),
    )
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            samples = sight.measured(cell, arm)
            failed = sum(sample.error is not None for sample in samples)
            if failed > FAILED_SHARE * len(samples):
                yield result(
                    ERRORS,
                    "flagged",
                    f"{failed} of {len(samples)} requests of {arm.name} failed: what is left is a selection; see why "
                    "they do, or ask for less",
                    cell=cell,
                    arm=arm,
                    failed=failed,
                )
    for cell, arm in compared(sight):
        reference = sight.reference(arm)
        theirs, own = sight.measured(cell, reference), sight.measured(cell, arm)
        for what, failing in kinds:
            first, second = sum(map(failing, theirs)), sum(map(failing, own))
            chance = fisher(first, len(theirs), second, len(own))
            if chance < CHANCE / len(sight.others):
                low, high = difference_of_shares(first, len(theirs), second, len(own))
                difference = second / len(own) - first / len(theirs)
                copy = arm.role == "again"
                yield result(
                    ERRORS,
                    "refused" if copy else "flagged",
                    f"{percent(second / len(own))} of {arm.name}'s requests {what}, {percent(first / len(theirs))} of "
                    f"{reference.name}'s: {difference * 100:+.3g} percentage points [{low * 100:+.3g}, "
                    f"{high * 100:+.3g}] (Fisher p = {chance:.2g}); "
                    + (
                        "equal clients must fail alike: find what fails, and record again"
                        if copy
                        else "a result of the arm; times are compared in the pairs in which both succeeded"
                    ),
                    cell=cell,
                    arm=arm,
                    p_value=chance,
                    difference=difference,
                    low=low,
                    high=high,
                )
                break
        else:
            yield result(ERRORS, "passed", f"{arm.name} fails as often as {reference.name}", cell=cell, arm=arm)


def same_as_its_copy(sight: Sight) -> Iterator[CheckResult]:
    """Look for a reference that differs from its own copy: then the instrument makes differences by itself."""
    for cell in sight.recorded.header.cells:
        found = sight.of_cell(cell)
        copies = [each for each in found.comparisons if each.copy] if found else []
        if not copies:
            yield result(
                BAND,
                "not checked",
                "no copy of the reference was compared, so nothing says what the instrument sways by",
                cell=cell,
            )
        for each in copies:
            chance = None if each.p_value is None else min(1.0, each.p_value * len(copies))
            differs = each.verdict.kind in ("better", "worse") and chance is not None
            level: Level = (
                "refused" if differs and (chance or 0.0) < BAND_CHANCE else "flagged" if differs else "passed"
            )
            yield result(
                BAND,
                level,
                f"{each.reference} and its copy: {each.verdict.sentence} ({each.metric})"
                + (
                    ": the same client beside itself must not differ; take smaller effects than this for nothing"
                    if differs
                    else ""
                )
                + (", and record again" if level == "refused" else ""),
                cell=cell,
                metric=each.metric,
                p_value=chance,
            )


CHECKS: Final = (
    Check(
        name=PROMPTS, line="Pairs that asked the same, by the workload's and the provider's count.", look=same_prompts
    ),
    Check(name=ANSWERS, line="Answers as long as the reference's (Kolmogorov-Smirnov).", look=same_answers),
    Check(
        name=ERRORS,
        line="Errors and 429s as often as the reference (Fisher's exact test). A difference is a result.",
        look=same_errors,
    ),
    Check(name=BAND, line="The reference against its own copy.", look=same_as_its_copy),
)
