from __future__ import annotations

import dataclasses
from typing import Any

from fastlane.bench._check import check
from fastlane.bench._recorder import Sample
from fastlane.emulator import RequestLog

MS = 1_000_000


def sample(tag: str = "baseline/0/0", **fields: Any) -> Sample:
    lane, block = (int(part) if part.isdecimal() else -1 for part in tag.split("/")[1:])
    values: dict[str, Any] = {
        "arm": tag.split("/", maxsplit=1)[0],
        "tag": tag,
        "lane": lane,
        "block": block,
        "conversation": "review heapq",
        "turn": 1,
        "cold": block < 0,
        "issued_ns": 0,
        "ended_ns": 300 * MS,
        "token_ns": (121 * MS, 200 * MS),
        "output_tokens": 2,
    }
    return Sample(**{**values, **fields})


def entry(tag: str | None = "baseline/0/0", **fields: Any) -> RequestLog:
    values: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(RequestLog))
    values |= {
        "tag": tag,
        "request_id": "req_1",
        "connection_id": "c1",
        "connection_request_number": 1,
        "token_ns": (100 * MS, 180 * MS),
        "output_tokens": 2,
        "bytes_in": 1_000,
    }
    return RequestLog(**{**values, **fields})


def own_record(**attempt: Any) -> dict[str, Any]:
    return {"attempts": [attempt], "metrics": {"time_to_first_token_s": 0.120}}


def test_a_disagreement_is_the_difference_less_the_wires_one_way() -> None:
    samples = [sample(), sample("baseline/0/1", token_ns=(125 * MS, 199 * MS))]

    found = check(samples, [entry(), entry("baseline/0/1")], one_way_s=0.020)

    assert found.time_to_first_token_ms is not None
    assert (found.time_to_first_token_ms.value, found.time_to_first_token_ms.tag) == (5.0, "baseline/0/1")
    assert found.api_end_to_end_ms is not None
    assert (found.api_end_to_end_ms.value, found.api_end_to_end_ms.tag) == (-1.0, "baseline/0/1")
    assert found.lags["baseline"].p50_ms == 3.0
    assert found.problems == ()


def test_a_request_that_one_side_does_not_know_is_a_problem() -> None:
    found = check([sample(), sample("fastlane/0/0")], [entry(), entry("fastlane/0/9")], one_way_s=0.0)

    assert found.problems == (
        "1 requests of the clients are missing in the provider's log: fastlane/0/0",
        "1 requests of the provider's log are missing at the clients: fastlane/0/9",
    )


def test_a_request_without_a_tag_is_a_problem_too() -> None:
    found = check([sample()], [entry(), entry(None)], one_way_s=0.0)

    assert found.problems == ("1 requests of the provider's log are missing at the clients: (no tag: req_1)",)


def test_failed_requests_must_be_in_the_log_but_are_not_compared() -> None:
    failed = sample(error="InternalServerError 500", token_ns=(), output_tokens=None)

    found = check([failed], [entry(token_ns=())], one_way_s=0.0)

    assert found.problems == ()
    assert found.time_to_first_token_ms is None
    assert found.output_tokens is None


def test_of_a_retried_request_the_last_try_counts() -> None:
    tries = [entry(output_tokens=0, token_ns=()), entry(connection_request_number=2)]

    found = check([sample()], tries, one_way_s=0.020)

    assert found.output_tokens is not None
    assert found.output_tokens.value == 0
    assert (found.requests_by_client, found.requests_by_server, found.tries_by_server) == (1, 1, 2)


def test_counts_are_compared_with_the_clients_own_record() -> None:
    samples = [sample("fastlane/0/0", output_tokens=3, call=own_record(request_body_bytes=1_004))]

    found = check(samples, [entry("fastlane/0/0")], one_way_s=0.0)

    assert found.output_tokens is not None
    assert found.output_tokens.value == 1
    assert found.chunks is not None
    assert found.chunks.value == 0
    assert found.request_bytes is not None
    assert found.request_bytes.value == 4
    assert found.own_time_to_first_token_ms is not None
    assert round(found.own_time_to_first_token_ms.value, 6) == 1.0


def test_a_connection_counts_for_the_arm_that_sent_its_first_request() -> None:
    opening = {"connection_reused": False, "connection_id": "c", "wire": {"connect_started_ns": 7}}
    samples = [
        sample("baseline/cold/x"),
        sample("fastlane/0/0", call=own_record(**opening)),
        sample("fastlane/0/1", call=own_record(connection_reused=True)),
        sample("fastlane/0/2", call=own_record(**opening)),
    ]
    log = [
        entry("baseline/cold/x", connection_id="c1"),
        entry("fastlane/0/0", connection_id="c2"),
        entry("fastlane/0/1", connection_id="c1", connection_request_number=2),
        entry("fastlane/0/2", connection_id="c2", connection_request_number=2),
    ]

    found = check(samples, log, one_way_s=0.0)

    assert (found.connections["baseline"].by_server, found.connections["baseline"].by_client) == (1, None)
    assert (found.connections["fastlane"].by_server, found.connections["fastlane"].by_client) == (1, 1)
