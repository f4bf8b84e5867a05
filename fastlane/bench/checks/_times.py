"""Whether a request's times can be true of one stream: their order, their sums, and whether it was a stream at all."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ..findings import Figures
from ..recorded import ArmInfo, Cell, Sample
from ._sight import Check, Sight, percent, result
from ._types import CheckResult

SUM_TOLERANCE: Final = 0.05
"""By how much sums of figures may miss each other: what the two sides leave to rounding and to the last chunk."""
BURST_S_PER_TOKEN: Final = 0.0001
"""Tokens that come faster than this come from a buffer: 10,000 tokens/s in one stream are several times what the
fastest hosted models decode."""
BURST_SHARE: Final = 0.1
"""More bursts than one in ten, and a cell's higher percentiles are of them."""
FEWEST_TOKENS: Final = 8
"""Shorter answers may come in one piece for good reasons."""

ORDER: Final = "end-to-end below first token"
FIGURES: Final = "figures out of order"
SUMS: Final = "times that do not add up"
RATE: Final = "throughput above 1 / ITL"
BUFFERED: Final = "buffered stream"
_FIRST, _WHOLE = "time_to_first_token", "api_end_to_end"


def in_order(sight: Sight) -> Iterator[CheckResult]:
    """Look for requests whose stamps run backwards."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            samples = sight.measured(cell, arm)
            wrong = [sample for sample in samples if not _ordered(sample)]
            if wrong:
                yield result(
                    ORDER,
                    "refused",
                    f"{len(wrong)} of {len(samples)} requests of {arm.name} end before their first token, or have a "
                    f"token before the one before it (such as {wrong[0].tag}): an end-to-end time holds the time to "
                    "the first token, so the two were not taken of the same request by the same clock; record again",
                    cell=cell,
                    arm=arm,
                    requests=len(wrong),
                )
            elif samples:
                yield result(ORDER, "passed", f"{len(samples)} requests end after they begin", cell=cell, arm=arm)


def _ordered(sample: Sample) -> bool:
    stamps = [sample.started_ns, *sample.token_ns, sample.ended_ns]
    return all(before <= after for before, after in pairwise(stamps)) and (
        sample.first_event_ns is None or not sample.token_ns or sample.first_event_ns <= sample.token_ns[0]
    )


def figures_in_order(sight: Sight) -> Iterator[CheckResult]:
    """Look for an arm whose end-to-end minimum, maximum, mean or percentile lies below the same of the first token."""
    for cell in sight.recorded.header.cells:
        found = sight.of_cell(cell)
        for arm in sight.arms:
            first = found.of(arm.name, _FIRST) if found else None
            whole = found.of(arm.name, _WHOLE) if found else None
            if first is None or whole is None:
                continue
            wrong = [(what, low, high) for what, low, high in _both(first, whole) if high < low]
            if wrong:
                listed = "; ".join(f"{what} {high:,.2f} ms below {low:,.2f} ms" for what, low, high in wrong)
                yield result(
                    FIGURES,
                    "refused",
                    f"{arm.name}'s end-to-end times lie below its times to first token ({listed}): no request can be "
                    "over before it begins, so the two columns are not of the same requests; compute both from one "
                    "set of records",
                    cell=cell,
                    arm=arm,
                    wrong=[what for what, _, _ in wrong],
                )
            else:
                yield result(
                    FIGURES, "passed", "every end-to-end figure lies above the first token's", cell=cell, arm=arm
                )


def _both(first: Figures, whole: Figures) -> Iterator[tuple[str, float, float]]:
    pairs = [
        ("minimum", first.minimum, whole.minimum),
        ("maximum", first.maximum, whole.maximum),
        ("mean", first.mean, whole.mean),
    ]
    pairs += [
        (f"p{share * 100:g}", quantile.value, whole.quantiles[share].value)
        for share, quantile in first.quantiles.items()
        if share in whole.quantiles
    ]
    yield from ((what, low, high) for what, low, high in pairs if low is not None and high is not None)


def adds_up(sight: Sight) -> Iterator[CheckResult]:
    """Look for arms whose ITL times tokens is not the time that they generated for."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            # What (end to end - first token) / ITL says of the tokens, beside what the usage says.
            ratios = [
                sample.output_tokens / implied
                for sample in sight.answered(cell, arm)
                if sample.output_tokens and sample.output_tokens >= 2 and (implied := implied_tokens(sample))
            ]
            if not ratios:
                yield _nothing(SUMS, cell, arm)
                continue
            middle = statistics.median(ratios)
            if abs(middle - 1) > SUM_TOLERANCE:
                yield result(
                    SUMS,
                    "flagged",
                    f"{arm.name}'s (end to end - first token) / ITL + 1 gives {percent(1 / middle)} of the tokens that "
                    f"the provider reports: a chunk is no token here; use the time per output token, which is by usage",
                    cell=cell,
                    arm=arm,
                    reported_over_implied=middle,
                )
            else:
                yield result(SUMS, "passed", "ITL times tokens is the generation time", cell=cell, arm=arm)


