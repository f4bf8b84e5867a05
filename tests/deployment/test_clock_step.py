"""The wall clock steps by a day between two calls: no duration changes, and no retry waits for it."""

from __future__ import annotations

from pathlib import Path

from tests.call_peer import CallPeer, Reply, trusted
from tests.programs import printed_by

CALLS_WHILE_THE_CLOCK_STEPS = """
import sys, time

DAY_S = 86_400
stepped_s = 0
wall_s, wall_ns = time.time, time.time_ns
time.time = lambda: wall_s() + stepped_s
time.time_ns = lambda: wall_ns() + stepped_s * 10**9

import fastlane
from fastlane import RateLimits

client = fastlane.OpenAI(api_key="none", base_url=sys.argv[1] + "/v1", max_retries=1, plays=[RateLimits()])
messages = [{"role": "user", "content": "Name a river."}]
began_s = time.monotonic()
for stepped_s in (0, DAY_S, -DAY_S):
    answer = client.chat.completions.create(model="m", messages=messages)
    record = fastlane.record_of(answer)
    assert abs(record.timeline.started_wall_ns / 1e9 - wall_s() - stepped_s) < 60
    end_to_end_s = record.api_end_to_end_s
    print(record.outcome, len(record.attempts), 0 < end_to_end_s < 60)
assert time.monotonic() - began_s < 60
"""


def test_clock_step_changes_no_duration_and_no_wait(tmp_path: Path) -> None:
    with CallPeer("HTTP/2") as peer, trusted(tmp_path) as environment:
        refusal = Reply(429, (("retry-after-ms", "1"), ("x-ratelimit-limit-requests", "9")), b"{}")
        peer.replies[:] = [refusal, Reply(), refusal, Reply(), refusal, Reply()]
        printed = printed_by("-c", CALLS_WHILE_THE_CLOCK_STEPS, peer.url, environment=environment)

    assert printed == "completed 2 True\n" * 3
