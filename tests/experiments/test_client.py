"""Live calls of every entry point go to their arms and are counted."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections import Counter
from typing import Any

import pytest

import fastlane
from fastlane import ConfigurationError, Connection
from fastlane.catalog import Catalog, CatalogModel
from fastlane.experiments import Guard, unit
from tests.experiments.conftest import (
    BAD_REQUEST,
    CONTROL,
    MESSAGES,
    MODEL,
    Asking,
    Make,
    Mark,
    arm_of,
    ask,
    ask_streaming,
)  # fmt: skip

SLOW = Asking("x-emulator-prefill-ms", "30")
QUICK = Asking("x-emulator-prefill-ms", "1")


def of(record: fastlane.CallRecord) -> str:
    return "" if record.experiment is None else record.experiment.arm


def test_unit_with_many_calls_stays_in_its_arm(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        seen: dict[int, set[str]] = {}
        for number in [*range(20), *range(20)]:
            with unit(f"user-{number}"):
                ask(client)
            seen.setdefault(number, set()).add(arm_of(client))
            record: Any = client.last_call
            assert (record.changes == ("mark",)) == (arm_of(client) == "mark")

    assert all(len(arms) == 1 for arms in seen.values())
    assert {arm for arms in seen.values() for arm in arms} == {"control", "mark"}
    assert {number: {experiment.arm_of(f"user-{number}")} for number in range(20)} == seen


def test_arms_have_exactly_their_plays(arguments: dict[str, Any], make: Make) -> None:
    """Calls without a unit are assigned one by one, and hooks get those of every arm."""
    arms = {"control": (Mark("control"),), "other": (Connection(), Mark("other"))}
    seen: list[fastlane.CallRecord] = []
    with fastlane.OpenAI(**arguments, experiment=make("exact", arms=arms), on_call_end=[seen.append]) as client:
        for _ in range(40):
            ask(client)
        report = client.experiment.report()

        assert [record.call_id for record in client.calls] == [record.call_id for record in seen]
    plays = {of(record): record.plays for record in seen}
    assert plays == {name: tuple(map(repr, own)) for name, own in arms.items()}
    assert {arm.name: arm.calls for arm in report.arms} == Counter(map(of, seen))


def test_unit_around_a_call_outweighs_its_body(arguments: dict[str, Any], make: Make) -> None:
    experiment = make(unit=lambda body: body["user"])
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for number in range(12):
            with unit("outer"), unit(f"inner-{number}"):
                ask(client, user="another user")
            assert arm_of(client) == experiment.arm_of(f"inner-{number}")


def test_streams_responses_and_copies_take_part(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        ask_streaming(client)
        client.responses.create(model=MODEL, input="Name a river.")
        client.completions.create(model=MODEL, prompt="Name a river.")
        ask(client.with_options(timeout=30.0))
        ask(client.copy(max_retries=1))
        client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
        with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
            stream.until_done()

        assert len(client.calls) == 7
        assert all(record.experiment is not None and record.experiment.why is None for record in client.calls)
        assert sum(arm.calls for arm in experiment.report().arms) == 7


def test_calls_that_no_play_shapes_take_no_part(arguments: dict[str, Any], make: Make) -> None:
    with fastlane.OpenAI(**arguments, experiment=make()) as client:
        client.models.list()
        client.embeddings.create(model=MODEL, input="x")

        assert [record.experiment for record in client.calls] == [None, None]


def test_copy_with_other_plays_takes_no_part(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        other = client.with_plays(Mark("other"))
        ask(other)
        record: Any = other.last_call
        assert (record.experiment, record.changes) == (None, ("other",))
        with pytest.raises(ConfigurationError, match=r"has no experiment: make it with OpenAI\(experiment="):
            _ = other.experiment
        assert dict(inspect.getmembers(other))["last_call"] is record

        again = other.with_options(experiment=experiment)
        ask(again)
        assert arm_of(again) in ("control", "mark")
        assert again.experiment is experiment


def test_arm_with_other_connection_settings_uses_them(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": CONTROL, "old": (Connection(http2="never"),), "none": ()}
    with fastlane.OpenAI(**arguments, experiment=make(arms=arms, share={"old": 0.3, "none": 0.3})) as client:
        seen = set()
        for _ in range(40):
            ask(client)
            record: Any = client.last_call
            seen.add((arm_of(client), record.last_attempt.http_version, record.transport))

    assert {one[:2] for one in seen} >= {("control", "HTTP/2"), ("old", "HTTP/1.1")}
    assert {one[2] for one in seen if one[0] == "none"} == {"stock"}


def test_option_set_on_the_client_holds_in_every_arm(arguments: dict[str, Any], make: Make) -> None:
    with fastlane.OpenAI(**arguments, experiment=make()) as client:
        for _ in range(20):
            ask(client)
        client.base_url = "http://127.0.0.1:9/v1"
        client.max_retries = 0
        for _ in range(20):
            with pytest.raises(fastlane.APIConnectionError):
                ask(client)


@pytest.mark.asyncio
async def test_calls_of_tasks_take_part(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()

    async def one(client: fastlane.AsyncOpenAI, number: int) -> None:
        with unit(f"user-{number}"):
            result: Any = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=number % 2 == 0)
            if number % 2 == 0:
                assert [chunk async for chunk in result]

    async with fastlane.AsyncOpenAI(**arguments, experiment=experiment) as client:
        await asyncio.gather(*[one(client, number) for number in range(30)])
        report = await asyncio.to_thread(experiment.report)

        expected = Counter(experiment.arm_of(f"user-{number}") for number in range(30))
        assert {arm.name: arm.calls for arm in report.arms} == expected
        assert len(client.calls) == 30


def test_abandoned_stream_is_counted(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        del stream
        gc.collect()

        (record,) = client.calls
        assert record.outcome == "abandoned"
        assert sum(arm.calls for arm in experiment.report().arms) == 1


@pytest.mark.slow
def test_slow_arm_is_found(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": (*CONTROL, QUICK), "slow": (*CONTROL, SLOW)}
    with fastlane.OpenAI(**arguments, experiment=make(arms=arms)) as client:
        for _ in range(160):
            ask_streaming(client)
        report = client.experiment.report()

    (comparison,) = [one for one in report["slow"].comparisons if one.metric == "time_to_first_token"]
    assert comparison.verdict == "slower"
    assert (comparison.low or 0) > 0
    assert comparison.calls + comparison.reference_calls == 160
    assert report.to_dict()["arms"][1]["comparisons"][0]["verdict"] == "slower"


def ask_ignoring_refusals(client: fastlane.OpenAI) -> None:
    try:
        ask(client)
    except fastlane.BadRequestError:
        pass


def test_failing_arm_is_ended_by_the_default_guard(
    arguments: dict[str, Any], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = make(arms={"control": CONTROL, "broken": (*CONTROL, BAD_REQUEST)})
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        while (ended := experiment.report()["broken"].ended) is None and len(client.calls) < 300:
            for _ in range(10):
                ask_ignoring_refusals(client)
        for _ in range(20):
            ask(client)
        report = experiment.report()
        after = [record.experiment for record in client.calls[-20:]]

    assert ended is not None
    assert (ended.by, ended.calls >= 30) == ("error_rate", True)
    assert "error_rate is worse than the reference's by at least " in ended.reason
    assert report["broken"].calls == ended.calls
    assert {(one.arm, one.why) for one in after if one is not None and one.drawn == "broken"} == {("control", "ended")}
    assert caplog.text.count("the arm 'broken' of the experiment 'mark-2026' has ended after") == 1


def test_unreachable_provider_ends_no_arm(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    arguments |= {"base_url": "http://127.0.0.1:9/v1", "max_retries": 0}
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(120):
            with pytest.raises(fastlane.APIConnectionError):
                ask(client)

    assert all(arm.ended is None for arm in experiment.report().arms)
    assert sum(arm.calls for arm in experiment.report().arms) == 120


def test_arm_ended_by_the_application_stays_ended(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        assert experiment.end("mark", reason="it is Friday")
        for _ in range(12):
            ask(client)
            assert arm_of(client) == "control"

    ended: Any = make().report()["mark"].ended
    assert (ended.by, ended.reason) == ("application", "it is Friday")


def test_changed_definition_counts_anew_with_the_same_units(arguments: dict[str, Any], make: Make) -> None:
    before = make(share={"mark": 0.1})
    with fastlane.OpenAI(**arguments, experiment=before) as client:
        ask(client)
    after = make(share={"mark": 0.4})

    assert [sum(arm.calls for arm in one.report().arms) for one in (before, after)] == [1, 0]
    units = [f"user-{number}" for number in range(300)]
    assert all(after.arm_of(one) == "mark" for one in units if before.arm_of(one) == "mark")
    assert after.report()["mark"].share == 0.4


def test_quality_scores_end_an_arm_that_is_worse(arguments: dict[str, Any], make: Make) -> None:
    experiment, other = make(guards=[Guard("quality", worse_by=0.3)]), make("other")
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(200):
            ask(client)
            record: Any = client.last_call
            in_experiment = record.experiment is not None and record.experiment.why is None
            is_counted = experiment.score(record, quality=0.1 if arm_of(client) == "mark" else 0.9)
            # The arm may end between the call and its score.
            assert is_counted == in_experiment or (arm_of(client) == "mark" and experiment.report()["mark"].ended)
            assert not other.score(record, quality=1.0)
        report = experiment.report()

        ended: Any = report["mark"].ended
        assert ended.by == "quality"
        assert {one.metric: one.verdict for one in report["mark"].comparisons}["quality"] == "worse"


def test_unanswered_call_is_no_parse_failure(arguments: dict[str, Any], make: Make) -> None:
    experiment = make(arms={"control": (*CONTROL, BAD_REQUEST), "again": (*CONTROL, BAD_REQUEST)})
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(10):
            ask_ignoring_refusals(client)

    assert {one.metric for one in experiment.report()["again"].comparisons} == {"error_rate"}


def test_prices_come_from_the_catalog(arguments: dict[str, Any], make: Make) -> None:
    price = fastlane.catalog.ModelPrice(input=1.0, output=10.0)
    model = CatalogModel(name=MODEL, first_token_s=((1_000, 0.1),), tokens_per_s=100, price=price)
    experiment = make(catalog=Catalog(models=[model]), guards=[Guard("price")])
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(10):
            ask(client)
        record: Any = client.last_call
        usage = record.usage
        (comparison,) = [one for one in experiment.report()["mark"].comparisons if one.metric == "price"]

    assert usage.input_tokens is not None
    assert usage.output_tokens is not None
    wanted = pytest.approx((usage.input_tokens + 10 * usage.output_tokens) / 1_000_000, rel=0.2)
    assert next(value for value in (comparison.arm, comparison.reference) if value is not None) == wanted


def test_disabled_experiment_does_nothing(
    arguments: dict[str, Any], make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        ask(client)
        report = client.experiment.report()

    assert report.problem == "fastlane is disabled (FASTLANE_DISABLED)"
    assert [arm.calls for arm in report.arms] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_closed_client_closes_the_clients_of_its_arms(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": CONTROL, "old": (Connection(http2="never"),)}
    client = fastlane.OpenAI(**arguments, experiment=make(arms=arms))
    while len({of(record) for record in client.calls}) < 2:
        ask(client)
    shell: Any = client._fastlane
    (other,) = shell.arms.others(client)
    assert not other._client.is_closed

    client.close()

    assert other._client.is_closed
