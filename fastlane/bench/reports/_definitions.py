"""What the terms of a report mean, in the words of docs/measuring.md."""

from __future__ import annotations

from typing import Final

from ._blocks import Definitions

TERMS: Final = {
    "time_to_first_token": (
        "Time to first token (TTFT)",
        "From just before the call until its first output, reasoning included; connecting is inside.",
    ),
    "time_to_first_content_token": (
        "Time to first content token",
        "The same until the first output that is no reasoning: what a user of a model that reasons first waits for.",
    ),
    "time_per_output_token": (
        "Time per output token (TPOT)",
        (
            "(E2E - TTFT) / (output tokens - 1), with these parentheses: the first token is outside, because TTFT has "
            "it already, which is why one is subtracted. Tokens by the provider's usage, never by chunks. Some load "
            "generators put TTFT inside what they call TPOT: their figures are larger and cannot be compared with "
            "these."
        ),
    ),
    "inter_token_latency": (
        "Inter-token latency (ITL)",
        "The mean time between a request's chunks with output; a chunk may carry several tokens.",
    ),
    "generation_time": ("Token generation time", "E2E - TTFT: from the first output to the last one."),
    "api_end_to_end": ("API end-to-end (E2E)", "From the same start until the last output."),
    "decode_speed": ("Decode speed", "1 / TPOT, as one user sees it."),
    "output_throughput": ("Output throughput", "Output tokens of a request over its E2E."),
    "request_bytes": ("Request body", "Bytes of the body as sent, without headers, framing and TLS."),
    "price": ("Price", "US dollars of one request by its usage and the catalog's prices."),
    "intervals": (
        "Intervals",
        (
            "Brackets bound 95 % confidence intervals; a p95 wants 72 requests, a p99 368. Failed requests count as "
            "slower than all others."
        ),
    ),
    "change": ("Change", "The Hodges-Lehmann estimate over pairs of equal requests; not the ratio of two p50."),
    "verdicts": (
        "Verdicts",
        "Read from the interval of the typical change; no difference shown does not mean that there is none.",
    ),
    "could have shown": (
        "Could have shown",
        "The smallest change that a run of this size would have shown in nine cases of ten.",
    ),
    "noise": (
        "Instrument noise",
        "The reference beside a copy of itself (A/A): no effect inside this band is worth anything.",
    ),
    "attribution": (
        "Attribution",
        "Alone: added to nothing; last: added to all others; share: the mean of both, scaled to the whole.",
    ),
    "phases": ("Phases", "Means over the requests that succeeded, which add up to the mean of the whole."),
    "users": ("Users", "Requests in flight at the same time, of all arms together."),
    "efficiency": ("Scaling efficiency", "A user's decode speed (p50) at N users over that at the fewest."),
    "bands": ("Bands of inter-token latency", "Below 20 ms instant; to 70 ms acceptable; above sluggish."),
    "cv": ("CV", "Coefficient of variation: the standard deviation (with n - 1) over the mean."),
    "factor": ("Factor", "The p50 over that of the first row of the same arm."),
    "cold": (
        "Cold and warm",
        "The first request of an arm's process, and the same prompt sent again to warm up; in no other figure.",
    ),
}
"""A term as it is written and what it means, by a metric's name or another key."""


def definitions(*names: str) -> Definitions:
    """Return the definitions of some terms, by their keys in `TERMS`."""
    return Definitions(entries=tuple(TERMS[name] for name in dict.fromkeys(names)))
