from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Mapping
from typing import Any

import pytest

from fastlane import Call, CallRecord
from fastlane.records import Attempt, Timeline, Usage, WireStamps

SECOND = 1_000_000_000


def record(*, usage: Usage | None = None, kind: Any = "content", **fields: Any) -> CallRecord:
    """A record of a stream with a token after 1, 2 and 3 seconds."""
    tokens = array("q", [SECOND, 2 * SECOND, 3 * SECOND])
    timeline = Timeline(
        started_wall_ns=1_700_000_000 * SECOND,
        started_ns=0,
        ended_ns=4 * SECOND,
        first_event_ns=SECOND,
        first_token_ns=SECOND,
        first_token_kind=kind,
        first_content_token_ns=SECOND if kind == "content" else 3 * SECOND,
        token_ns=tokens,
    )
    defaults: dict[str, Any] = {
        "call_id": "a-1",
        "method": "POST",
        "endpoint": "/chat/completions",
        "origin": "https://api.example.com:443",
        "model": "m",
        "stream": True,
        "outcome": "completed",
        "timeline": timeline,
        "usage": usage or Usage(),
    }
    return CallRecord(**{**defaults, **fields})


def call(body: Mapping[str, Any]) -> Call:
    return Call(call_id="a-1", endpoint="/chat/completions", origin="https://x:443", body=body, stream=False)


def test_body_is_changed_by_making_another_call() -> None:
    body = {"model": "small", "messages": []}
    first = call(body)
    second = first.with_body("model: small -> large", model="large").with_body("seed: 7", seed=7)

    assert body == {"model": "small", "messages": []}
    assert first.body is body
    assert first.changes == ()
    assert second.body == {"model": "large", "messages": [], "seed": 7}
    assert second.changes == ("model: small -> large", "seed: 7")
    assert (first.model, second.model) == ("small", "large")


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": 3}])
def test_body_without_a_model_has_none(body: dict[str, Any]) -> None:
    assert call(body).model is None


@pytest.mark.parametrize(
    "value", [call({}), record(), Usage(), Attempt(number=1, kind="first", wire=WireStamps(started_ns=0))]
)
def test_call_records_are_frozen(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "other")


@pytest.mark.parametrize(
    ("output_tokens", "reasoning_tokens", "kind", "streamed", "pace_s"),
    [
        (105, 100, "content", 5, 2.0 / 4),
        (105, 100, "reasoning", 105, 2.0 / 104),
        (5, None, "content", 5, 2.0 / 4),
        (5, 0, "content", 5, 2.0 / 4),
        (3, 10, "content", 0, None),
    ],
)
def test_hidden_reasoning_tokens_do_not_count_as_streamed(
    output_tokens: int, reasoning_tokens: int | None, kind: str, streamed: int, pace_s: float | None
) -> None:
    usage = Usage(output_tokens=output_tokens, reasoning_tokens=reasoning_tokens)
    found = record(usage=usage, kind=kind)

    assert found.streamed_output_tokens == streamed
    assert found.time_per_output_token_s == pace_s
    assert (found.decode_rate is None) == (pace_s is None)


def test_last_attempt_answered() -> None:
    attempts = (
        Attempt(number=1, kind="first", wire=WireStamps(started_ns=0), status_code=429, connection_reused=False),
        Attempt(number=2, kind="retry", wire=WireStamps(started_ns=9), status_code=200, connection_reused=True),
    )

    assert record(attempts=attempts).last_attempt is attempts[1]
    assert record(attempts=attempts).connection_reused is True
    assert record().last_attempt is None
    assert record().connection_reused is None


def test_json_of_a_record_holds_its_metrics_and_its_stamps() -> None:
    first = Attempt(number=1, kind="first", wire=WireStamps(started_ns=0), error="ReadError")
    seen = record(usage=Usage(output_tokens=3), attempts=(first,))
    data = json.loads(json.dumps(seen.to_dict(), allow_nan=False))

    assert data["attempts"][0]["error"] == "ReadError"
    assert data["timeline"]["token_ns"] == [SECOND, 2 * SECOND, 3 * SECOND]
    assert data["metrics"] == {
        "time_to_first_token_s": seen.time_to_first_token_s,
        "time_to_first_content_token_s": seen.time_to_first_content_token_s,
        "time_per_output_token_s": seen.time_per_output_token_s,
        "decode_rate": seen.decode_rate,
        "api_end_to_end_s": seen.api_end_to_end_s,
        "duration_s": seen.duration_s,
        "bursts": None,
    }
    assert data["usage"] == {
        "input_tokens": None,
        "cached_tokens": None,
        "cache_write_tokens": None,
        "output_tokens": 3,
        "reasoning_tokens": None,
        "estimated": False,
    }
