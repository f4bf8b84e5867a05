"""How far what load generators report is from what the server did: this harness, the stock client, guidellm and aiperf.

A truth server (compiled from C) answers on loopback over HTTP/1.1 and stamps CLOCK_MONOTONIC
just before each send, one send for each chunk; every client's figures are held against that log, request by request,
matched by request or answer id. 50 streams at once, of 100 tokens a second (first token after 200 ms, 64 tokens) and of
2,000 (50 ms, 200 tokens). Inside: everything that a client adds to the time to first token (building the request, the
upload, waking up, reading, decoding) and to the time per output token, as its tool reports both. Outside: each tool's
first round, in which connections are opened and modules imported.

`fastlane` is this harness's own worker on `fastlane.AsyncOpenAI`, at 2,000 tokens a second its lanes shared by as many
processes as the machine has cores; `threads` the same on `fastlane.OpenAI`; `stock` the same on
`openai.AsyncOpenAI` in one process, as an application has it. Their starts are staggered. guidellm and aiperf run as
their own commands with their own way of starting, where `python -m scripts.peers` has installed them; their errors hold
the connections that they open for each request. `_arrived` is what ours would report by its
transport's stamps.

`ahead_of_every_peer` is 1 where ours has the smaller TTFT error than stock, guidellm and aiperf, p50 and p99, at both
paces. The reach is for p50 of the error of the time per output token; p99 stands beside it. `server_late_p99_ms` says
how punctual the server itself was: above 1 ms the machine was too busy for these figures. `--quick` leaves out threads,
and guidellm and aiperf at 100 tokens a second.
"""

from __future__ import annotations

import sys

from benchmarks._peers import PEERS, PeerFailedError, peer_score
from benchmarks._report import Figure, Reach, Report
from fastlane.bench._self_test import MOST_P50_MS, MOST_P99_MS, MOST_PACE_ERROR
from tests.truth import ARMS, LANES, PACES, MeasurementErrors, run, truth_server

_REQUESTS = {100: 6, 2_000: 16}
_QUICK_REQUESTS = {100: 2, 2_000: 4}
_FIGURES = (
    "ttft_error_p50_ms",
    "ttft_error_p99_ms",
    "tpot_error_p50_ratio",
    "tpot_error_p99_ratio",
    "wrong_counts",
    "server_late_p99_ms",
)


def _figures(name: str, rate: int, scored: MeasurementErrors | None) -> dict[str, Figure]:
    known: dict[str, Figure] = dict.fromkeys(_FIGURES)
    if scored is not None:
        known = {
            "ttft_error_p50_ms": scored.ttft_error_p50_ms,
            "ttft_error_p99_ms": scored.ttft_error_p99_ms,
            "tpot_error_p50_ratio": scored.tpot_error_p50,
            "tpot_error_p99_ratio": scored.tpot_error_p99,
            "wrong_counts": scored.wrong_counts + scored.unmatched,
            "server_late_p99_ms": scored.server_late_p99_ms,
        }
    return {f"{name}_{rate}_{figure}": known[figure] for figure in _FIGURES}


def measure(quick: bool) -> Report:
    """Run every client at both paces."""
    requests = _QUICK_REQUESTS if quick else _REQUESTS
    scores: dict[tuple[str, int], MeasurementErrors | None] = {}
    figures: dict[str, Figure] = {}
    problems: list[str] = []
    for rate in PACES:
        arms = [arm for arm in ARMS if not quick or arm.name != "threads"]
        for row in run(rate, requests=requests[rate], arms=arms):
            name = row.arm
            scores[name, rate] = row.score
            figures |= _figures(name, rate, row.score)
            if name != "stock":
                figures[f"{name}_{rate}_arrived_error_p50_ms"] = row.score.arrived_error_p50_ms
                figures[f"{name}_{rate}_arrived_error_p99_ms"] = row.score.arrived_error_p99_ms
                figures[f"{name}_{rate}_processes"] = row.shards
        with truth_server() as truth:
            for name in PEERS:
                try:
                    # guidellm and aiperf take ten seconds and more to start.
                    if quick and rate == 100:
                        scores[name, rate] = None
                        continue
                    scores[name, rate] = peer_score(name, truth, PACES[rate], lanes=LANES, requests=requests[rate])
                except PeerFailedError as error:
                    scores[name, rate] = None
                    problems.append(f"{name}: {error}")
                figures |= _figures(name, rate, scores[name, rate])
    for problem in problems:
        print(problem, file=sys.stderr)
    peers = [name for name in ("stock", *PEERS) if any(scores[name, rate] for rate in PACES)]
    ahead = all(_ahead(scores["fastlane", rate], scores[name, rate]) for name in peers for rate in PACES)
    figures["ahead_of_every_peer"] = int(ahead)
    if "--json" not in sys.argv:
        print(f"ahead of every peer ({', '.join(peers)}): {'yes' if ahead else 'no'}")
    reach = [
        each
        for rate in PACES
        for each in (
            Reach(figure=f"fastlane_{rate}_ttft_error_p50_ms", op="<=", target=MOST_P50_MS),
            Reach(figure=f"fastlane_{rate}_ttft_error_p99_ms", op="<=", target=MOST_P99_MS),
            Reach(figure=f"fastlane_{rate}_tpot_error_p50_ratio", op="<=", target=MOST_PACE_ERROR),
            Reach(figure=f"fastlane_{rate}_wrong_counts", op="==", target=0),
        )
    ]
    return Report(
        figures=figures,
        reach=(*reach, Reach(figure="ahead_of_every_peer", op="==", target=1)),
        conditions={
            "streams": LANES,
            "requests_of_each_stream": requests,
            "not_installed": [name for name in PEERS if name not in peers] or "none",
        },
    )


def _ahead(ours: MeasurementErrors | None, other: MeasurementErrors | None) -> bool:
    if ours is None or other is None:
        return other is None
    return ours.ttft_error_p50_ms <= other.ttft_error_p50_ms and ours.ttft_error_p99_ms <= other.ttft_error_p99_ms
