from __future__ import annotations

import json

import httpx2
import pytest
from hypothesis import given, strategies as st

from fastlane import errors
from fastlane.emulator import STANDARD_TIERS, Emulator, KeyRateLimits
from fastlane.emulator._admission import Limiter, Meter, duration
from fastlane.emulator._request import ApiError
from tests.emulator.requests import chat

S = 1_000_000_000
MINUTE = 60 * S
WINDOWS = ["bucket", "fixed", "quantized"]
ARRIVALS = st.lists(st.tuples(st.integers(0, 20 * S), st.integers(1, 30)), max_size=60)


def taken(meter: Meter, arrivals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What passes of requests that come after so many nanoseconds each, of so many tokens."""
    now, passed = 0, []
    for gap, amount in arrivals:
        now += gap
        if meter.wait_ns(now, amount) == 0:
            meter.take(now, amount)
            passed.append((now, amount))
    return passed


@given(ARRIVALS)
def test_fixed_minute_never_holds_more_than_the_limit(arrivals: list[tuple[int, int]]) -> None:
    passed = taken(Meter(60, 0, "fixed"), arrivals)

    assert all(sum(a for t, a in passed if t // MINUTE == minute) <= 60 for minute in range(30))


def test_fixed_minute_holds_all_of_the_limit_whatever_the_burst() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=60, window="fixed", burst=0.1))

    assert len([limiter.spend(0, "me", "m", 1) for _ in range(60)]) == 60
    assert refusal(limiter).refused == "requests/minute"
    assert limiter.spend(MINUTE, "me", "m", 1)


@given(ARRIVALS, st.sampled_from([0.5, 1.0]))
def test_bucket_gives_its_burst_and_what_has_come_since(arrivals: list[tuple[int, int]], burst: float) -> None:
    passed = taken(Meter(60, 0, burst=burst), arrivals)

    assert all(
        sum(a for t, a in passed if start <= t <= end) <= 60 * burst + (end - start) / S + 1e-3
        for start, _ in passed
        for end, _ in passed
        if end >= start
    )


@given(st.lists(st.integers(0, 2 * S), max_size=60))
def test_quantized_second_gives_no_more_than_its_share(gaps: list[int]) -> None:
    passed = taken(Meter(120, 0, "quantized"), [(gap, 1) for gap in gaps])

    assert all(sum(1 for t, _ in passed if t // S == second) <= 2 for second in range(130))


@pytest.mark.parametrize("window", WINDOWS)
@given(arrivals=ARRIVALS, amount=st.integers(1, 90))
def test_meter_wait_ends_exactly_when_requests_are_allowed(
    window: str, arrivals: list[tuple[int, int]], amount: int
) -> None:
    meter = Meter(60, 0, window)
    taken(meter, arrivals)
    now = sum(gap for gap, _ in arrivals)
    wait = meter.wait_ns(now, amount)

    assert (wait is None) == (amount > 60)
    if wait is not None:
        # What is missing for so short a time is less than a sum of floats can tell.
        assert wait < 2_000 or meter.wait_ns(now + wait - 2_000, amount) != 0
        assert meter.wait_ns(now + wait, amount) == 0


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (12, "12ms"), (999, "999ms"), (1_000, "1s"), (8_640, "8.64s"), (59_999, "59.999s"), (60_000, "1m0s"),
     (179_560, "2m59.56s")],
)  # fmt: skip
def test_times_are_written_as_openai_writes_them(milliseconds: int, text: str) -> None:
    assert duration(milliseconds * 1_000_000) == text


def refusal(limiter: Limiter, now: int = 0, *, tokens: int = 100, key: str = "me") -> ApiError:
    with pytest.raises(ApiError) as caught:
        limiter.spend(now, key, "m", tokens)
    return caught.value


def test_responses_have_rate_limit_headers() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=60, tokens_per_minute=150_000))

    assert dict(limiter.spend(0, "me", "m", 16)) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-reset-tokens": "7ms",
    }
    assert dict(limiter.spend(S // 2, "me", "m", 100))["x-ratelimit-reset-requests"] == "1.5s"


def test_refusal_has_the_openai_message_and_wait_time() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=3))
    for _ in range(3):
        limiter.spend(0, "me", "m", 5)
    refused = refusal(limiter, 15 * S)

    assert (refused.status, refused.refused) == (429, "requests/minute")
    # The 0.75 that had come back are taken by the refused request itself.
    assert json.loads(refused.body())["error"] == {
        "message": "Rate limit reached for m in organization org-emulator on requests per min (RPM): Limit 3, Used 3, "
        "Requested 1. Please try again in 20s.",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    headers = dict(refused.headers)
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("20", "20000")
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert limiter.spend(35 * S, "me", "m", 5)


def test_token_limit_refusal_is_separate_from_requests() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=600, tokens_per_minute=30_000))
    limiter.spend(0, "me", "m", 29_937)
    refused = refusal(limiter, tokens=385)

    assert (refused.refused, refused.type) == ("tokens/minute", "tokens")
    assert str(refused).endswith("(TPM): Limit 30000, Used 29937, Requested 385. Please try again in 644ms.")
    assert dict(refused.headers)["retry-after"] == "1"
    assert limiter.spend(644_000_000, "me", "m", 385)


def test_request_above_the_limit_has_no_retry_after() -> None:
    refused = refusal(Limiter(KeyRateLimits(tokens_per_minute=30_000)), tokens=36_278)

    assert (refused.status, refused.refused, refused.code) == (429, "too_large", "rate_limit_exceeded")
    assert "Request too large for m" in str(refused)
    assert "Limit 30000, Requested 36278. The input or output tokens must be reduced" in str(refused)
    assert "retry-after" not in dict(refused.headers)


# From here on: a provider that serves.


def test_limits_hold_on_every_endpoint_that_generates(http: httpx2.Client, emulator: Emulator) -> None:
    emulator.change(rate_limits=KeyRateLimits(requests_per_minute=2, window="fixed"))
    paths = {
        "/chat/completions": chat(),
        "/responses": {"model": "some-model", "input": "x"},
        "/completions": {"model": "some-model", "prompt": "x"},
    }
    answers = [http.post(path, json=body) for path, body in paths.items()]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["1", "0", "0"]
    records = emulator.log()
    assert [record.refused for record in records] == [None, None, "requests/minute"]
    assert (records[2].service_tier, records[2].admitted_ns, records[2].output_tokens) == (None, None, 0)
    emulator.change(rate_limits=None)
    assert "x-ratelimit-limit-requests" not in http.post("/chat/completions", json=chat()).headers


def test_request_counts_as_its_prompt_and_what_it_may_generate(http: httpx2.Client, emulator: Emulator) -> None:
    emulator.change(rate_limits=KeyRateLimits(tokens_per_minute=1_000, window="fixed"))
    sent = [http.post("/chat/completions", json=chat(max_tokens=800)) for _ in range(2)]

    assert [answer.status_code for answer in sent] == [200, 429]
    left = 1_000 - 800 - emulator.log()[0].prompt_tokens
    assert sent[0].headers["x-ratelimit-remaining-tokens"] == str(left)


def test_model_rate_limit_overrides_the_default(http: httpx2.Client, emulator: Emulator) -> None:
    emulator.change(model_rate_limits={"small": KeyRateLimits(requests_per_minute=1, window="fixed")})

    assert [http.post("/chat/completions", json=chat(model="small")).status_code for _ in range(2)] == [200, 429]
    assert http.post("/chat/completions", json=chat()).status_code == 200


def test_null_removes_a_setting_and_reset_restores_all(emulator: Emulator, http: httpx2.Client) -> None:
    url = emulator.base_url.removesuffix("/v1") + "/emulator/settings"
    started = http.put(url, json={}).json()["settings"]
    emulator.change(model_rate_limits={"a": KeyRateLimits(), "b": KeyRateLimits()}, service_tiers=STANDARD_TIERS)
    emulator.change(model_rate_limits={"a": None})

    assert (
        [*http.put(url, json={}).json()["settings"]["model_rate_limits"]]
        == [*emulator.model.model_rate_limits]
        == ["b"]
    )
    with pytest.raises(errors.ConfigurationError, match="JSON"):
        emulator.change(concurrency=object())
    emulator.reset()
    assert http.put(url, json={}).json()["settings"] == started == json.loads(json.dumps(emulator.model.to_json()))
