from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest
import typer
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from fastlane import errors
from fastlane.emulator import Emulator, KeyRateLimits, ProviderModel, preset
from fastlane.emulator._command import _rate_limits, emulator as run_command
from fastlane.emulator._limit_headers import HEADER_FAMILIES, duration
from fastlane.emulator._limiter import Limiter, LimitExceeded, account_of
from tests.emulator.requests import chat

S = 1_000_000_000
ME = b"me"


def headers_of(limiter: Limiter, now: int = 0, *, tokens: int = 100) -> dict[str, str]:
    return dict(limiter.spend(now, ME, "m", tokens).headers)


def refusal(
    limiter: Limiter, now: int = 0, *, tokens: int = 100, account: bytes = ME, model: str = "m"
) -> LimitExceeded:
    with pytest.raises(LimitExceeded) as caught:
        limiter.spend(now, account, model, tokens)
    return caught.value


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (12, "12ms"), (999, "999ms"), (1_000, "1s"), (8_640, "8.64s"), (59_999, "59.999s"), (60_000, "1m0s"),
     (360_000, "6m0s"), (179_560, "2m59.56s"), (3_600_000, "1h0m0s"), (86_399_000, "23h59m59s")],
)  # fmt: skip
def test_times_are_written_as_openai_writes_them(milliseconds: int, text: str) -> None:
    assert duration(milliseconds * 1_000_000) == text


def test_every_answer_tells_what_is_left() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=60, tokens_per_minute=150_000))

    assert headers_of(limiter, tokens=16) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-reset-tokens": "7ms",
    }
    assert headers_of(limiter, S // 2)["x-ratelimit-reset-requests"] == "1.5s"


def test_a_request_over_its_limit_is_refused_with_openais_words_and_the_time_to_wait() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=3, refused_count=False))
    for _ in range(3):
        limiter.spend(0, ME, "m", 5)
    refused = refusal(limiter, 15 * S)

    assert (refused.status, refused.why) == (429, "requests/minute")
    assert json.loads(refused.body())["error"] == {
        "message": "Rate limit reached for m in organization org-emulator on requests per min (RPM): Limit 3, Used 3, "
        "Requested 1. Please try again in 5s.",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    headers = dict(refused.headers)
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("5", "5000")
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert limiter.spend(20 * S, ME, "m", 5).tokens == 5


def test_tokens_over_their_limit_are_told_from_requests() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=600, tokens_per_minute=30_000))
    limiter.spend(0, ME, "m", 29_937)
    refused = refusal(limiter, tokens=385)

    assert (refused.why, refused.type) == ("tokens/minute", "tokens")
    assert str(refused).endswith("(TPM): Limit 30000, Used 29937, Requested 385. Please try again in 644ms.")
    assert dict(refused.headers)["retry-after"] == "1"
    assert limiter.spend(644_000_000, ME, "m", 385).remaining_requests == pytest.approx(600 - 1)


def test_a_request_larger_than_the_limit_is_told_so_and_not_when_to_come_again() -> None:
    refused = refusal(Limiter(KeyRateLimits(tokens_per_minute=30_000, too_large_status=413)), tokens=36_278)

    assert (refused.status, refused.why, refused.code) == (413, "too_large", "rate_limit_exceeded")
    assert "Request too large for m" in str(refused)
    assert "Limit 30000, Requested 36278. The input or output tokens must be reduced" in str(refused)
    assert "retry-after" not in dict(refused.headers)


def test_an_account_without_means_gets_openais_other_429() -> None:
    refused = refusal(Limiter(KeyRateLimits(quota_spent=True)))

    assert (refused.status, refused.type, refused.code) == (429, "insufficient_quota", "insufficient_quota")
    assert refused.headers == ()


@pytest.mark.parametrize(("counts", "left"), [(True, 0), (False, 1)])
def test_a_refused_request_counts_as_one_unless_that_is_switched_off(counts: bool, left: int) -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=3, tokens_per_minute=100, refused_count=counts))
    limiter.spend(0, ME, "m", 100)
    limiter.spend(0, ME, "m", 0)
    refused = refusal(limiter, tokens=50)

    assert dict(refused.headers)["x-ratelimit-remaining-requests"] == str(left)


