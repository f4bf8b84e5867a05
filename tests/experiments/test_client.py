"""Live calls go to their arms, in every way that a client makes calls, and are counted."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

import fastlane
from fastlane import ConfigurationError, Connection, Guard
from fastlane.experiments import EndedArm, unit
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


def test_a_unit_stays_in_its_arm_and_each_arm_has_its_plays(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        seen: dict[int, set[str]] = {}
        for number in [*range(20), *range(20)]:
            with unit(f"user-{number}"):
                ask(client)
            seen.setdefault(number, set()).add(arm_of(client))
            record = client.last_call
            assert record is not None
            assert (record.changes == ("mark",)) == (arm_of(client) == "mark")

    assert all(len(arms) == 1 for arms in seen.values())
    assert {arm for arms in seen.values() for arm in arms} == {"control", "mark"}
    assert {number: {experiment.arm_of(f"user-{number}")} for number in range(20)} == seen


def test_arms_have_exactly_their_plays(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": (Mark("control"),), "other": (Connection(), Mark("other"))}
    with fastlane.OpenAI(**arguments, experiment=make("exact", arms=arms)) as client:
        for _ in range(40):
            ask(client)

        plays = {record.experiment.arm: record.plays for record in client.calls if record.experiment is not None}
        assert plays == {name: tuple(map(repr, own)) for name, own in arms.items()}


@pytest.mark.parametrize("where", ["user", "safety_identifier", "metadata.tenant", "a function"])
def test_a_unit_is_found_where_the_application_says(arguments: dict[str, Any], make: Make, where: str) -> None:
    of: Any = (lambda body: body["user"]) if where == "a function" else where
    experiment = make(unit=of)
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for number in range(12):
            name = f"user-{number}"
            told: Any = {"metadata": {"tenant": name}} if where.startswith("metadata") else {where: name}
            ask(client, **({"user": name} if where == "a function" else told))
            assert arm_of(client) == experiment.arm_of(name)


def test_a_unit_around_a_call_counts_more_than_its_body(arguments: dict[str, Any], make: Make) -> None:
    experiment = make(unit="user")
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for number in range(12):
            with unit("outer"), unit(f"inner-{number}"):
                ask(client, user="somebody else")
            assert arm_of(client) == experiment.arm_of(f"inner-{number}")


def test_without_a_unit_each_call_is_drawn_by_itself(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(40):
            ask(client)
        report = client.experiment.report()

    assert report["control"].calls > 0
    assert report["mark"].calls > 0
    assert sum(arm.units for arm in report.arms) == sum(arm.calls for arm in report.arms) == 40


def test_streams_the_responses_api_and_copies_take_part(arguments: dict[str, Any], make: Make) -> None:
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


def test_what_no_play_shapes_takes_no_part(arguments: dict[str, Any], make: Make) -> None:
    with fastlane.OpenAI(**arguments, experiment=make()) as client:
        client.models.list()
        client.embeddings.create(model=MODEL, input="x")

        assert [record.experiment for record in client.calls] == [None, None]


def test_a_client_with_plays_of_its_own_takes_no_part_and_one_that_is_given_an_experiment_does(
    arguments: dict[str, Any], make: Make
) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        other = client.with_plays(Mark("other"))
        ask(other)
        record = other.last_call
        assert record is not None
        assert (record.experiment, record.changes) == (None, ("other",))
        with pytest.raises(ConfigurationError, match=r"takes part in no experiment: make it with OpenAI\(experiment="):
            _ = other.experiment

        again = other.with_options(experiment=experiment)
        ask(again)
        assert arm_of(again) in ("control", "mark")
        assert again.experiment is experiment


def test_hooks_hear_of_the_calls_of_every_arm(arguments: dict[str, Any], make: Make) -> None:
    heard: list[str | None] = []

    def hook(record: fastlane.CallRecord) -> None:
        heard.append(record.experiment.arm if record.experiment is not None else None)

    with fastlane.OpenAI(**arguments, experiment=make(), hooks=[hook]) as client:
        for _ in range(30):
            ask(client)

        assert Counter(heard).keys() == {"control", "mark"}
        assert len(client.calls) == 30


def test_an_arm_may_have_connections_of_its_own(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": CONTROL, "old": (Connection(http2="never"),), "none": ()}
    with fastlane.OpenAI(**arguments, experiment=make(arms=arms, share={"old": 0.3, "none": 0.3})) as client:
        seen = set()
        for _ in range(40):
            ask(client)
            record = client.last_call
            assert record is not None
            assert record.last_attempt is not None
            seen.add((arm_of(client), record.last_attempt.http_version, record.transport))

    assert {one[:2] for one in seen} >= {("control", "HTTP/2"), ("old", "HTTP/1.1")}
    assert {one[2] for one in seen if one[0] == "none"} == {"stock"}


def test_what_an_application_sets_on_its_client_holds_in_every_arm(arguments: dict[str, Any], make: Make) -> None:
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
            if number % 2:
                await client.chat.completions.create(model=MODEL, messages=MESSAGES, user=f"user-{number}")
            else:
                async for _ in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
                    pass

    async with fastlane.AsyncOpenAI(**arguments, experiment=experiment) as client:
        await asyncio.gather(*[one(client, number) for number in range(30)])
        report = await asyncio.to_thread(experiment.report)

        expected = Counter(experiment.arm_of(f"user-{number}") for number in range(30))
        assert {arm.name: arm.calls for arm in report.arms} == expected
        assert len(client.calls) == 30


def test_calls_of_threads_take_part(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:

        def work(number: int) -> None:
            for _ in range(5):
                with unit(f"user-{number}"):
                    ask(client)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = experiment.report()

    expected = Counter(experiment.arm_of(f"user-{number}") for number in range(8))
    assert {arm.name: arm.calls for arm in report.arms} == {
        "control": 5 * expected["control"],
        "mark": 5 * expected["mark"],
    }


def test_a_stream_that_nobody_reads_is_no_trouble(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        del stream
        import gc

        gc.collect()

        (record,) = client.calls
        assert record.outcome == "abandoned"
        assert sum(arm.calls for arm in experiment.report().arms) == 1


def test_an_arm_against_itself_comes_to_no_verdict(arguments: dict[str, Any], make: Make) -> None:
    with fastlane.OpenAI(**arguments, experiment=make(arms={"control": CONTROL, "again": (Connection(),)})) as client:
        for _ in range(300):
            ask_streaming(client)
        report = client.experiment.report()

    verdicts = {one.metric: one.verdict for one in report["again"].comparisons}
    assert verdicts.keys() >= {"time_to_first_token", "end_to_end", "error_rate"}
    assert {"better", "worse"}.isdisjoint(verdicts.values())
    assert "no difference shown so far" in verdicts.values()
    assert "again (against control): 50.0% of units" in str(report)


def test_a_slow_arm_is_found(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": (*CONTROL, QUICK), "slow": (*CONTROL, SLOW)}
    with fastlane.OpenAI(**arguments, experiment=make(arms=arms)) as client:
        for _ in range(160):
            ask_streaming(client)
        report = client.experiment.report()

    (comparison,) = [one for one in report["slow"].comparisons if one.metric == "time_to_first_token"]
    assert comparison.said == "slower"
    assert comparison.low is not None
    assert comparison.low > 0
    assert comparison.calls + comparison.reference_calls == 160
    assert report.to_dict()["arms"][1]["comparisons"][0]["said"] == "slower"


def test_a_fuse_ends_an_arm_whose_calls_all_fail(
    arguments: dict[str, Any], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[EndedArm] = []
    arms = {"control": CONTROL, "broken": (*CONTROL, BAD_REQUEST)}
    experiment = make(arms=arms, on_end=told.append)
    failed = 0
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(120):
            try:
                ask(client)
            except fastlane.BadRequestError:
                failed += 1
        report = experiment.report()
        after = [record.experiment for record in client.calls[-20:]]

    assert failed == 20
    assert [(one.arm, one.by, one.reason) for one in told] == [("broken", "fuse", "20 of its calls in a row failed")]
    assert report["broken"].ended == told[0]
    assert {(one.arm, one.why) for one in after if one is not None and one.drawn == "broken"} == {("control", "ended")}
    assert "the arm 'broken' of the experiment 'mark-2026' has ended after 20 calls" in caplog.text
    # Those that had to go elsewhere are not the reference's own.
    drawn = sum(one.experiment is not None and one.experiment.why is None for one in client.calls)
    assert sum(arm.calls for arm in report.arms) == drawn


def test_a_provider_that_is_down_ends_no_arm(arguments: dict[str, Any], make: Make) -> None:
    experiment = make(fuse=5)
    with fastlane.OpenAI(
        **{**arguments, "base_url": "http://127.0.0.1:9/v1"}, experiment=experiment, max_retries=0
    ) as client:
        for _ in range(40):
            with pytest.raises(fastlane.APIConnectionError):
                ask(client)

    assert all(arm.ended is None for arm in experiment.report().arms)


def test_a_guard_ends_an_arm_by_a_test_that_holds_at_any_time(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": CONTROL, "broken": (*CONTROL, BAD_REQUEST)}
    experiment = make(arms=arms, fuse=None, guards=[Guard("error_rate", worse_by=0.1)])
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        ended_after = None
        for number in range(200):
            try:
                ask(client)
            except fastlane.BadRequestError:
                pass
            if number % 10 == 0:
                experiment.flush()
                ended = experiment.report()["broken"].ended
                if ended is not None:
                    ended_after = ended
                    break

    assert ended_after is not None
    assert ended_after.by == "error_rate"
    # Not by the first few: it takes 30 units of each arm.
    assert ended_after.calls >= 30
    assert "error_rate is worse than the reference's by at least " in ended_after.reason
    assert {one.metric: one.said for one in ended_after.comparisons}["error_rate"] == "more errors"


def test_an_arm_that_has_ended_is_resumed_by_its_name_alone(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        ask(client)
        experiment.end("mark", reason="it is Friday")
        for _ in range(12):
            ask(client)
            assert arm_of(client) == "control"
        again = make()
        assert again.report()["mark"].ended is not None

        experiment.resume("mark")
        for _ in range(30):
            ask(client)
        report = experiment.report()

    assert report["mark"].ended is None
    assert report["mark"].calls > 0
    assert report.stage == 2


def test_ramping_leaves_units_in_their_arms(make: Make) -> None:
    experiment = make(share={"mark": 0.1})
    before = [number for number in range(300) if experiment.arm_of(f"user-{number}") == "mark"]

    experiment.ramp(mark=0.4)

    after = [number for number in range(300) if experiment.arm_of(f"user-{number}") == "mark"]
    assert set(before) < set(after)
    assert experiment.report()["mark"].share == pytest.approx(0.4)
    assert experiment.report().stage == 2


def test_the_application_scores_quality(arguments: dict[str, Any], make: Make) -> None:
    experiment = make(guards=[Guard("quality", below=0.5)])
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for number in range(200):
            answer = ask(client)
            record = client.last_call
            assert record is not None
            name = (record, record.call_id, answer.id)[number % 3]
            assert experiment.score(name, quality=0.1 if arm_of(client) == "mark" else 0.9) == (
                record.experiment is not None and record.experiment.why is None
            )
            if number % 20 == 0:
                experiment.flush()
        report = experiment.report()

    ended = report["mark"].ended
    assert ended is not None
    assert ended.by == "quality"
    assert "below 0.5" in ended.reason


def test_a_call_that_was_not_answered_is_no_parse_failure(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": (*CONTROL, BAD_REQUEST), "again": (*CONTROL, BAD_REQUEST)}
    experiment = make(arms=arms)
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(10):
            with pytest.raises(fastlane.BadRequestError):
                ask(client)
            record = client.last_call
            assert record is not None
            assert not experiment.score(record, parsed=False)
            assert not experiment.score(record.call_id, parsed=True)

    assert {one.metric for one in experiment.report()["again"].comparisons} == {"error_rate"}


def test_a_score_counts_once_and_for_its_own_experiment_alone(arguments: dict[str, Any], make: Make) -> None:
    one, other = make("one"), make("other")
    with fastlane.OpenAI(**arguments, experiment=one) as client:
        ask(client)
        record = client.last_call
        assert record is not None

        assert one.score(record, quality=1.0)
        assert not one.score(record.call_id, quality=1.0)
        assert one.score(record, parsed=False)
        assert not one.score(record, parsed=False)
        assert not other.score(record, quality=1.0)
        assert not one.score("nobody", quality=1.0)
        comparisons = one.report()["mark"].comparisons

    (parsing,) = [each for each in comparisons if each.metric == "parse_failures"]
    assert {parsing.arm, parsing.reference} == {1.0, None}


def test_prices_come_from_the_catalog(arguments: dict[str, Any], make: Make) -> None:
    price = fastlane.ModelPrice(input=1.0, output=10.0)
    model = fastlane.CatalogModel(name=MODEL, first_token_s=((1_000, 0.1),), tokens_per_s=100, price=price)
    experiment = make(catalog=fastlane.Catalog(models=[model]), guards=[Guard("price")])
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(10):
            ask(client)
        record = client.last_call
        assert record is not None
        usage = record.usage
        (comparison,) = [one for one in experiment.report()["mark"].comparisons if one.metric == "price"]

    assert usage.input_tokens is not None
    assert usage.output_tokens is not None
    wanted = pytest.approx((usage.input_tokens + 10 * usage.output_tokens) / 1_000_000, rel=0.2)
    assert next(value for value in (comparison.arm, comparison.reference) if value is not None) == wanted


def test_disabled_it_does_nothing(
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


def test_arms_may_route_hedge_and_bound(arguments: dict[str, Any], make: Make) -> None:
    model = fastlane.CatalogModel(name=MODEL, first_token_s=((1_000, 0.1),), tokens_per_s=100)
    routing = fastlane.Routing(fastlane.Catalog(models=[model]))
    arms = {
        "control": (routing, *CONTROL),
        "hedged": (routing, *CONTROL, fastlane.Hedging()),
        "bound": (routing, *CONTROL, fastlane.BoundedOutput(), fastlane.RequestEncoding()),
    }
    with fastlane.OpenAI(**arguments, experiment=make(arms=arms, share={"hedged": 0.4, "bound": 0.4})) as client:
        for _ in range(40):
            client.chat.completions.create(model="fastlane/auto", messages=MESSAGES)
        seen = {
            (arm_, one.hedging is not None, one.request_encoding is not None)
            for one in client.calls
            if (arm_ := of(one))
        }

        assert seen == {("control", False, False), ("hedged", True, False), ("bound", False, True)}
        assert all(one.routing is not None for one in client.calls)
        assert sum(arm.calls for arm in client.experiment.report().arms) == 40


def of(record: fastlane.CallRecord) -> str:
    return "" if record.experiment is None else record.experiment.arm


def test_closing_a_client_closes_what_its_arms_have_opened(arguments: dict[str, Any], make: Make) -> None:
    arms = {"control": CONTROL, "old": (Connection(http2="never"),)}
    client = fastlane.OpenAI(**arguments, experiment=make(arms=arms))
    while len({of(record) for record in client.calls}) < 2:
        ask(client)
    shell = client._fastlane
    assert shell is not None
    (other,) = shell.arms.others(client)
    assert not other._client.is_closed

    client.close()

    assert other._client.is_closed
