"""Whether arms can be compared, times can be true, answers are whole, and the measuring processes kept up."""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...records.bursts import BURST_NS_PER_EVENT
from .._formatting import percent
from ..recorded import RecordedRun, Sample, Vitals, errors_of, metric_named
from ..statistics import percentile
from ._check import ArmView, CellView, Level, Outcome, looks_for, of_share, output_tokens

if TYPE_CHECKING:
    from ...emulator import RequestLog


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
    reference, opened = arm.reference, arm.of.recorded.connections_opened
    own, theirs = opened(arm.samples), opened(reference.samples)
    if own is None or theirs is None or not arm.samples or not reference.samples:
        return Outcome("not checked", f"the connections of {arm.name} are not known")
    share, base = own / len(arm.samples), theirs / len(reference.samples)
    chance = _fisher(theirs, len(reference.samples), own, len(arm.samples))
    seen = f"{arm.name} opened a connection for {own} of {len(arm.samples)} requests"
    differs = arm.arm is not reference.arm and chance < CHANCE / len(arm.of.compared)
    if differs and abs(share - base) > OPENED_TOLERANCE:
        said = f"{seen}, {reference.name} for {theirs} of {len(reference.samples)} (Fisher p = {chance:.2g})"
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
    from scipy.stats import fisher_exact

    return float(fisher_exact([[first, of_first - first], [second, of_second - second]]).pvalue)


def difference_of_shares(first: int, of_first: int, second: int, of_second: int) -> tuple[float, float]:
    """Return the 95 % interval of `second / of_second - first / of_first`: Newcombe's method 10.

    "Interval estimation for the difference between independent proportions", Statistics in Medicine 17, 1998.
    """
    from scipy.stats import binomtest

    base, share = first / of_first, second / of_second
    base_low, base_high = binomtest(first, of_first).proportion_ci(method="wilson")
    low, high = binomtest(second, of_second).proportion_ci(method="wilson")
    below, above = math.hypot(share - low, base_high - base), math.hypot(high - share, base - base_low)
    return max(-1.0, share - base - below), min(1.0, share - base + above)