def test_each_key_and_each_model_has_limits_of_its_own() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=1))
    limiter.spend(0, ME, "m", 5)

    assert refusal(limiter).why == "requests/minute"
    assert limiter.spend(0, b"you", "m", 5)
    assert limiter.spend(0, ME, "other", 5)
    shared = Limiter(KeyRateLimits(requests_per_minute=1, per_key=False))
    shared.spend(0, ME, "m", 5)
    assert refusal(shared, account=b"you").why == "requests/minute"


def test_a_key_is_known_by_a_digest_alone() -> None:
    one, same, other = (account_of({"authorization": f"Bearer {key}"}) for key in ("secret", "secret", "else"))

    assert one == same != other
    assert b"secret" not in one


@given(st.integers(0, 500), st.integers(1, 500) | st.none(), st.integers(1, 4))
def test_tokens_are_counted_as_the_setting_says(prompt: int, output: int | None, choices: int) -> None:
    counted = {
        kind: KeyRateLimits(counted=kind, assumed_output_tokens=7).tokens_of(
            prompt=prompt, output=output, choices=choices
        )
        for kind in ("sum", "maximum", "prompt")
    }
    generated = choices * (output or 7)

    assert counted == {"sum": prompt + generated, "maximum": max(prompt, generated), "prompt": prompt}


def test_limits_of_an_hour_and_of_a_day_hold_beside_those_of_the_minute() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=100, requests_per_day=2, tokens_per_hour=1_000, window="fixed"))
    limiter.spend(0, ME, "m", 900)

    assert refusal(limiter, tokens=200).why == "tokens/hour"
    refused = refusal(limiter, 61 * S, tokens=10)
    assert refused.why == "requests/day"
    assert dict(refused.headers)["retry-after"] == str(86_400 - 61)


def family(name: str, **settings: Any) -> dict[str, str]:
    limits = {"requests_per_minute": 60, "tokens_per_minute": 6_000, "requests_per_day": 1_000, **settings}
    return headers_of(Limiter(KeyRateLimits(headers=name, window="fixed", **limits)), tokens=250)


def test_headers_can_be_those_of_other_providers() -> None:
    assert family("usual_daily")["x-ratelimit-remaining-requests"] == "999"
    assert family("usual_daily")["x-ratelimit-reset-requests"] == "24h0m0s"
    assert family("usual_tokens") == {
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5750",
        "x-ratelimit-reset-tokens": "60",
    }
    assert family("windowed") == {
        "x-ratelimit-limit-requests-day": "1000",
        "x-ratelimit-limit-tokens-minute": "6000",
        "x-ratelimit-remaining-requests-day": "999",
        "x-ratelimit-remaining-tokens-minute": "5750",
        "x-ratelimit-reset-requests-day": "86400",
        "x-ratelimit-reset-tokens-minute": "60",
    }
    assert family("short")["x-ratelimit-tokens-query-cost"] == "250"
    assert family("moments")["x-ratelimit-reset-tokens"].endswith("Z")
    assert len(family("epoch")["x-ratelimit-reset"]) == 13
    assert family("none") == {}


def test_headers_can_be_given_one_by_one_and_of_limits_that_there_are_not_there_are_none() -> None:
    limits = KeyRateLimits(
        requests_per_minute=60,
        window="fixed",
        headers={
            "X-Left": "remaining requests/minute",
            "x-again": "reset requests/minute seconds",
            "x-no": "limit tokens/day",
        },
    )

    assert headers_of(Limiter(limits)) == {"x-left": "59", "x-again": "60"}


def test_headers_can_be_kept_for_refusals() -> None:
    limiter = Limiter(KeyRateLimits(requests_per_minute=1, only_when_refused=True, retry_after="none"))

    assert headers_of(limiter) == {}
    assert dict(refusal(limiter).headers)["x-ratelimit-limit-requests"] == "1"
    assert not any(name.startswith("retry") for name, _ in refusal(limiter).headers)


