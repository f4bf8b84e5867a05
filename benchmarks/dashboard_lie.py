"""What an application's own dashboard says of a provider, against what the provider did: openai's client, and ours.

8, 32 and 50 streams at once of 2,000 tokens a second each (first token after 50 ms, 200 tokens), all in one process, as
an application has them, with `async for` in one event loop. The provider is a truth
server in a process of its own and, where the system allows it, on another core, over HTTP/1.1; it stamps
CLOCK_MONOTONIC just before each send. Inside: everything between the application's own two stamps, which it takes just
before `create()` and in its loop's body, the first chunk with content in hand. Outside: the first two rounds, in which
modules are imported and connections opened. Starts are staggered over the time of one answer.

`_ttft_*_ms` is what the application would log, `_true_ttft_p50_ms` what the provider did, and `_error_` the difference,
request by request. `_tpot_error_p50_ratio` is the same for the time per output token, as a share of the true one.
Nothing raises an error when an event loop is full: the application just sees a slow provider that is not slow.
"""

from __future__ import annotations

from benchmarks._apps import SIDES, app, truth_on_another_core
from benchmarks._report import Figure, Report
from tests.truth import PACES, percentile, score

_RATE = 2_000
_STREAMS = (8, 32, 50)
_MOST_P99_MS = 10.0


def measure(quick: bool) -> Report:
    """Run every application at every number of streams, each a few times in a new process."""
    rounds, most = (1, 6) if quick else (3, 10)
    pace = PACES[_RATE]
    figures: dict[str, Figure] = {}
    late: list[float] = []
    with truth_on_another_core() as (truth, cores):
        for streams in (_STREAMS[0], _STREAMS[-1]) if quick else _STREAMS:
            for side in SIDES:
                scores = []
                # The stock client's lie does not depend on luck, and takes its time.
                stock = side.startswith("stock")
                for _ in range(1 if stock else rounds):
                    truth.clear()
                    truth.answer_like(pace)
                    # As many requests in all, whatever the number of streams: else few have too small a share of p99.
                    each = most // 2 if stock else most
                    requests = each * _STREAMS[-1] // streams if streams < 32 else each
                    readings = app(side, truth, pace, streams=streams, requests=requests)
                    scores.append(score(readings, truth.log()))
                start = f"{side}_{streams}"
                middle = {
                    "ttft_p50_ms": [each.reported_ttft_p50_ms for each in scores],
                    "ttft_p99_ms": [each.reported_ttft_p99_ms for each in scores],
                    "true_ttft_p50_ms": [each.true_ttft_p50_ms for each in scores],
                    "error_p50_ms": [each.ttft_error_p50_ms for each in scores],
                    "error_p99_ms": [each.ttft_error_p99_ms for each in scores],
                    "tpot_error_p50_ratio": [each.tpot_error_p50 for each in scores],
                }
                figures |= {f"{start}_{name}": percentile(values, 0.5) for name, values in middle.items()}
                figures[f"{start}_wrong_counts"] = sum(each.wrong_counts + each.unmatched for each in scores)
                late.append(percentile([each.server_late_p99_ms for each in scores], 0.5))
    figures["server_late_p99_ms"] = max(late)
    return Report(
        figures=figures,
        reach={"fastlane_50_error_p99_ms": f"<= {_MOST_P99_MS}", "fastlane_50_wrong_counts": "== 0"},
        conditions={"rounds": f"{rounds}, of which the middle one counts; stock 1", "cores": cores},
    )
