"""Whether the answers are whole, have the tokens that were asked for, and were counted right."""

from __future__ import annotations

import statistics
from typing import Final

from .._formatting import percent
from ..recorded import ArmInfo, Cell, Sample
from ._check import Answers, RunView, answer, cut, looks_for, of_answers

SHORT_SHARE: Final = 0.1
"""More answers than this outside the range that was asked for, and the cell is another workload."""
CUT_SHARE: Final = 0.1
"""The same for answers that broke off."""
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


@looks_for("usage missing")
def usage_present(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for answers whose tokens the provider did not count."""
    samples = view.answered(cell, arm)
    return of_answers(
        samples,
        [sample for sample in samples if sample.output_tokens is None],
        f"answers of {arm.name} came without usage: they have no time per output token; ask for it with "
        'stream_options {"include_usage": true}',
        passed="every answer has its usage",
    )


@looks_for("answers cut off")
def complete(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for answers that ended without saying why."""
    answered = [sample for sample in view.measured(cell, arm) if sample.error is None]
    if answered and not view.says_why(cell, arm):
        return answer("flagged", f"no answer of {arm.name} has a finish_reason: nothing says whether they are whole")
    return of_answers(
        answered,
        [sample for sample in answered if cut(sample)],
        f"answers of {arm.name} ended without a finish_reason: they broke off and do not count as answers; see whether "
        "the server serves several requests at once and has room for the whole answer",
        passed=f"{len(answered)} answers came to their end",
        refuse_above=CUT_SHARE,
    )


@looks_for("answers without output")
def with_output(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for successes that hold no output at all."""
    whole = view.says_why(cell, arm)
    samples = [each for each in view.measured(cell, arm) if each.error is None and not (whole and cut(each))]
    return of_answers(
        samples,
        [sample for sample in samples if not sample.token_ns],
        f"answers of {arm.name} hold no output, and so have no times; see what the server sends instead (a filter, a "
        "field that this client does not know)",
        passed="every answer holds output",
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