@pytest.mark.parametrize(
    "settings",
    [
        {"requests_per_minute": 0},
        {"tokens_per_day": float("inf")},
        {"window": "leaky"},
        {"burst": 0},
        {"quantum_s": 61},
        {"counted": "all"},
        {"assumed_output_tokens": -1},
        {"headers": "mine"},
        {"headers": {"x-a": "left requests/minute"}},
        {"headers": {"x-a": "reset requests/minute soon"}},
        {"headers": {"x a": "limit requests/minute"}},
        {"retry_after": "never"},
        {"status": 200},
        {"too_large_status": 600},
    ],
)
def test_a_limit_that_cannot_work_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigurationError, match=next(iter(settings)).rstrip("s")):
        KeyRateLimits(**settings)


def test_limits_are_written_as_text_for_the_command() -> None:
    text = "requests_per_minute=600; tokens_per_minute=6e4;window=fixed;settled=yes;status=503"

    assert KeyRateLimits.parse(text) == KeyRateLimits(
        requests_per_minute=600, tokens_per_minute=60_000, window="fixed", settled=True, status=503
    )
    for wrong in ("rpm=6", "settled=maybe", "requests_per_minute=many"):
        with pytest.raises(errors.ConfigurationError, match="KeyRateLimits"):
            KeyRateLimits.parse(wrong)


@pytest.mark.parametrize("headers", [*HEADER_FAMILIES, {"x-left": "remaining requests/minute"}])
def test_limits_survive_json(headers: Any) -> None:
    limits = KeyRateLimits(requests_per_minute=3, headers=headers)
    model = ProviderModel(rate_limits=limits, model_rate_limits={"a": limits, "b": KeyRateLimits(tokens_per_day=9)})

    assert ProviderModel.from_json(json.loads(json.dumps(model.to_json()))) == model


# From here on: a provider that serves.

TOKENS = {"x-left": "remaining tokens/day"}
SMALL = KeyRateLimits(requests_per_day=2, headers="usual_daily")


@pytest.fixture
def limited(emulator: Emulator) -> Iterator[Emulator]:
    yield emulator
    emulator.change(rate_limits=None, model_rate_limits={})


def test_limits_hold_on_every_endpoint_that_generates_and_can_be_set_while_it_serves(
    http: httpx2.Client, limited: Emulator
) -> None:
    limited.change(rate_limits=SMALL)
    paths = {
        "/chat/completions": chat(),
        "/responses": {"model": "some-model", "input": "x"},
        "/completions": {"model": "some-model", "prompt": "x"},
    }
    answers = [http.post(path, json=body) for path, body in paths.items()]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["1", "0", "0"]
    records = limited.log()
    assert [record.refused for record in records] == [None, None, "requests/day"]
    assert (records[2].service_tier, records[2].admitted_ns, records[2].output_tokens) == (None, None, 0)
    assert limited.model == replace(preset("instant"), rate_limits=SMALL)
    limited.change(rate_limits=None)
    assert "x-ratelimit-limit-requests" not in http.post("/chat/completions", json=chat()).headers


def test_a_stream_and_an_error_behind_the_limiter_have_the_headers_too(http: httpx2.Client, limited: Emulator) -> None:
    limited.change(
        rate_limits=KeyRateLimits(requests_per_day=5, tokens_per_day=10_000, headers={"x": "remaining requests/day"})
    )
    with http.stream("POST", "/chat/completions", json=chat(stream=True)) as streamed:
        streamed.read()
    failed = http.post("/chat/completions", json=chat(), headers={"x-emulator-fault": "status=500"})

    assert [streamed.headers["x"], failed.headers["x"], failed.status_code] == ["4", "3", 500]


@pytest.mark.parametrize(("settled", "answers"), [(True, [200, 200, 200]), (False, [200, 429, 429])])
def test_what_was_not_used_comes_back_at_the_end_if_limits_are_settled(
    http: httpx2.Client, limited: Emulator, settled: bool, answers: list[int]
) -> None:
    limited.change(rate_limits=KeyRateLimits(tokens_per_day=1_000, settled=settled, window="fixed", headers=TOKENS))
    sent = [
        http.post("/chat/completions", json=chat(max_tokens=800), headers={"x-emulator-output-tokens": "10"})
        for _ in answers
    ]
    first = limited.log()[0]

    assert [answer.status_code for answer in sent] == answers
    assert first.limited_tokens == first.prompt_tokens + 800
    if settled:
        used = first.prompt_tokens + 10
        assert used == sent[0].json()["usage"]["total_tokens"]
        assert sent[2].headers["x-left"] == str(1_000 - 2 * used - 800 - first.prompt_tokens)


