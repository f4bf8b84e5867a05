"""Whether the tokens are the ones that were asked for, and whether they were counted right."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ..recorded import ArmInfo, Cell, Sample
from ._sight import Check, Sight, cut, percent, quantile, result
from ._types import CheckResult

SHORT_SHARE: Final = 0.1
"""More answers than this outside the range that was asked for, and the cell is not the workload whose name it bears:
its p90 of end to end is of answers that nobody meant."""
CUT_SHARE: Final = 0.1
"""The same for answers that broke off."""
COUNT_TOLERANCE: Final = 0.25
"""Beyond the estimate's own error: it is right to within 9 % on average for prose and code, and 10 % for most
languages (docs/tokens.md), with frames around messages that differ by model."""
COUNT_SPREAD: Final = 0.25
"""How far the middle half of the ratios may be apart: another tokenizer moves them all alike."""
CHUNK_TOLERANCE: Final = 0.05
"""Role and finish chunks excluded, one token in twenty may share a chunk with another: a character in pieces does."""

ASKED: Final = "tokens asked for"
USAGE: Final = "usage missing"
CUT: Final = "answers cut off"
EMPTY: Final = "answers without output"
COUNT: Final = "usage against own count"
CHUNKS: Final = "chunks against tokens"
REASONING: Final = "reasoning in the answers"


def as_asked(sight: Sight) -> Iterator[CheckResult]:
    """Look for answers shorter than the workload meant, or longer than it allowed."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            samples = [sample for sample in sight.answered(cell, arm) if _produced(sample)]
            asked = [sample for sample in samples if sample.asked_output_tokens or sample.least_output_tokens]
            if not asked:
                yield result(
                    ASKED, "not checked", f"nothing says how many tokens {arm.name} was to get", cell=cell, arm=arm
                )
                continue
            short = [sample for sample in asked if _produced(sample) < (sample.least_output_tokens or 0)]
            # Chunks are no more than a lower bound of tokens, so that only the usage can say too many.
            long = [
                sample
                for sample in asked
                if sample.asked_output_tokens and (sample.output_tokens or 0) > sample.asked_output_tokens
            ]
            outside = (len(short) + len(long)) / len(asked)
            middle = statistics.median(map(_produced, asked))
            values = {
                "short": len(short) / len(asked),
                "long": len(long) / len(asked),
                "median": middle,
                "finish_reasons": dict(Counter(sample.finish_reason or "none" for sample in asked)),
            }
            if not short and not long:
                yield result(
                    ASKED,
                    "passed",
                    f"{len(asked)} answers have the length that was asked for",
                    cell=cell,
                    arm=arm,
                    **values,
                )
                continue
            early = sum(sample.finish_reason == "stop" for sample in short)
            yield result(
                ASKED,
                "refused" if outside > SHORT_SHARE else "flagged",
                f"{arm.name} was to get {_range(asked)} tokens an answer and got {middle:,.0f} (median): "
                f"{percent(len(short) / len(asked))} of the answers are shorter ({early} stopped by themselves), "
                f"{percent(len(long) / len(asked))} longer; have the server ignore the end of the text (ignore_eos, "
                "min_tokens) or keep to the limit (max_tokens where max_completion_tokens is ignored), or name the "
                "workload by what it really produces",
                cell=cell,
                arm=arm,
                **values,
            )


def _produced(sample: Sample) -> int:
    """Tokens by usage; else by the server's word that the limit was reached; else the fewest: the chunks."""
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


def usage_present(sight: Sight) -> Iterator[CheckResult]:
    """Look for answers whose tokens the provider did not count."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            samples = sight.answered(cell, arm)
            missing = sum(sample.output_tokens is None for sample in samples)
            if missing:
                yield result(
                    USAGE,
                    "flagged",
                    f"{missing} of {len(samples)} answers of {arm.name} came without usage: they have no time per "
                    "output token, and chunks are not counted in its place; ask for it by "
                    'stream_options {"include_usage": true}, or take a server that reports it',
                    cell=cell,
                    arm=arm,
                    missing=missing,
                )
            elif samples:
                yield result(USAGE, "passed", "every answer has its usage", cell=cell, arm=arm)


def complete(sight: Sight) -> Iterator[CheckResult]:
    """Look for answers that ended without saying why."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            answered = [sample for sample in sight.measured(cell, arm) if sample.error is None]
            broken = [sample for sample in answered if cut(sample)]
            if answered and not sight.says_why(cell, arm):
                yield result(
                    CUT,
                    "flagged",
                    f"not one answer of {arm.name} has a finish_reason: nothing says whether they are whole; see "
                    "whether the client hides it or the server leaves it out",
                    cell=cell,
                    arm=arm,
                    cut=0,
                )
            elif broken:
                yield result(
                    CUT,
                    "refused" if len(broken) > CUT_SHARE * len(answered) else "flagged",
                    f"{len(broken)} of {len(answered)} answers of {arm.name} ended without a finish_reason (such as "
                    f"{broken[0].tag}): they broke off, whether or not [DONE] followed, and do not count as answers; "
                    "see whether the server serves several requests at once and has room for the whole answer",
                    cell=cell,
                    arm=arm,
                    cut=len(broken),
                )
            elif answered:
                yield result(CUT, "passed", f"{len(answered)} answers came to their end", cell=cell, arm=arm)


