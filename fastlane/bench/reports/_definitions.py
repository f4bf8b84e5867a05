"""What the terms of a report mean, in the words of docs/measuring.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ._blocks import Definition, Definitions

METRIC_TERMS: Final = {
    "time_to_first_token": Definition(
        term="Time to first token (TTFT)",
        text="From just before the call until its first output, reasoning included; connecting is inside.",
    ),
    "time_to_first_content_token": Definition(
        term="Time to first content token",
        text=(
            "The same until the first output that is no reasoning: what a user of a model that reasons first waits for."
        ),
    ),
    "time_per_output_token": Definition(
        term="Time per output token (TPOT)",
        text=(
            "(E2E - TTFT) / (output tokens - 1), with these parentheses: the first token is outside, because TTFT has"
            " it already, which is why one is subtracted. Tokens by the provider's usage, never by chunks. Some load "
            "generators put TTFT inside what they call TPOT: their figures are larger and cannot be compared with "
            "these."
        ),
    ),
    "inter_token_latency": Definition(
        term="Inter-token latency (ITL)",
        text="The mean time between a request's chunks with output; a chunk may carry several tokens.",
    ),
    "generation_time": Definition(
        term="Token generation time",
        text="E2E - TTFT: from the first output to the last one.",
    ),
    "api_end_to_end": Definition(
        term="API end-to-end (E2E)",
        text="From the same start until the last output.",
    ),
    "decode_speed": Definition(
        term="Decode speed",
        text="1 / TPOT, as one user sees it.",
    ),
    "output_throughput": Definition(
        term="Output throughput",
        text="Output tokens of a request over its E2E.",
    ),
    "request_bytes": Definition(
        term="Request body",
        text="Bytes of the body as sent, without headers, framing and TLS.",
    ),
    "price": Definition(term="Price", text="US dollars of one request by its usage and the catalog's prices."),
}
"""A metric's term and what it means."""

INTERVAL: Final = Definition(
    term="Intervals",
    text=(
        "Figures in brackets bound a 95 % confidence interval: of a percentile by order statistics, of a change "
        "by the pairs. The intervals of typical changes are widened so that those of all metrics and arms of a cell "
        "hold together with 95 %. A percentile is left out where n is too small for one: a p95 wants 72 requests, a "
        "p99 368. Failed requests count in the percentiles as slower than all others."
    ),
)
CHANGE: Final = Definition(
    term="Change",
    text=(
        "By what factor a request typically changes, written as a change: the Hodges-Lehmann estimate over the "
        "log-ratios of pairs of equal requests, sent one after the other in random order. It is not the ratio of "
        "two p50, which belong to different requests."
    ),
)
VERDICT: Final = Definition(
    term="Verdicts",
    text=(
        "Read from the interval of the typical change: better or worse where it excludes no change, equivalent where "
        "it lies within the margin. Otherwise no difference is shown, which does not mean that there is none. The "
        "intervals of a cell hold together with 95 %, so that any wrong verdict in it has a chance of 5 %."
    ),
)
COULD_SHOW: Final = Definition(
    term="Could have shown",
    text="The smallest change that a run of this size would have shown in nine cases of ten.",
)
INSTRUMENT: Final = Definition(
    term="Instrument noise",
    text=(
        "The reference beside a copy of itself (A/A), in the same pairs: no effect inside this band is worth anything."
    ),
)
ATTRIBUTION: Final = Definition(
    term="Attribution",
    text=(
        "Alone: what a play changes when it is added to nothing. Last: what it changes when it is added to all "
        "others. Share: the mean of both, scaled so that the shares add up to the whole. Interaction: the whole "
        "minus the sum of what each does alone."
    ),
)
PHASES: Final = Definition(
    term="Phases",
    text=(
        "Means over the requests that succeeded; unlike percentiles, means of phases add up to the mean of the whole."
    ),
)
USERS: Final = Definition(
    term="Users",
    text=(
        "Requests in flight at the same time under a closed load, of all arms together: each user sends the arms' "
        "requests of a block one after the other, in random order, and the next block after its pause."
    ),
)
EFFICIENCY: Final = Definition(
    term="Scaling efficiency",
    text=(
        "A user's decode speed (p50) at N users over the same at the fewest users: 100 % where more users cost "
        "nobody anything. Its bounds are the worst and the best that the intervals of both allow together."
    ),
)
BANDS: Final = Definition(
    term="Bands of inter-token latency",
    text=(
        "Below 20 ms a stream feels instant; from 20 to 70 ms noticeably slower but acceptable; above 70 ms sluggish."
    ),
)
CV: Final = Definition(term="CV", text="Coefficient of variation: the standard deviation (with n - 1) over the mean.")
FACTOR: Final = Definition(
    term="Factor",
    text=(
        "The p50 over that of the first row of the same arm. Its bounds are the worst and the best that the two "
        "intervals allow together, so that they hold at least as often as in nine cases of ten."
    ),
)
COLD: Final = Definition(
    term="Cold and warm",
    text=(
        "Cold: the very first request of an arm's process, with imports, connection and caches cold; one value. "
        "Warm: the same prompt, sent again to warm up. Neither is in another figure."
    ),
)


def definitions(metrics: Iterable[str], terms: Iterable[Definition]) -> Definitions:
    """Return the definitions of some metrics, by their names, and of further terms."""
    found = [METRIC_TERMS[name] for name in dict.fromkeys(metrics)]
    return Definitions(entries=(*found, *terms))
