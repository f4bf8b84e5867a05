"""A provider's own times are on record and span, where its facts say in which header or field it tells them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import openai
import pytest

import fastlane
from fastlane.emulator import Dialect, Emulator, ProviderModel
from fastlane.protocol.provider_times import times_reader
from fastlane.providers import Fact, ProviderFacts, facts_named, names as slugs, registered
from fastlane.records.usage import ProviderTimes
from tests.telemetry.conftest import Listening

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
PHASES = {"queue_time": "queue", "prompt_time": "prefill", "completion_time": "decode", "total_time": "total"}


def fact(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://example.com/docs", checked=date(2026, 11, 22), evidence="documented")


def facts(fields: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> ProviderFacts:
    """What says its times in these fields, in seconds, and headers, in milliseconds."""
    timing: dict[str, Any] = {"phases": fact({**(fields or {}), **(headers or {})})}
    if fields:
        timing["fields"] = fact(dict.fromkeys(fields, "s"))
    if headers:
        timing["headers"] = fact(dict.fromkeys(headers, "ms"))
    return ProviderFacts.model_validate({"slug": "example", "timing": timing})


def below(*paths: str) -> ProviderFacts:
    return facts({f"{path}.{name}": phase for path in paths for name, phase in PHASES.items()})


IN_TIME_INFO, IN_USAGE = below("time_info"), below("usage")


@pytest.fixture(scope="module")
def provider() -> Iterator[Emulator]:
    """A provider that takes 30 ms to the first token, and tells its times in all of these places."""
    dialect = Dialect(timing=("time_info", "usage"), headers={"openai-processing-ms": "12.5"})
    model = ProviderModel(prefill_base_s=0.03, inter_token_s=0.005, default_output_tokens=3, dialect=dialect)
    with Emulator(model=model) as emulator:
        yield emulator


@pytest.fixture
def arguments(provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name, value in provider.environment.items():
        monkeypatch.setenv(name, value)
    return {"base_url": provider.base_url, "api_key": "none", "raise_play_errors": True, "max_retries": 0}


@contextmanager
def known_to(arguments: dict[str, Any], known: ProviderFacts) -> Iterator[Any]:
    """A client of the provider, of which so much is known."""
    with registered(known, origins=[arguments["base_url"]]), fastlane.OpenAI(**arguments) as client:
        yield client


def ask(client: Any, *, stream: bool, endpoint: str = "chat", **more: Any) -> None:
    if endpoint == "responses":
        answer = client.responses.create(model="m", input="Name a river.", stream=stream)
    else:
        if stream:
            more["stream_options"] = {"include_usage": True}
        answer = client.chat.completions.create(model="m", messages=MESSAGES, stream=stream, **more)
    for _ in answer if stream else ():
        pass


def of(client: Any) -> ProviderTimes:
    times: ProviderTimes | None = client.last_call.provider_times
    assert times is not None
    return times


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("known", [IN_TIME_INFO, IN_USAGE], ids=["time_info", "usage"])
def test_the_body_says_how_long_each_phase_took(
    known: ProviderFacts, stream: bool, endpoint: str, arguments: dict[str, Any]
) -> None:
    with known_to(arguments, known) as client:
        ask(client, stream=stream, endpoint=endpoint)
        times, record = of(client), client.last_call

    assert times.queue_s is not None
    assert times.prefill_s is not None
    assert times.decode_s is not None
    assert times.total_s == pytest.approx(times.queue_s + times.prefill_s + times.decode_s, abs=1e-6)
    assert times.prefill_s >= 0.029
    assert times.total_s <= record.duration_s


@pytest.mark.asyncio
async def test_asynchronous_and_undecoded_answers_are_read_too(arguments: dict[str, Any]) -> None:
    with known_to(arguments, IN_TIME_INFO) as plain:
        plain.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
        undecoded = of(plain)
        async with fastlane.AsyncOpenAI(**arguments) as client:
            async for _ in await client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
                pass
            streamed = of(client)

    assert undecoded.prefill_s is not None
    assert streamed.prefill_s is not None


def test_a_header_says_the_time_to_a_streams_head_and_not_that_of_the_answer(arguments: dict[str, Any]) -> None:
    with known_to(arguments, facts(headers={"openai-processing-ms": "total"})) as client:
        ask(client, stream=False)
        assert of(client) == ProviderTimes(total_s=0.0125)
        ask(client, stream=True)
        assert of(client) == ProviderTimes(head_s=0.0125)


def test_an_error_has_no_times(arguments: dict[str, Any]) -> None:
    with known_to(arguments, facts(headers={"openai-processing-ms": "total"})) as client:
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=[])
        assert client.last_call.provider_times is None


def test_what_is_not_known_to_be_a_time_is_not_read(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        ask(client, stream=True)
        assert client.last_call is not None
        assert client.last_call.provider_times is None


@pytest.mark.parametrize("level", ["attempts", "phases"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_span_says_the_same(stream: bool, level: str, listening: Listening, arguments: dict[str, Any]) -> None:
    told = listening(level=level)
    with known_to(arguments, IN_TIME_INFO) as client:
        ask(client, stream=stream)
        times = of(client)
    found = dict(told.the("chat").attributes or {})
    for phase in ("queue", "prefill", "decode", "total"):
        assert found[f"fastlane.provider.{phase}.duration"] == getattr(times, f"{phase}_s")


@pytest.mark.parametrize("value", ["soon", None, True, -1.0, float("nan"), float("inf"), 10**400, 1.8e9, [1], {"s": 1}])
def test_what_can_be_no_time_is_none(value: Any) -> None:
    said = times_reader(IN_TIME_INFO.timing)
    assert said is not None
    assert said.in_answer({"time_info": {"queue_time": value, "prompt_time": 0.25}}) == {"prefill_s": 0.25}


@pytest.mark.parametrize("answer", [None, 1, "time_info", [], {"time_info": None}, {"time_info": [1]}, object()])
def test_an_answer_of_another_shape_says_none(answer: Any) -> None:
    said = times_reader(IN_TIME_INFO.timing)
    assert said is not None
    assert said.in_answer(answer) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("2280", 2.28), ("gfet4t7; dur=2280", 2.28), ("a;dur=3, b;dur=9", 0.003), ("cache;desc=x", None), ("1.2.3", None)],
)
def test_a_servers_timing_is_the_number_or_what_stands_after_dur(value: str, seconds: float | None) -> None:
    said = times_reader(facts(headers={"server-timing": "total"}).timing)
    assert said is not None
    found = said.of({"server-timing": value}, None, is_stream=False)
    assert (None if found is None else found.total_s) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("slug", sorted(slugs()))
def test_every_phase_that_facts_name_has_a_unit(slug: str) -> None:
    timing = facts_named(slug).timing
    named = set((timing.phases.value if timing.phases is not None else None) or {})
    units = {name for kind in (timing.headers, timing.fields) if kind is not None for name in kind.value or {}}
    assert named <= units
    assert (times_reader(timing) is not None) == bool(named)
