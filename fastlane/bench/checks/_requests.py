"""Whether a request's times can be true, and its answer is whole and counted right."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from .._formatting import percent
from ..recorded import ArmInfo, Cell, Sample, errors_of
from ..statistics import percentile
from ._check import Answers, CheckResult, Level, RunView, answer, looks_for, of_answers

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


@looks_for("tokens asked for")
def as_asked(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for answers shorter than the workload meant, or longer than it allowed."""
    samples = [sample for sample in view.answered(cell, arm) if _produced(sample)]
    asked = [sample for sample in samples if sample.asked_output_tokens or sample.least_output_tokens]
    if not asked:
        return answer("not checked", f"nothing says how many tokens {arm.name} was to get")
    short = [sample for sample in asked if _produced(sample) < (sample.least_output_tokens or 0)]
    # Chunks are no more than a lower bound of tokens, so that only the usage can say too many.
    long = [
        sample
        for sample in asked
        if sample.asked_output_tokens and (sample.output_tokens or 0) > sample.asked_output_tokens
    ]
    middle = statistics.median(map(_produced, asked))
    if not short and not long:
        return answer("passed", f"{len(asked)} answers have the length that was asked for")
    early = sum(sample.finish_reason == "stop" for sample in short)
    return answer(
        "refused" if (len(short) + len(long)) / len(asked) > SHORT_SHARE else "flagged",
        f"{arm.name} was to get {_range(asked)} tokens an answer and got {middle:,.0f} (median): "
        f"{percent(len(short) / len(asked))} of the answers are shorter ({early} stopped by themselves), "
        f"{percent(len(long) / len(asked))} longer; have the server ignore the end of the text (ignore_eos, "
        "min_tokens) or keep to the limit (max_tokens where max_completion_tokens is ignored)",
    )


def _produced(sample: Sample) -> int:
    """Return tokens by usage; else by the server's word that the limit was reached; else the fewest: the chunks."""
    if sample.output_tokens is not None:
        return sample.output_tokens
    if sample.finish_reason == "length" and sample.asked_output_tokens:
        # A token may be without text of its own (a part of a character), and then comes in no chunk.
        return max(sample.asked_output_tokens, len(sample.token_ns))
    return len(sample.token_ns)


def _range(samples: list[Sample]) -> str:
    least = min((sample.least_output_tokens for sample in samples if sample.least_output_tokens), default=None)
    most = max((sample.asked_output_tokens for sample in samples if sample.asked_output_tokens), default=None)
    if least is None or most is None:
        return f"at least {least:,}" if least is not None else f"at most {most:,}"
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