def implied_tokens(sample: Sample) -> float | None:
    """Return how many tokens a request's times say it had: (E2E - TTFT) / ITL + 1; None where there are no gaps."""
    each, whole = sample.inter_token_latency_s, sample.generation_time_s
    return whole / each + 1 if each and whole else None


def possible_rate(sight: Sight) -> Iterator[CheckResult]:
    """Look for single streams that report more tokens per second than their own ITL allows."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            rated = [
                (throughput, each)
                for sample in sight.answered(cell, arm)
                if (throughput := sample.output_throughput) and (each := sample.inter_token_latency_s)
            ]
            if not rated:
                yield _nothing(RATE, cell, arm)
                continue
            above = [(rate, each) for rate, each in rated if rate * each > 1 + SUM_TOLERANCE]
            if len(above) > BURST_SHARE * len(rated):
                rate, each = above[0]
                yield result(
                    RATE,
                    "flagged",
                    f"{len(above)} of {len(rated)} streams of {arm.name} report more tokens per second than 1 / ITL "
                    f"(such as {rate:,.1f} above {1 / each:,.1f}), which one stream cannot do where a chunk is a "
                    "token: chunks hold several tokens, so take neither ITL nor chunks for tokens",
                    cell=cell,
                    arm=arm,
                    share=len(above) / len(rated),
                )
            else:
                yield result(RATE, "passed", "no stream reports more than 1 / ITL", cell=cell, arm=arm)


def streamed(sight: Sight) -> Iterator[CheckResult]:
    """Look for answers that came all at once, so that the time to first token is that of the whole generation."""
    # Only where such a figure is asked for does it matter: an end-to-end time is true of a buffered answer too.
    matters = any(name != _WHOLE and name not in ("request_bytes", "price") for name in sight.recorded.header.metrics)
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            long = [sample for sample in sight.answered(cell, arm) if _tokens(sample) >= FEWEST_TOKENS]
            if not long:
                yield _nothing(BUFFERED, cell, arm)
                continue
            share = sum(map(_at_once, long)) / len(long)
            if share > BURST_SHARE:
                yield result(
                    BUFFERED,
                    "refused" if matters and share > 0.5 else "flagged",
                    f"{percent(share)} of {arm.name}'s answers came in one burst: their time to first token is that of "
                    "the whole generation, and their ITL is none; see what buffers the stream (a server that does not "
                    "stream, a proxy, a client), or compare end-to-end times only",
                    cell=cell,
                    arm=arm,
                    share=share,
                )
            else:
                yield result(BUFFERED, "passed", "the answers came as a stream", cell=cell, arm=arm)


def _at_once(sample: Sample) -> bool:
    return (sample.generation_time_s or 0.0) < BURST_S_PER_TOKEN * (_tokens(sample) - 1)


def _tokens(sample: Sample) -> int:
    return max(sample.output_tokens or 0, len(sample.token_ns))


def _nothing(name: str, cell: Cell, arm: ArmInfo) -> CheckResult:
    return result(name, "not checked", f"no answer of {arm.name} to check it by", cell=cell, arm=arm)


CHECKS: Final = (
    Check(name=ORDER, line="A request that ends before its first token, by its own stamps.", look=in_order),
    Check(name=FIGURES, line="E2E below TTFT in minimum, maximum, mean or a percentile.", look=figures_in_order),
    Check(name=SUMS, line="(E2E - TTFT) / ITL + 1 against the tokens of the usage.", look=adds_up),
    Check(name=RATE, line="More tokens per second in one stream than 1 / ITL.", look=possible_rate),
    Check(name=BUFFERED, line="Answers in one burst: a TTFT that is a whole generation.", look=streamed),
)
