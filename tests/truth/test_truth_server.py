"""A truth server's own account of what it did is consistent."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter_ns as now_ns
from typing import Any

import openai
import pytest

from tests.truth import ServerPace, TruthServer, compiler, truth_server

PACE = ServerPace(time_to_first_token_s=0.02, token_s=0.001, tokens=7)


@pytest.fixture(scope="module")
def running() -> Iterator[TruthServer]:
    if compiler() is None:
        pytest.skip("there is no C compiler here")
    with truth_server() as server:
        yield server


@pytest.fixture
def server(running: TruthServer) -> TruthServer:
    running.clear()
    running.answer_like(PACE)
    return running


def stream(server: TruthServer, **options: Any) -> list[Any]:
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        return list(
            client.chat.completions.create(
                model="truth", messages=[{"role": "user", "content": "Is water wet?"}], stream=True, **options
            )
        )


def test_stream_is_whole_and_logged_in_order(server: TruthServer) -> None:
    before = now_ns()
    role, *content, end, usage = stream(server)
    after = now_ns()

    assert role.choices[0].delta.role == "assistant"
    assert not role.choices[0].delta.content
    assert [chunk.choices[0].delta.content for chunk in content] == [f" w{at}" for at in range(7)]
    assert end.choices[0].finish_reason == "stop"
    assert (usage.choices, usage.usage.completion_tokens) == ([], 7)
    (answer,) = server.log().answers
    assert answer.role_ns is not None
    assert answer.ended_ns is not None
    # Each is taken before its send, but the last: the client may be done before the server has looked at the clock.
    stamps = [before, answer.received_ns, answer.role_ns, *answer.sent_ns, after]
    assert stamps == sorted(stamps)
    assert answer.sent_ns[-1] <= answer.ended_ns
    assert (len(answer.sent_ns), answer.answer_id) == (7, role.id)
    assert (answer.due_ns - answer.received_ns, answer.gap_ns) == (20_000_000, 1_000_000)
    assert min(answer.lateness_ms) >= 0


def test_stall_stops_everything_and_is_logged(server: TruthServer) -> None:
    server.answer_like(
        ServerPace(time_to_first_token_s=0.001, token_s=0.001, tokens=400, stall_every_s=0.4, stall_s=0.1)
    )
    stream(server)
    server.answer_like(PACE)

    log = server.log()
    assert log.stalls
    for begun, ended in log.stalls:
        assert ended - begun >= 100_000_000
        assert not [stamp for stamp in log.answers[0].sent_ns if begun + 50_000_000 < stamp < begun + 100_000_000]
