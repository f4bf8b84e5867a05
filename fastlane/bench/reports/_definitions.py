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
        "Brackets bound 95 % confidence intervals; a p95 wants 72 requests, a p99 368. Failed requests count as slower "
        "than all others."
    ),
)
CHANGE: Final = Definition(
    term="Change",
    text="The Hodges-Lehmann estimate over pairs of equal requests; not the ratio of two p50.",
)
VERDICT: Final = Definition(
    term="Verdicts",
    text="Read from the interval of the typical change; no difference shown does not mean that there is none.",
)
COULD_SHOW: Final = Definition(
    term="Could have shown",
    text="The smallest change that a run of this size would have shown in nine cases of ten.",
)
INSTRUMENT: Final = Definition(
    term="Instrument noise",
    text="The reference beside a copy of itself (A/A): no effect inside this band is worth anything.",
)
ATTRIBUTION: Final = Definition(
    term="Attribution",
    text="Alone: added to nothing; last: added to all others; share: the mean of both, scaled to the whole.",
)
PHASES: Final = Definition(
    term="Phases",
    text="Means over the requests that succeeded, which add up to the mean of the whole.",
)
USERS: Final = Definition(
    term="Users",
    text="Requests in flight at the same time, of all arms together.",
)
EFFICIENCY: Final = Definition(
    term="Scaling efficiency",
    text="A user's decode speed (p50) at N users over that at the fewest.",
)
BANDS: Final = Definition(
    term="Bands of inter-token latency",
    text="Below 20 ms instant; to 70 ms acceptable; above sluggish.",
)
CV: Final = Definition(term="CV", text="Coefficient of variation: the standard deviation (with n - 1) over the mean.")
FACTOR: Final = Definition(
    term="Factor",
    text="The p50 over that of the first row of the same arm.",
)
COLD: Final = Definition(
    term="Cold and warm",
    text="The first request of an arm's process, and the same prompt sent again to warm up; in no other figure.",
)


def definitions(metrics: Iterable[str], terms: Iterable[Definition]) -> Definitions:
    """Return the definitions of some metrics, by their names, and of further terms."""
    found = [METRIC_TERMS[name] for name in dict.fromkeys(metrics)]
    return Definitions(entries=(*found, *terms))
