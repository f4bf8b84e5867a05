"""Whether arms can be compared: they differ in nothing but in what a play changes."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from scipy.stats import binomtest, fisher_exact, ks_2samp

from .._formatting import percent
from ..recorded import Sample
from ._check import ArmView, CellView, Level, Outcome, looks_for, of_share

CHANCE: Final = 0.01
"""A difference that chance makes less often than this is no chance; divided by the number of arms that are compared.
Stricter than 5 %, because a run has many cells and every one of them is refused by it."""
PROMPT_TOLERANCE: Final = 0.02
"""Salts that make prompts differ do not all come to the same number of tokens."""
ANSWER_TOLERANCE: Final = 0.03
"""Answers that differ by less move an end-to-end time by less than the margin of equivalence."""
FAILED_SHARE: Final = 0.1
"""More failures than one in ten, and there is no p90."""
BAND_CHANCE: Final = 0.001
"""Two copies of one client that differ at this level: with it one sound cell in a thousand is refused."""
OPENED_TOLERANCE: Final = 0.1
"""Of requests that open a connection: a difference of less is a server that closes one now and then."""
CACHED_TOLERANCE: Final = 0.1

PROMPTS: Final = "the same prompts"
ANSWERS: Final = "the same lengths of answers"
CONNECTIONS: Final = "new connections"
CACHED: Final = "cached tokens"

# What each play is known not to touch. One that is not named here, such as a user's own, may change anything.
_SILENT: Final[Mapping[str, frozenset[str]]] = {
    PROMPTS: frozenset(("Connection", "RequestEncoding", "Hedging")),
    ANSWERS: frozenset(("Connection", "RequestEncoding", "Hedging", "PromptCache")),
    CONNECTIONS: frozenset(("RequestEncoding", "PromptCache", "ContextTrimming", "BoundedOutput")),
    CACHED: frozenset(("Connection", "RequestEncoding", "BoundedOutput")),
}
# openai's Stream breaks off at [DONE] and closes the response, whose end is unread; AsyncStream reads it to its end.
_LEFT_UNREAD: Final = (
    ", because openai's synchronous client stops reading a stream at [DONE], before the end of the response, and such "
    "a connection cannot be used again"
)


def _differing(check: str, view: ArmView, said: str) -> Outcome:
    """Return what a difference is worth: a finding if something of the arm may cause it, else a fault.

    Clients of different kinds may hold connections differently. A copy has nothing that may differ.
    """
    arm, reference = view.arm, view.reference.arm
    names = {play.partition("(")[0] for play in set(reference.plays or ()) ^ set(arm.plays or ())} - _SILENT[check]
    if check == CONNECTIONS and (arm.client != reference.client or (arm.plays is None) != (reference.plays is None)):
        names.add("its client")
    if arm.role == "again" or not names:
        return Outcome("refused", f"{said}; nothing that the arm was given does so: record again")
    why = ", ".join(sorted(names))
    return Outcome("flagged", f"{said}; {why} may do so, which is then part of what the arm gains or loses")


@looks_for(PROMPTS, "compared")
def same_prompts(arm: ArmView) -> Outcome:
    reference = arm.reference
    theirs = {sample.key: sample for sample in reference.samples}
    pairs = [(theirs[own.key], own) for own in arm.samples if own.key in theirs]
    if not pairs:
        return Outcome("not checked", f"{arm.name} has no pair with {reference.name}")
    other = [own for their, own in pairs if _asked(their) != _asked(own)]
    if other:
        said = f"{len(other)} of {len(pairs)} pairs of {arm.name} and {reference.name} asked for different things"
        return Outcome("refused", f"{said}, such as {other[0].tag}: record again with the same prompts")
    ratios = [own.input_tokens / their.input_tokens for their, own in pairs if own.input_tokens and their.input_tokens]
    middle = statistics.median(ratios) if ratios else 1.0
    if abs(middle - 1) <= PROMPT_TOLERANCE:
        return Outcome("passed", f"{len(pairs)} pairs asked for the same")
    said = f"the provider counted {percent(middle)} of {reference.name}'s input tokens for {arm.name}, prompt by prompt"
    return _differing(PROMPTS, arm, said)


def _asked(sample: Sample) -> tuple[object, ...]:
    return (sample.conversation, sample.turn, sample.meant_input_tokens, sample.asked_output_tokens)


@looks_for(ANSWERS, "compared")
def same_answers(arm: ArmView) -> Outcome:
    theirs, own = arm.reference.output_tokens, arm.output_tokens
    if not theirs or not own:
        return Outcome("not checked", f"no answers of {arm.name} to compare")
    chance = same_distribution(theirs, own)
    ratio = statistics.fmean(own) / max(1e-9, statistics.fmean(theirs))
    if chance >= CHANCE / len(arm.of.compared) or abs(ratio - 1) <= ANSWER_TOLERANCE:
        return Outcome("passed", f"{arm.name}'s answers are as long as {arm.reference.name}'s")
    said = f"{arm.name}'s answers have {percent(ratio)} of the output tokens of {arm.reference.name}'s"
    return _differing(ANSWERS, arm, f"{said} (Kolmogorov-Smirnov p = {chance:.2g})")


_FAILURES: Final = {"are turned away for asking too often (429)": " 429", "fail": ""}
"""What errors with these endings are called."""


@looks_for("the same errors")
def same_errors(arm: ArmView) -> Iterator[Outcome]:
    own, theirs = arm.samples, arm.reference.samples
    failed = sum(sample.error is not None for sample in own)
    if failed > FAILED_SHARE * len(own):
        said = f"{failed} of {len(own)} requests of {arm.name} failed: what is left is a selection"
        yield Outcome("flagged", f"{said}; see why they do, or ask for less")
    if arm.arm is arm.reference.arm:
        return
    for what, ending in _FAILURES.items():
        failing = [[each for each in side if each.error and each.error.endswith(ending)] for side in (theirs, own)]
        first, second = map(len, failing)
        chance = _fisher(first, len(theirs), second, len(own))
        if chance >= CHANCE / len(arm.of.compared):
            continue
        share, base = second / len(own), first / len(theirs)
        low, high = difference_of_shares(first, len(theirs), second, len(own))
        points = f"{(share - base) * 100:+.3g} percentage points [{low * 100:+.3g}, {high * 100:+.3g}]"
        level: Level = "flagged"
        meaning = "a result of the arm; times are compared in the pairs in which both succeeded"
        if arm.arm.role == "again":
            level, meaning = "refused", "equal clients must fail alike: find what fails, and record again"
        said = f"{percent(share)} of {arm.name}'s requests {what}, {percent(base)} of {arm.reference.name}'s: {points}"
        yield Outcome(level, f"{said} (Fisher p = {chance:.2g}); {meaning}")
        return
    yield Outcome("passed", f"{arm.name} fails as often as {arm.reference.name}")


@looks_for("A/A copy", "cell")
def same_as_its_copy(view: CellView) -> Iterator[Outcome]:
    copies = [each for each in view.findings.comparisons if each.copy] if view.findings else []
    if not copies:
        yield Outcome("not checked", "no copy of the reference was compared, so the instrument's noise is not known")
    for each in copies:
        said = f"{each.reference} and its copy: {each.verdict.sentence} ({each.metric})"
        if each.verdict.kind not in ("better", "worse") or each.p_value is None:
            yield Outcome("passed", said)
            continue
        level: Level = "refused" if each.p_value * len(copies) < BAND_CHANCE else "flagged"
        again = ", and record again" if level == "refused" else ""
        yield Outcome(level, f"{said}: equal clients must not differ; ignore smaller effects than this{again}")


@looks_for(CONNECTIONS)
def same_connections(arm: ArmView) -> Outcome:
    """Look at measured requests alone: what a cold or a warm-up request opens is in no figure."""
    reference, openers = arm.reference, arm.of.recorded.openers
    own, theirs = openers(arm.samples), openers(reference.samples)
    if own is None or theirs is None or not arm.samples or not reference.samples:
        return Outcome("not checked", f"the connections of {arm.name} are not known")
    share, base = len(own) / len(arm.samples), len(theirs) / len(reference.samples)
    chance = _fisher(len(theirs), len(reference.samples), len(own), len(arm.samples))
    seen = f"{arm.name} opened a connection for {len(own)} of {len(arm.samples)} requests"
    differs = arm.arm is not reference.arm and chance < CHANCE / len(arm.of.compared)
    if differs and abs(share - base) > OPENED_TOLERANCE:
        said = f"{seen}, {reference.name} for {len(theirs)} of {len(reference.samples)} (Fisher p = {chance:.2g})"
        return _differing(CONNECTIONS, arm, f"{said}: opening is in the time to first token")
    if share > 0.5:
        return Outcome("flagged", f"{seen}: {_who_closes(arm)}; opening is in every time to first token")
    return Outcome("passed", seen)


def _who_closes(arm: ArmView) -> str:
    tags = {sample.tag for sample in arm.samples}
    closed = Counter(entry.connection_closed_by for entry in arm.of.recorded.log or () if entry.tag in tags)
    client, server = closed["client"], closed["server"]
    if not client and not server:
        return "who closed them is not known"
    if client < server:
        return f"the provider closed {server} of them"
    return f"its client closed {client} of them{_LEFT_UNREAD if arm.arm.client == 'openai.OpenAI' else ''}"


@looks_for(CACHED, "compared")
def same_cached(arm: ArmView) -> Outcome | None:
    if arm.cell.caching_forbidden:
        return None
    theirs, own = _cached(arm.reference), _cached(arm)
    if theirs is None or own is None:
        return Outcome("not checked", f"the provider does not report what {arm.name} had from a cache")
    if abs(own - theirs) <= CACHED_TOLERANCE:
        return Outcome("passed", f"{percent(own)} of {arm.name}'s input came from a cache")
    said = f"{percent(own)} of {arm.name}'s input came from a cache, {percent(theirs)} of {arm.reference.name}'s"
    return _differing(CACHED, arm, f"{said}: what is cached is not prefilled")


def _cached(arm: ArmView) -> float | None:
    # A provider that does not report cached tokens has not said that there were none.
    known = [each for each in arm.answered if each.cached_tokens is not None and each.input_tokens]
    whole = sum(each.input_tokens or 0 for each in known)
    return sum(each.cached_tokens or 0 for each in known) / whole if whole else None


@looks_for("cache hits where none may be")
def no_cached(arm: ArmView) -> Outcome | None:
    if not arm.cell.caching_forbidden:
        return None
    known = [sample for sample in arm.answered if sample.cached_tokens is not None]
    if not known:
        return Outcome("not checked", f"the provider does not report what {arm.name} had from a cache")
    return of_share(
        known,
        lambda sample: sample.cached_tokens,
        f"prompts of {arm.name} came in part from the provider's cache: let no two prompts begin alike",
        passed=f"{arm.name} had nothing from a cache",
        refuse_above=0.0,
    )


def _fisher(first: int, of_first: int, second: int, of_second: int) -> float:
    return float(fisher_exact([[first, of_first - first], [second, of_second - second]]).pvalue)


def difference_of_shares(first: int, of_first: int, second: int, of_second: int) -> tuple[float, float]:
    """Return the 95 % interval of `second / of_second - first / of_first`: Newcombe's method 10.

    "Interval estimation for the difference between independent proportions", Statistics in Medicine 17, 1998.
    """
    base, share = first / of_first, second / of_second
    base_low, base_high = binomtest(first, of_first).proportion_ci(method="wilson")
    low, high = binomtest(second, of_second).proportion_ci(method="wilson")
    below, above = math.hypot(share - low, base_high - base), math.hypot(high - share, base - base_low)
    return max(-1.0, share - base - below), min(1.0, share - base + above)


def same_distribution(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of the two-sample Kolmogorov-Smirnov test; 1.0 where one has less than two values."""
    return float(ks_2samp(first, second, method="asymp").pvalue) if min(len(first), len(second)) > 1 else 1.0