def same_distribution(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of the two-sample Kolmogorov-Smirnov test; 1.0 where one has less than two values."""
    from scipy.stats import ks_2samp

    return float(ks_2samp(first, second, method="asymp").pvalue) if min(len(first), len(second)) > 1 else 1.0


SHORT_SHARE: Final = 0.1
"""More answers than this outside the requested range, and the cell is another workload."""
CUT_SHARE: Final = 0.1
"""The same for answers that broke off, or are empty."""
COUNT_TOLERANCE: Final = 0.25
"""Beyond the estimate's own error: it is right to within 9 % on average for prose and code, and 10 % for most
languages (docs/tokens.md), with frames around messages that differ by model."""
CHUNK_TOLERANCE: Final = 0.05
"""One token in twenty may share a chunk with another: a character in pieces does."""
BUSY_LAG_MS: Final = 10.0
"""A p95 of an arm's lags above this comes from a busy machine, not from the client."""
EARLY_MS: Final = 1.0
"""A token cannot be seen before it arrives: the emulated wire is timed to less than this."""
BURST_SHARE: Final = 0.1
"""More bursts than one in ten, and a cell's higher percentiles are of them."""
FEWEST_TOKENS: Final = 8
"""Shorter answers may come in one piece for good reasons."""
_NO_LOG: Final = Outcome("not checked", "this provider gives no log of its own")


@looks_for("tokens asked for")
def as_asked(arm: ArmView) -> Outcome:
    asked = [each for each in arm.answered if output_tokens(each)]
    asked = [each for each in asked if each.asked_output_tokens or each.least_output_tokens]
    if not asked:
        return Outcome("not checked", f"nothing says how many tokens {arm.name} was to get")
    short = [each for each in asked if output_tokens(each) < (each.least_output_tokens or 0)]
    # Chunks are no more than a lower bound of tokens, so that only the usage can say too many.
    long = [each for each in asked if 0 < (each.asked_output_tokens or 0) < (each.output_tokens or 0)]
    if not short and not long:
        return Outcome("passed", f"{len(asked)} answers have the requested length")
    middle, early = statistics.median(map(output_tokens, asked)), sum(each.finish_reason == "stop" for each in short)
    least = min((each.least_output_tokens for each in asked if each.least_output_tokens), default=None)
    most = max((each.asked_output_tokens for each in asked if each.asked_output_tokens), default=None)
    wanted = f"{least or most:,}" if least == most else f"{least:,} to {most:,}" if least and most else ""
    wanted = wanted or (f"at least {least:,}" if least else f"at most {most or 0:,}")
    return Outcome(
        "refused" if (len(short) + len(long)) / len(asked) > SHORT_SHARE else "flagged",
        f"{arm.name} was to get {wanted} tokens an answer and got {middle:,.0f} (median): "
        f"{percent(len(short) / len(asked))} of the answers are shorter ({early} stopped by themselves), "
        f"{percent(len(long) / len(asked))} longer; have the server take ignore_eos, min_tokens or max_tokens",
    )


@looks_for("answers cut off")
def complete(arm: ArmView) -> Outcome | None:
    samples = [sample for sample in arm.samples if sample.error is None]
    broken = errors_of(samples)
    if samples and all(each.token_ns and each.finish_reason is None and each.key not in broken for each in samples):
        return Outcome("flagged", f"no answer of {arm.name} has a finish_reason: nothing says whether they are whole")
    return of_share(
        samples,
        lambda sample: sample.key in broken or not sample.token_ns,
        f"answers of {arm.name} broke off (they have no finish_reason) or hold no output; see whether the server has "
        "room for the whole answer, and serves several requests at once",
        passed=f"{len(samples)} answers came to their end",
        refuse_above=CUT_SHARE,
    )


@looks_for("usage against own count")
def counted_alike(arm: ArmView) -> Outcome:
    both = [each for each in arm.answered if each.input_tokens and each.meant_input_tokens]
    if not both:
        return Outcome("not checked", f"only the provider counted {arm.name}'s tokens")
    middle = statistics.median((each.input_tokens or 0) / (each.meant_input_tokens or 1) for each in both)
    said = f"the provider counts {percent(middle)} of the input tokens that the workload counts for {arm.name}"
    if abs(middle - 1) <= COUNT_TOLERANCE:
        return Outcome("passed", said)
    return Outcome("flagged", f"{said}: see whether prompts are cut off, or the model has another tokenizer")


@looks_for("chunks against tokens")
def tokens_per_chunk(arm: ArmView) -> Outcome:
    """Look for chunks that are not one token each, which is what ITL is read as."""
    ratios = [each.output_tokens / len(each.token_ns) for each in arm.answered if each.output_tokens]
    if not ratios:
        return Outcome("not checked", f"no usage of {arm.name} to compare with")
    middle = statistics.median(ratios)
    said = f"a chunk of {arm.name} holds {middle:.3g} tokens (median)"
    if abs(middle - 1) <= CHUNK_TOLERANCE:
        return Outcome("passed", said)
    why = "ITL is a time between chunks here, and 1 / ITL no speed; compare by time per output token"
    return Outcome("flagged", f"{said}: {why}")


@looks_for("reasoning in the answers")
def reasoning(arm: ArmView) -> Outcome | None:
    return of_share(
        arm.answered,
        lambda sample: sample.reasoning_tokens or (sample.first_content_ns or 0) > sample.token_ns[0],
        f"answers of {arm.name} hold reasoning: if streamed, its first token counts; if hidden, it makes the time per "
        "output token too small",
        passed="the answers hold no reasoning",
    )


@looks_for("requests on both sides", "run")
def requests_known(recorded: RecordedRun) -> Iterator[Outcome]:
    if recorded.log is None:
        yield _NO_LOG
        return
    tries = Counter(entry.tag or f"(no tag: {entry.request_id})" for entry in recorded.log)
    sent = {sample.tag for sample in recorded.samples}
    # A session that was killed took the provider's log of these with it.
    known = tries.keys() | set(recorded.unlogged)
    # What failed may have failed before it was sent, or was cut off before it was read.
    answered = [each.tag for each in recorded.samples if each.error is None or each.response_ns is not None]
    unseen, unknown = [tag for tag in answered if tag not in known], [tag for tag in tries if tag not in sent]
    sides = (
        (unseen, "the clients are missing in the provider's log"),
        (unknown, "the provider's log are missing at the clients"),
    )
    for tags, said in sides:
        if tags:
            named = f"{', '.join(tags[:5])}{', …' if len(tags) > 5 else ''}"
            yield Outcome("refused", f"{len(tags)} requests of {said}: {named}; record again")
    if not unseen and not unknown:
        unlogged = len(recorded.unlogged)
        lost = f"; the account of {unlogged} more was lost with a session that was killed" if unlogged else ""
        yield Outcome("passed", f"{len(tries)} requests are the same on both sides, in {tries.total()} tries{lost}")


@looks_for("times by the server's log")
def times_agree(arm: ArmView) -> Outcome:
    if arm.logged is None:
        return _NO_LOG
    way_ns = arm.of.recorded.header.one_way_s * 1e9
    lags = [(own.token_ns[0] - their.token_ns[0] - way_ns) / 1e6 for own, their in arm.logged if their.token_ns]
    if not lags:
        return Outcome("not checked", f"no answer of {arm.name} on both sides")
    middle, high, figure = percentile(lags, 0.5), percentile(lags, 0.95), arm.time_to_first_token_ms or 0.0
    said = f"{arm.name} stamped first tokens {middle:.3g} ms (p50), {high:.3g} ms (p95) after their arrival"
    if min(lags) < -EARLY_MS:
        return Outcome("refused", f"{said}, and up to {-min(lags):.3g} ms before it: the two clocks differ")
    if middle > FIGURE_SHARE * figure:
        return Outcome("refused", f"{said}, a tenth or more of the time to first token ({figure:,.4g} ms) itself")
    if high > BUSY_LAG_MS:
        return Outcome("flagged", f"{said}, over {BUSY_LAG_MS:g} ms: the machine was busy with something else")
    return Outcome("passed", said)


# Tokens are in the figures; chunks and bytes are beside them.
_COUNTS: Final[tuple[tuple[str, Level, Callable[[Sample, RequestLog], tuple[int | None, int]]], ...]] = (
    ("output tokens", "refused", lambda own, their: (own.output_tokens, their.output_tokens)),
    ("cached tokens", "refused", lambda own, their: (own.cached_tokens, their.cached_tokens)),
    ("chunks", "flagged", lambda own, their: (len(own.token_ns), len(their.token_ns))),
    ("bytes of a request", "flagged", lambda own, their: (own.request_bytes, their.bytes_in)),
)


@looks_for("counts by the server's log")
def counts_agree(arm: ArmView) -> Iterator[Outcome]:
    if arm.logged is None:
        yield _NO_LOG
        return
    agree = True
    for what, level, both in _COUNTS:
        counts = [(own.tag, *both(own, their)) for own, their in arm.logged]
        if off := [(tag, ours - theirs) for tag, ours, theirs in counts if ours is not None and ours != theirs]:
            agree = False
            tag, by = max(off, key=lambda each: abs(each[1]))
            yield Outcome(level, f"{arm.name} and the provider's log count {what} differently, by {by:+,.0f} in {tag}")
    if arm.logged and agree:
        yield Outcome("passed", "tokens, chunks and bytes are the same on both sides")


@looks_for("end-to-end below first token")
def in_order(arm: ArmView) -> Outcome | None:
    def runs_backwards(sample: Sample) -> bool:
        stamps = [sample.started_ns, *sample.token_ns, sample.ended_ns]
        return any(map(operator.gt, stamps, stamps[1:])) or (sample.first_event_ns or 0) > stamps[1]

    return of_share(
        arm.samples,
        runs_backwards,
        f"requests of {arm.name} have stamps that run backwards: they are not of one clock; record again",
        passed=f"{len(arm.samples)} requests end after they begin",
        refuse_above=0.0,
    )


@looks_for("buffered stream")
def streamed(arm: ArmView) -> Outcome:
    tokens = [(each, max(each.output_tokens or 0, len(each.token_ns))) for each in arm.answered]
    bursts = [
        (each.generation_time_s or 0.0) < BURST_NS_PER_EVENT * 1e-9 * (count - 1)
        for each, count in tokens
        if count >= FEWEST_TOKENS
    ]
    if not bursts:
        return Outcome("not checked", f"no answer of {arm.name} to check it by")
    share = sum(bursts) / len(bursts)
    if share <= BURST_SHARE:
        return Outcome("passed", "the answers came as a stream")
    # An end-to-end time is true of a buffered answer too.
    matters = set(arm.of.recorded.header.metrics) - {"api_end_to_end", "request_bytes", "price"}
    return Outcome(
        "refused" if matters and share > 0.5 else "flagged",
        f"{percent(share)} of {arm.name}'s answers came in one burst: their time to first token is a generation's; "
        "find what buffers the stream, or compare end-to-end times only",
    )


# The measuring processes


CPU_SHARE: Final = 0.7
"""Of a core. A client's delays were seen to grow steeply beyond: at 100 % openai's reports 857 ms for 50."""
FIGURE_SHARE: Final = 0.1
"""A p99 of lags that is a tenth of the time to first token is a part of the figure."""
IDLE_SHARE: Final = 0.35
_TAILS: Final = (
    ", though it used only {} of a core: the machine kept it waiting now and then. Medians hold, percentiles above p75 "
    "do not; leave the machine alone, or take a larger one"
)
_REMEDY: Final = "spread the lanes over more processes (--processes) or ask for less"
_LATENESS: Final = {
    "refused": f": its times hold its own delay; {_REMEDY}",
    "flagged": ": medians hold, p99 and smaller effects do not",
}


@looks_for("client saturated: CPU", "process")
def cpu(_view: CellView, arm: str | None, vitals: Vitals) -> Outcome:
    said = f"the process of {arm or 'the coordinator'} used {percent(vitals.cpu_share)} of a core"
    if vitals.cpu_share <= CPU_SHARE:
        return Outcome("passed", said)
    # The coordinator delays no stamp: only an open load's start, which has its own check.
    level: Level = "flagged" if arm is None else "refused"
    return Outcome(level, f"{said}, over {percent(CPU_SHARE)}: its times hold its own work; {_REMEDY}")


@looks_for("client saturated: lag", "process")
def lag(view: CellView, arm: str | None, vitals: Vitals) -> Outcome:
    whose, middle, p99 = arm or "the coordinator", vitals.loop_lag_p50_ms or 0.0, vitals.loop_lag_p99_ms
    if p99 is None:
        return Outcome("not checked", f"the lag of {whose} was not probed")
    limit = view.lag_limit_ms
    figure = min(filter(None, (each.time_to_first_token_ms for each in view.arms)), default=None)
    level = _late(middle, p99, limit, figure)
    # Late now and then, and idle otherwise: pairs and medians bear that, and what is above p75 does not.
    tails = level == "refused" and middle <= limit and vitals.cpu_share < IDLE_SHARE
    why = _TAILS.format(percent(vitals.cpu_share)) if tails else _LATENESS.get(level, "")
    return Outcome(
        "flagged" if arm is None and level == "refused" else level,
        f"what came to the process of {whose} waited {middle:.2g} ms (p50) and {p99:.3g} ms (p99) for it, where "
        f"{limit:.2g} ms are allowed{why}",
        tails=tails and arm is not None,
    )


def _late(middle_ms: float, p99_ms: float, limit_ms: float, figure_ms: float | None) -> Level:
    """Grade lags: late once in a hundred blurs p99, late every other time or by a tenth of the figure moves it."""
    if p99_ms <= limit_ms:
        return "passed"
    return "refused" if middle_ms > limit_ms or p99_ms > FIGURE_SHARE * (figure_ms or math.inf) else "flagged"


@looks_for("client saturated: delivery")
def delivery(arm: ArmView) -> Outcome:
    gaps = [sample.delivery_gap_ms for sample in arm.answered if sample.delivery_gap_ms is not None]
    if not gaps:
        return Outcome("not checked", f"{arm.name}'s client does not say when chunks arrived")
    # A stream's longest gap is about the p99 of its chunks' gaps.
    limit, middle = arm.of.lag_limit_ms, percentile(gaps, 0.5)
    level = _late(0.0, middle, limit, arm.time_to_first_token_ms)
    return Outcome(
        level,
        f"the longest wait of an arrived chunk in a stream of {arm.name} is {middle:.3g} ms (median), where "
        f"{limit:.2g} ms are allowed{_LATENESS.get(level, '')}",
    )


@looks_for("dispatch delay")
def dispatch(arm: ArmView) -> Outcome | None:
    if arm.cell.load != "open":
        return None
    delays = [each * 1e3 for sample in arm.samples if (each := sample.dispatch_delay_s) is not None]
    if not delays:
        return Outcome("not checked", f"no schedule of {arm.name} was recorded")
    limit, p99 = arm.of.lag_limit_ms, percentile(delays, 0.99)
    level = _late(percentile(delays, 0.5), p99, limit, arm.time_to_first_token_ms)
    return Outcome(
        level,
        f"{arm.name}'s requests were sent {p99:.3g} ms (p99) after their time, where {limit:.2g} ms are allowed; "
        f"figures count from the time that was meant{_LATENESS.get(level, '')}",
    )


NEIGHBOUR_TOLERANCE: Final = 1.25
"""A cell that lies a quarter above both of its neighbours, or below: in a load report of gpt-4.1-nano one cell of a
sweep in order stood at 1.37 s between 0.50 s and 0.53 s."""
FEWEST_FOR_NEIGHBOURS: Final = 10


@looks_for("out of line in a sweep")
def in_line(arm: ArmView) -> Outcome | None:
    recorded, cell = arm.of.recorded, arm.cell
    sweep = [each for each in recorded.header.cells if (each.workload, each.load) == (cell.workload, cell.load)]
    sweep.sort(key=lambda each: each.users or each.rate or 0.0)
    at = sweep.index(cell)
    if not 0 < at < len(sweep) - 1:
        return None
    views = [ArmView(CellView(recorded, each), arm.arm) for each in sweep[at - 1 : at + 2]]
    for metric in map(metric_named, ("time_to_first_token", "time_per_output_token")):
        series = [[each for sample in view.answered if (each := metric.value(sample))] for view in views]
        if min(map(len, series)) < FEWEST_FOR_NEIGHBOURS:
            continue
        low, middle, high = map(statistics.median, series)
        if not min(low, high) / NEIGHBOUR_TOLERANCE <= middle <= max(low, high) * NEIGHBOUR_TOLERANCE:
            return Outcome(
                "flagged",
                f"{arm.name}'s {metric.title.lower()} is {middle:,.4g} ms (median) between {low:,.4g} ms at "
                f"{sweep[at - 1].name} and {high:,.4g} ms at {sweep[at + 1].name}, which load does not explain; run "
                "this cell again",
            )
    return Outcome("passed", "it lies in line with its neighbours")