def with_output(sight: Sight) -> Iterator[CheckResult]:
    """Look for successes that hold no output at all."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            whole = sight.says_why(cell, arm)
            samples = [each for each in sight.measured(cell, arm) if each.error is None and not (whole and cut(each))]
            empty = sum(not sample.token_ns for sample in samples)
            if empty:
                yield result(
                    EMPTY,
                    "refused" if empty > CUT_SHARE * len(samples) else "flagged",
                    f"{empty} of {len(samples)} answers of {arm.name} hold no output: they have no times; see what "
                    "the server sends in their place (a filter, a field that this client does not know)",
                    cell=cell,
                    arm=arm,
                    empty=empty,
                )
            elif samples:
                yield result(EMPTY, "passed", "every answer holds output", cell=cell, arm=arm)


def counted_alike(sight: Sight) -> Iterator[CheckResult]:
    """Look for prompts whose tokens the provider counts otherwise than the workload does."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            ratios = [
                sample.input_tokens / sample.meant_input_tokens
                for sample in sight.answered(cell, arm)
                if sample.input_tokens and sample.meant_input_tokens
            ]
            if not ratios:
                yield result(
                    COUNT, "not checked", f"nobody but the provider counted {arm.name}'s tokens", cell=cell, arm=arm
                )
                continue
            middle = statistics.median(ratios)
            apart = (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / middle
            if abs(middle - 1) > COUNT_TOLERANCE or apart > COUNT_SPREAD:
                yield result(
                    COUNT,
                    "flagged",
                    f"the provider counts {percent(middle)} of the input tokens that the workload counts for "
                    f"{arm.name} (middle half {percent(apart)} apart), which is beyond what an estimate misses by: "
                    "see whether prompts are cut off or changed on the way, or whether the model's tokenizer is "
                    "another",
                    cell=cell,
                    arm=arm,
                    ratio=middle,
                    apart=apart,
                )
            else:
                yield result(
                    COUNT, "passed", f"the provider counts {percent(middle)} of the own count", cell=cell, arm=arm
                )


def tokens_per_chunk(sight: Sight) -> Iterator[CheckResult]:
    """Look for answers whose chunks are not one token each, which is what ITL is read as."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            ratios = [
                sample.output_tokens / len(sample.token_ns)
                for sample in sight.answered(cell, arm)
                if sample.output_tokens
            ]
            if not ratios:
                yield result(CHUNKS, "not checked", f"no usage of {arm.name} to compare with", cell=cell, arm=arm)
                continue
            middle = statistics.median(ratios)
            off = abs(middle - 1) > CHUNK_TOLERANCE
            yield result(
                CHUNKS,
                "flagged" if off else "passed",
                f"a chunk of {arm.name} holds {middle:.3g} tokens (median)"
                + (": ITL is a time between chunks here; compare by time per output token" if off else ""),
                cell=cell,
                arm=arm,
                tokens_per_chunk=middle,
            )


def reasoning(sight: Sight) -> Iterator[CheckResult]:
    """Look for reasoning, streamed or hidden: which token is the first depends on it."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            samples = sight.answered(cell, arm)
            shown = [sample for sample in samples if (sample.first_content_ns or 0) > sample.token_ns[0]]
            counted = [sample for sample in samples if sample.reasoning_tokens]
            # Tokens that never came as chunks: the reasoning was counted and not streamed.
            hidden = [
                sample
                for sample in counted
                if (sample.output_tokens or 0) - len(sample.token_ns) >= (sample.reasoning_tokens or 0)
                and sample not in shown
            ]
            if hidden:
                yield result(
                    REASONING,
                    "flagged",
                    f"{len(hidden)} of {len(samples)} answers of {arm.name} have reasoning that was counted and not "
                    "streamed: it is part of the time to first token, and its tokens make the time per output token "
                    "too small",
                    cell=cell,
                    arm=arm,
                    hidden=len(hidden),
                )
            elif shown or counted:
                yield result(
                    REASONING,
                    "flagged",
                    f"{max(len(shown), len(counted))} of {len(samples)} answers of {arm.name} begin with reasoning: "
                    "the first token is its first; what a reader sees begins with the time to first content token",
                    cell=cell,
                    arm=arm,
                    shown=len(shown),
                )
            elif samples:
                yield result(REASONING, "passed", "the answers hold no reasoning", cell=cell, arm=arm)


def produced(sight: Sight, cell: Cell, arm: ArmInfo) -> list[int]:
    """Return the output tokens of every answer, by usage or else by chunks."""
    return [_produced(sample) for sample in sight.answered(cell, arm)]


CHECKS: Final = (
    Check(name=ASKED, line="Output tokens against the range that the workload asked for.", look=as_asked),
    Check(name=USAGE, line="Answers without the provider's usage.", look=usage_present),
    Check(name=CUT, line="Answers without a finish_reason: they broke off.", look=complete),
    Check(name=EMPTY, line="Successes without any output.", look=with_output),
    Check(name=COUNT, line="The provider's input tokens against the workload's own count.", look=counted_alike),
    Check(name=CHUNKS, line="Tokens in a chunk: ITL is read as if it were one.", look=tokens_per_chunk),
    Check(name=REASONING, line="Reasoning in the answers, streamed or hidden.", look=reasoning),
)