@looks_for("answers cut off")
def complete(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for answers that ended without saying why, or hold no output at all."""
    samples = [sample for sample in view.measured(cell, arm) if sample.error is None]
    broken = errors_of(samples)
    bad = [sample for sample in samples if sample.key in broken or not sample.token_ns]
    if samples and not bad and all(sample.finish_reason is None for sample in samples):
        return answer("flagged", f"no answer of {arm.name} has a finish_reason: nothing says whether they are whole")
    return of_answers(
        samples,
        bad,
        f"answers of {arm.name} broke off (they have no finish_reason) or hold no output, and so have no times; see "
        "whether the server serves several requests at once, has room for the whole answer, and sends what this client "
        "knows",
        passed=f"{len(samples)} answers came to their end",
        refuse_above=CUT_SHARE,
    )


@looks_for("usage against own count")
def counted_alike(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for prompts whose tokens the provider and the workload count differently."""
    ratios = [
        sample.input_tokens / sample.meant_input_tokens
        for sample in view.answered(cell, arm)
        if sample.input_tokens and sample.meant_input_tokens
    ]
    if not ratios:
        return answer("not checked", f"only the provider counted {arm.name}'s tokens")
    middle = statistics.median(ratios)
    said = f"the provider counts {percent(middle)} of the input tokens that the workload counts for {arm.name}"
    if abs(middle - 1) <= COUNT_TOLERANCE:
        return answer("passed", said)
    return answer(
        "flagged",
        f"{said}, more than an estimate misses by: see whether prompts are cut off or changed on the way, or the model "
        "has another tokenizer",
    )


@looks_for("chunks against tokens")
def tokens_per_chunk(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for answers whose chunks are not one token each, which is what ITL is read as.

    Where they are not, (E2E - TTFT) / ITL + 1 misses the tokens of the usage by the same factor.
    """
    ratios = [
        sample.output_tokens / len(sample.token_ns) for sample in view.answered(cell, arm) if sample.output_tokens
    ]
    if not ratios:
        return answer("not checked", f"no usage of {arm.name} to compare with")
    middle = statistics.median(ratios)
    off = abs(middle - 1) > CHUNK_TOLERANCE
    why = ": ITL is a time between chunks here, and 1 / ITL no speed; compare by time per output token" if off else ""
    said = f"a chunk of {arm.name} holds {middle:.3g} tokens (median){why}"
    return answer("flagged" if off else "passed", said)


@looks_for("reasoning in the answers")
def reasoning(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for reasoning, streamed or hidden: which token is the first depends on it."""
    samples = view.answered(cell, arm)
    return of_answers(
        samples,
        [each for each in samples if each.reasoning_tokens or (each.first_content_ns or 0) > each.token_ns[0]],
        f"answers of {arm.name} hold reasoning: its first token counts where it is streamed, and a reader waits for "
        "the time to first content token; where it is hidden, it makes the time per output token too small",
        passed="the answers hold no reasoning",
    )


def produced(view: RunView, cell: Cell, arm: ArmInfo) -> list[int]:
    """Return the output tokens of every answer, by usage or else by chunks."""
    return [_produced(sample) for sample in view.answered(cell, arm)]


BUSY_LAG_MS: Final = 10.0
"""A p95 of an arm's lags above this comes from a busy machine, not from the client."""
EARLY_MS: Final = 1.0
"""A token cannot be seen before it arrives: the emulated wire is timed to less than this."""
FIGURE_SHARE: Final = 0.1
"""A typical lag of a tenth of the time to first token is a part of the figure."""
BURST_S_PER_TOKEN: Final = 0.0001
"""10,000 tokens/s in one stream come from a buffer: several times what the fastest hosted models decode."""
BURST_SHARE: Final = 0.1
"""More bursts than one in ten, and a cell's higher percentiles are of them."""
FEWEST_TOKENS: Final = 8
"""Shorter answers may come in one piece for good reasons."""
_NO_LOG: Final = "this provider gives no log of its own"


def _by_tag(log: Iterable[RequestLog]) -> dict[str, list[RequestLog]]:
    entries: dict[str, list[RequestLog]] = defaultdict(list)
    for entry in log:
        entries[entry.tag or f"(no tag: {entry.request_id})"].append(entry)
    return dict(entries)


@looks_for("requests on both sides", "run")
def requests_known(view: RunView) -> Iterator[CheckResult]:
    """Look for requests that only one side knows of."""
    recorded = view.recorded
    if recorded.log is None:
        yield answer("not checked", _NO_LOG)
        return
    entries, sent = _by_tag(recorded.log), {sample.tag for sample in recorded.samples}
    # A session that was killed took the provider's log of these with it.
    known = entries.keys() | set(recorded.unlogged)
    unseen = [
        sample.tag
        for sample in recorded.samples
        # What failed may have failed before it was sent, or was cut off before it was read.
        if sample.tag not in known and (sample.error is None or sample.response_ns is not None)
    ]
    unknown = [tag for tag in entries if tag not in sent]
    for tags, whose, where in (
        (unseen, "the clients", "in the provider's log"),
        (unknown, "the provider's log", "at the clients"),
    ):
        if tags:
            named = f"{', '.join(tags[:5])}{', …' if len(tags) > 5 else ''}"
            yield answer("refused", f"{len(tags)} requests of {whose} are missing {where}: {named}; record again")
    if not unseen and not unknown:
        unlogged = len(recorded.unlogged)
        lost = f"; the account of {unlogged} more was lost with a session that was killed" if unlogged else ""
        tries = sum(map(len, entries.values()))
        yield answer("passed", f"{len(entries)} requests are the same on both sides, in {tries} tries{lost}")


@looks_for("times by the server's log")
def times_agree(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for first tokens that clients stamped before they can have arrived, or long after."""
    if view.recorded.log is None:
        return answer("not checked", _NO_LOG)
    entries = _by_tag(view.recorded.log)
    way_ns = view.recorded.header.one_way_s * 1e9
    lags = [
        (sample.token_ns[0] - entries[sample.tag][-1].token_ns[0] - way_ns) / 1e6
        for sample in view.answered(cell, arm)
        if sample.tag in entries and entries[sample.tag][-1].token_ns
    ]
    if not lags:
        return answer("not checked", f"no answer of {arm.name} on both sides")
    middle, high = percentile(lags, 0.5), percentile(lags, 0.95)
    figure = view.time_to_first_token_ms(cell, arm) or 0.0
    level: Level = "passed"
    why = ""
    if min(lags) < -EARLY_MS:
        level, why = "refused", f", and up to {-min(lags):.3g} ms before it: the two clocks differ"
    elif middle > FIGURE_SHARE * figure:
        level, why = "refused", f", a tenth or more of the time to first token ({figure:,.4g} ms) itself"
    elif high > BUSY_LAG_MS:
        level, why = "flagged", f", over {BUSY_LAG_MS:g} ms: the machine was busy with something else"
    sentence = f"{arm.name} stamped first tokens {middle:.3g} ms (p50), {high:.3g} ms (p95) after their arrival{why}"
    return answer(level, sentence)


@looks_for("counts by the server's log")
def counts_agree(view: RunView, cell: Cell, arm: ArmInfo) -> Iterator[CheckResult]:
    """Look for answers whose tokens, chunks or bytes the two sides count differently."""
    if view.recorded.log is None:
        yield answer("not checked", _NO_LOG)
        return
    entries = _by_tag(view.recorded.log)
    # Tokens are in the figures; chunks and bytes are beside them.
    counted: tuple[tuple[str, Level, Callable[[Sample, RequestLog], int | None]], ...] = (
        ("output tokens", "refused", lambda own, their: _less(own.output_tokens, their.output_tokens)),
        ("cached tokens", "refused", lambda own, their: _less(own.cached_tokens, their.cached_tokens)),
        ("chunks", "flagged", lambda own, their: len(own.token_ns) - len(their.token_ns)),
        ("bytes of a request", "flagged", lambda own, their: _less(own.request_bytes, their.bytes_in)),
    )
    both = [(each, entries[each.tag][-1]) for each in view.answered(cell, arm) if each.tag in entries]
    agree = True
    for what, level, difference in counted:
        off = ((own.tag, difference(own, their)) for own, their in both)
        worst = max(((tag, by) for tag, by in off if by), key=lambda each: abs(each[1]), default=None)
        if worst is not None:
            agree = False
            said = f"{arm.name} and the provider's log count {what} differently, by {worst[1]:+,.0f} in {worst[0]}"
            yield answer(level, said)
    if both and agree:
        yield answer("passed", "tokens, chunks and bytes are the same on both sides")


def _less(own: int | None, their: int) -> int | None:
    return None if own is None else own - their


@looks_for("end-to-end below first token")
def in_order(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for requests whose stamps run backwards."""
    samples = view.measured(cell, arm)
    return of_answers(
        samples,
        [sample for sample in samples if not _ordered(sample)],
        f"requests of {arm.name} end before their first token, or have a token before the one before it: their stamps "
        "are not of one clock; record again",
        passed=f"{len(samples)} requests end after they begin",
        refuse_above=0.0,
    )


def _ordered(sample: Sample) -> bool:
    stamps = [sample.started_ns, *sample.token_ns, sample.ended_ns]
    return all(before <= after for before, after in pairwise(stamps)) and (
        sample.first_event_ns is None or not sample.token_ns or sample.first_event_ns <= sample.token_ns[0]
    )


@looks_for("buffered stream")
def streamed(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for answers that came all at once, so that the time to first token is that of the whole generation."""
    # An end-to-end time is true of a buffered answer too.
    matters = set(view.recorded.header.metrics) - {"api_end_to_end", "request_bytes", "price"}
    long = [sample for sample in view.answered(cell, arm) if _tokens(sample) >= FEWEST_TOKENS]
    if not long:
        return answer("not checked", f"no answer of {arm.name} to check it by")
    share = sum(map(_at_once, long)) / len(long)
    if share <= BURST_SHARE:
        return answer("passed", "the answers came as a stream")
    return answer(
        "refused" if matters and share > 0.5 else "flagged",
        f"{percent(share)} of {arm.name}'s answers came in one burst: their time to first token is that of the whole "
        "generation; find what buffers the stream (server, proxy or client), or compare end-to-end times only",
    )


def _at_once(sample: Sample) -> bool:
    return (sample.generation_time_s or 0.0) < BURST_S_PER_TOKEN * (_tokens(sample) - 1)


def _tokens(sample: Sample) -> int:
    return max(sample.output_tokens or 0, len(sample.token_ns))