def test_a_model_can_have_limits_of_its_own(http: httpx2.Client, limited: Emulator) -> None:
    limited.change(model_rate_limits={"small": replace(SMALL, requests_per_day=1)})

    assert [http.post("/chat/completions", json=chat(model="small")).status_code for _ in range(2)] == [200, 429]
    assert http.post("/chat/completions", json=chat()).status_code == 200


def test_a_request_can_ask_to_be_refused_or_to_be_spared(http: httpx2.Client, limited: Emulator) -> None:
    def status(wish: str) -> tuple[int, str | None]:
        response = http.post("/chat/completions", json=chat(), headers={"x-emulator-limits": wish})
        return response.status_code, limited.log()[-1].refused

    limited.change(rate_limits=KeyRateLimits(requests_per_day=10, tokens_per_minute=1_000_000))
    assert status("tokens") == (429, "tokens/minute")
    assert status("quota") == (429, "quota")
    assert status("requests") == (429, "requests/day")
    assert status("overload") == (503, "overload")
    assert status("sometimes")[0] == 400
    limited.change(rate_limits=KeyRateLimits(tokens_per_day=1))
    assert status("off") == (200, None)
    assert http.post("/chat/completions", json=chat()).status_code == 429


def test_the_stock_client_reads_refusals_and_gets_its_answers_in_the_end(limited: Emulator, trust: Any) -> None:
    def ask(client: openai.OpenAI, **headers: str) -> Any:
        return client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "x"}], extra_headers=headers
        )

    limited.change(rate_limits=KeyRateLimits(requests_per_minute=300, burst=1 / 300, refused_count=False))
    with openai.OpenAI(
        base_url=limited.base_url, api_key="any", max_retries=5, http_client=openai.DefaultHttpxClient(verify=trust)
    ) as client:
        answers = [ask(client) for _ in range(4)]
        once = client.with_options(max_retries=0)
        with pytest.raises(openai.RateLimitError) as refused:
            ask(once, **{"x-emulator-limits": "requests"})
        with pytest.raises(openai.RateLimitError) as spent:
            ask(once, **{"x-emulator-limits": "quota"})

    assert {answer.headers["x-ratelimit-limit-requests"] for answer in answers} == {"300"}
    assert (refused.value.type, refused.value.code) == ("requests", "rate_limit_exceeded")
    assert spent.value.code == "insufficient_quota"
    assert sum(record.status == 200 for record in limited.log()) == 4
    assert {record.refused for record in limited.log()} <= {None, "requests/minute", "quota"}


def test_settings_that_cannot_be_changed_or_cannot_work_change_nothing(emulator: Emulator, http: httpx2.Client) -> None:
    for wrong in ({"cache_machines": 2}, {"made_up": 1}, {"queue_places": -1}, {"rate_limits": 3}):
        with pytest.raises(errors.ConfigurationError):
            emulator.change(**wrong)
    url = emulator.base_url.removesuffix("/v1") + "/emulator/settings"
    for raw in ("[", '{"rate_limits": {"rpm": 3}}', '{"service_tiers": [1]}', '{"concurrency": 0}', "[1]"):
        assert http.put(url, content=raw.encode()).status_code == 400
    assert http.put(url, json={}).json()["settings"] == json.loads(json.dumps(emulator.model.to_json()))


def test_the_command_sets_limits_and_tiers_and_names_the_option_that_is_wrong() -> None:
    app = typer.Typer()
    app.command()(run_command)
    wrong = {
        "--rate-limits": "rpm=3",
        "--tier": "flex;exhausted=2",
        "--auto-tier": "gold",
        "--overload-status": "200",
        "--service-tier-path": "a.b",
    }
    for option, value in wrong.items():
        result = CliRunner().invoke(app, [option, value])
        assert result.exit_code == 2
        assert option in result.output
    texts = ["requests_per_minute=600", "llama3:8b:tokens_per_minute=100;window=sliding"]
    assert _rate_limits(texts) == {
        "rate_limits": KeyRateLimits(requests_per_minute=600),
        "model_rate_limits": {"llama3:8b": KeyRateLimits(tokens_per_minute=100, window="sliding")},
    }
    assert _rate_limits([]) == {}
