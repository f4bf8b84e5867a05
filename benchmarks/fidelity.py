"""How far what a load generator reports is from what the server did: this harness, and the stock client.

A truth server (compiled from C) answers on loopback over HTTP/1.1 and stamps CLOCK_MONOTONIC
just before each send, one send for each chunk; every client's figures are held against that log, request by request,
matched by request id. 50 streams at once, of 100 tokens a second (first token after 200 ms, 64 tokens) and of
2,000 (50 ms, 200 tokens). Inside: everything that a client adds to the time to first token (building the request, the
upload, waking up, reading, decoding) and to the time per output token, as its tool reports both. Outside: each tool's
first round, in which connections are opened and modules imported.

`fastlane` is this harness's own worker on `fastlane.AsyncOpenAI`, at 2,000 tokens a second its lanes shared by as many
processes as the machine has cores; `threads` the same on `fastlane.OpenAI`; `stock` the same on
`openai.AsyncOpenAI` in one process, as an application has it. Their starts are staggered. `_arrived` is what ours would
report by its transport's stamps.

The reach is for p50 of the error of the time per output token; p99 stands beside it. `server_late_p99_ms` says
how punctual the server itself was: above 1 ms the machine was too busy for these figures. `--quick` leaves out threads.
"""

from __future__ import annotations

from benchmarks._report import Figure, Report
from fastlane.bench._self_test import MOST_P50_MS, MOST_P99_MS, MOST_PACE_ERROR
from tests.truth import ARMS, PACES, run

_REQUESTS = {100: 6, 2_000: 16}
_QUICK_REQUESTS = {100: 2, 2_000: 4}


def measure(quick: bool) -> Report:
    """Run every client at both paces."""
    requests = _QUICK_REQUESTS if quick else _REQUESTS
    arms = [arm for arm in ARMS if not quick or arm.name != "threads"]
    figures: dict[str, Figure] = {}
    reach: dict[str, str] = {}
    for rate in PACES:
        for row in run(rate, requests=requests[rate], arms=arms):
            name, scored = f"{row.arm}_{rate}", row.score
            figures |= {
                f"{name}_ttft_error_p50_ms": scored.ttft_error_p50_ms,
                f"{name}_ttft_error_p99_ms": scored.ttft_error_p99_ms,
                f"{name}_tpot_error_p50_ratio": scored.tpot_error_p50,
                f"{name}_tpot_error_p99_ratio": scored.tpot_error_p99,
                f"{name}_wrong_counts": scored.wrong_counts + scored.unmatched,
                f"{name}_server_late_p99_ms": scored.server_late_p99_ms,
            }
            if row.arm != "stock":
                figures[f"{name}_arrived_error_p50_ms"] = scored.arrived_error_p50_ms
                figures[f"{name}_arrived_error_p99_ms"] = scored.arrived_error_p99_ms
                figures[f"{name}_processes"] = row.shards
        reach |= {
            f"fastlane_{rate}_ttft_error_p50_ms": f"<= {MOST_P50_MS}",
            f"fastlane_{rate}_ttft_error_p99_ms": f"<= {MOST_P99_MS}",
            f"fastlane_{rate}_tpot_error_p50_ratio": f"<= {MOST_PACE_ERROR}",
            f"fastlane_{rate}_wrong_counts": "== 0",
        }
    return Report(
        figures=figures,
        reach=reach,
        conditions={"requests_of_each_stream": requests},
    )
