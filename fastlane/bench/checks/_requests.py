"""Whether a request's times can be true, and its answer is whole and counted right."""

from __future__ import annotations

import operator
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from .._formatting import percent
from ..recorded import RecordedRun, Sample, errors_of
from ..statistics import percentile
from ._check import ArmView, Level, Outcome, looks_for, of_share, output_tokens

if TYPE_CHECKING:
    from ...emulator import RequestLog

SHORT_SHARE: Final = 0.1
"""More answers than this outside the range that was asked for, and the cell is another workload."""
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
FIGURE_SHARE: Final = 0.1
BURST_S_PER_TOKEN: Final = 0.0001
"""10,000 tokens/s in one stream come from a buffer: several times what the fastest hosted models decode."""
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
        return Outcome("passed", f"{len(asked)} answers have the length that was asked for")
    middle, early = statistics.median(map(output_tokens, asked)), sum(each.finish_reason == "stop" for each in short)
    least = min((each.least_output_tokens for each in asked if each.least_output_tokens), default=None)
    most = max((each.asked_output_tokens for each in asked if each.asked_output_tokens), default=None)
    wanted = f"{least or most:,}" if least == most else f"{least:,} to {most:,}" if least and most else ""
    wanted = wanted or (f"at least {least:,}" if least else f"at most {most or 0:,}")
    return Outcome(
        "refused" if (len(short) + len(long)) / len(asked) > SHORT_SHARE else "flagged",
        f"{arm.name} was to get {wanted} tokens an answer and got {middle:,.0f} (median): "
        f"{percent(len(short) / len(asked))} of the answers are shorter ({early} stopped by themselves), "
        f"{percent(len(long) / len(asked))} longer; have the server ignore the end of the text (ignore_eos, "
        "min_tokens) or keep to the limit (max_tokens where max_completion_tokens is ignored)",
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
        f"answers of {arm.name} broke off (they have no finish_reason) or hold no output, and so have no times; see "
        "whether the server serves several requests at once, has room for the whole answer, and sends what this client "
        "knows",
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
    return Outcome(
        "flagged",
        f"{said}, more than an estimate misses by: see whether prompts are cut off or changed on the way, or the model "
        "has another tokenizer",
    )


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
        f"answers of {arm.name} hold reasoning: its first token counts where it is streamed, and a reader waits for "
        "the time to first content token; where it is hidden, it makes the time per output token too small",
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
        f"requests of {arm.name} end before their first token, or have a token before the one before it: their stamps "
        "are not of one clock; record again",
        passed=f"{len(arm.samples)} requests end after they begin",
        refuse_above=0.0,
    )


@looks_for("buffered stream")
def streamed(arm: ArmView) -> Outcome:
    tokens = [(each, max(each.output_tokens or 0, len(each.token_ns))) for each in arm.answered]
    bursts = [
        (each.generation_time_s or 0.0) < BURST_S_PER_TOKEN * (count - 1)
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
        f"{percent(share)} of {arm.name}'s answers came in one burst: their time to first token is that of the whole "
        "generation; find what buffers the stream (server, proxy or client), or compare end-to-end times only",
    )
