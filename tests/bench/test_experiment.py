from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import openai
import pytest

from fastlane import ConfigurationError, Connection, RequestEncoding
from fastlane.bench import Arm, Benchmark, Conversation, Embedded, Progress, RunFailedError, Workload
from fastlane.bench._arms import DEFAULT_ARMS
from fastlane.bench._experiment import Real, RunningProvider
from fastlane.bench.load import Closed, Open, RunBudget
from fastlane.bench.recorded import RecordedRun, read_run
from fastlane.emulator import Emulator, RequestLog, preset

TALK = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."})
TALKS = Workload(
    name="talks", conversations=tuple(Conversation(name=f"talk {at}", messages=TALK * 4) for at in range(3))
)
INSTANT = Embedded(preset="instant", round_trip_time_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared(Embedded):
    """The embedded provider, started once for all tests of this module."""

    preset: str = "instant"
    round_trip_time_s: float = 0.0

    @contextmanager
    def running(self) -> Iterator[RunningProvider]:
        already = len(shared().log())

        def read_log() -> tuple[RequestLog, ...]:
            return shared().log()[already:]

        yield RunningProvider(
            base_url=shared().base_url,
            api_key="sk-bench",
            model=self.model,
            environment=dict(shared().environment),
            read_log=read_log,
        )


@cache
def shared() -> Emulator:
    return Emulator(model=preset("instant"))


@pytest.fixture(scope="module", autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    shared().close()
    shared.cache_clear()


TWO_USERS = Closed(users=(2,), think_s=0.0)


def no_client(base_url: str, api_key: str) -> openai.OpenAI:
    raise RuntimeError("this arm makes no client")


def refused(base_url: str, api_key: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=base_url, api_key=api_key, max_retries=0, default_headers={"x-emulator-prefill-ms": "soon"}
    )


def acting(base_url: str, api_key: str, at: int, act: Callable[[openai.OpenAI], openai.OpenAI]) -> openai.OpenAI:
    """A client whose chat, when it is used for the n-th time, is that of what `act` returns."""

    class Acting(openai.OpenAI):
        asked = 0

        @property
        def chat(self):  # type: ignore[no-untyped-def]
            Acting.asked += 1
            return act(self).chat if Acting.asked == at else super().chat

    return Acting(base_url=base_url, api_key=api_key)


def dies_later(base_url: str, api_key: str) -> openai.OpenAI:
    return acting(base_url, api_key, 5, lambda _: os._exit(3))


def fails_later(base_url: str, api_key: str) -> openai.OpenAI:
    # The provider refuses what it cannot read, and writes down that it did.
    refused = {"x-emulator-prefill-ms": "soon"}
    return acting(base_url, api_key, 5, lambda client: client.with_options(default_headers=refused))


def hangs_later(base_url: str, api_key: str) -> openai.OpenAI:
    # The first asks whether the client is asynchronous; then come the cold one, the warm-up and two blocks.
    slow = {"x-emulator-prefill-ms": "600000"}
    return acting(base_url, api_key, 6, lambda client: client.with_options(default_headers=slow))


def experiment(**changes: Any) -> Benchmark:
    values = {"workload": TALKS, "provider": Shared(), "load": TWO_USERS, "passes": 1}
    return Benchmark(**{**values, **changes})


def alone(name: str, client: Any) -> dict[str, Any]:
    return {"arms": (Arm(name=name, client=client),), "again": False, "load": Closed(users=(1,), think_s=0.0)}


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def at_block(number: int, act: Callable[[], None]) -> Callable[[Progress], None]:
    return lambda progress: act() if progress.blocks == number else None


def nothing_is_missing(recorded: RecordedRun) -> bool:
    """Whether the provider wrote down the same requests as the clients did."""
    logged = {entry.tag for entry in recorded.log or ()}
    return {sample.tag for sample in recorded.samples} - set(recorded.unlogged) == logged


needs_signals = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system sends no signal to a thread")


@pytest.mark.slow
def test_run_covers_every_block_and_arm_and_is_saved(tmp_path: Path) -> None:
    seen: list[Progress] = []

    run = experiment(arms=("baseline", "fastlane"), provider=INSTANT).run(tmp_path, on_progress=seen.append)

    assert run.ended == "finished"
    assert [(arm.name, arm.role, arm.client) for arm in run.header.arms] == [
        ("baseline", "reference", "openai.OpenAI"),
        ("fastlane", "arm", "fastlane.OpenAI"),
        ("baseline-again", "again", "openai.OpenAI"),
    ]
    assert Counter((sample.arm, sample.part) for sample in run.samples) == {
        (arm.name, part): number
        for arm in run.header.arms
        for part, number in (("cold", 1), ("warm-up", 1), ("measured", 12))
    }
    assert all(sample.error is None and sample.output_tokens == 3 for sample in run.samples)
    for key in {sample.key for sample in run.measured()}:
        block = sorted((each for each in run.measured() if each.key == key), key=lambda sample: sample.position)
        assert [sample.position for sample in block] == [0, 1, 2]
        assert all(later.issued_ns >= earlier.ended_ns for earlier, later in itertools.pairwise(block))
    assert nothing_is_missing(run)
    assert {(vitals.arm, vitals.cell) for vitals in run.vitals} == {
        (arm, "talks, 2 users") for arm in ("baseline", "fastlane", "baseline-again", None)
    }
    assert (seen[0].blocks, seen[-1].blocks) == (0, 12)
    assert seen[-1].share == 1.0

    again = read_run(tmp_path)
    assert (again.header, again.vitals, again.log) == (run.header, run.vitals, run.log)
    assert (again.ended, again.duration_s) == (run.ended, run.duration_s)
    # A file knows lists where memory knows tuples.
    assert [replace(sample, call=None) for sample in again.samples] == [
        replace(sample, call=None) for sample in run.samples
    ]
    assert [sample.call for sample in again.samples] == [json.loads(json.dumps(each.call)) for each in run.samples]


@pytest.mark.slow
def test_open_load_keeps_its_schedule_within_call_budget() -> None:
    run = experiment(
        arms=("baseline-async", "fastlane-async"),
        load=Open(rates=(20.0, 40.0)),
        budget=RunBudget(seconds=None, calls=60),
        passes=None,
    ).run()

    assert run.ended == "calls spent"
    # 3 first requests, and in each of two cells 3 for warm-up and as many blocks of 3 as there are calls for.
    assert len(run.samples) == 60
    assert {arm.client for arm in run.header.arms} == {"openai.AsyncOpenAI", "fastlane.AsyncOpenAI"}
    for sample in run.measured():
        assert sample.error is None
        assert sample.intended_ns is not None
        assert sample.issued_ns >= sample.intended_ns
        assert sample.started_ns == sample.intended_ns
    for cell in run.header.cells:
        blocks: dict[tuple[str, int, int, int], list[int]] = {}
        for sample in run.measured(cell.name):
            blocks.setdefault(sample.key, []).append(sample.intended_ns or 0)
        assert cell.rate is not None
        assert all(max(times) - min(times) < 1e9 / cell.rate for times in blocks.values())
    assert nothing_is_missing(run)


@pytest.mark.slow
def test_users_are_dealt_to_processes_whose_records_are_merged() -> None:
    run = experiment(arms=("no-plays",), again=False, load=Closed(users=(3,), think_s=0.0), processes=2).run()

    assert {(sample.shard, sample.lane) for sample in run.measured()} == {(0, 0), (0, 2), (1, 1)}
    assert len({sample.key for sample in run.measured()}) == 12
    assert [sample.shard for sample in run.samples if sample.cold] == [0, 1]
    assert {(vitals.shard, vitals.arm) for vitals in run.vitals} == {(0, "no-plays"), (1, "no-plays"), (0, None)}
    assert nothing_is_missing(run)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_ratios_are_known_while_a_cell_runs() -> None:
    seen: list[Progress] = []
    budget = RunBudget(calls=4 + 2 * 24)
    experiment(arms=("no-plays",), passes=None, budget=budget).run(on_progress=seen.append)

    (known,) = [ratio for ratio in seen[-1].ratios if ratio.metric == "api_end_to_end"]
    assert known.arm == "no-plays-again"
    assert known.low < known.ratio < known.high


def test_failed_request_stays_in_the_run() -> None:
    run = experiment(**alone("failing", fails_later)).run()

    assert Counter(sample.error for sample in run.measured()) == {None: 11, "BadRequestError 400": 1}
    assert nothing_is_missing(run)


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (no_client, "the client of arm 'broken' could not be made: RuntimeError: this arm makes no client"),
        (refused, "the first request of arm 'broken' failed: BadRequestError 400: .*x-emulator-prefill-ms"),
        (dies_later, "the process of arm 'broken' ended early"),
    ],
)
def test_arm_without_working_client_ends_the_run(client: Any, message: str) -> None:
    with pytest.raises(RunFailedError, match=message):
        experiment(**alone("broken", client)).run()

    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_process_that_ends_ends_the_run_of_all_shards() -> None:
    with pytest.raises(RunFailedError, match="the process of arm 'broken' ended early"):
        experiment(**{**alone("broken", dies_later), "load": Closed(users=(2,), think_s=0.0), "processes": 2}).run()

    assert multiprocessing.active_children() == []


@needs_signals
@pytest.mark.slow
def test_ctrl_c_keeps_what_was_finished(tmp_path: Path) -> None:
    # Both users pause after their first block, for longer than the test may last.
    asked = experiment(arms=("no-plays",), load=Closed(users=(2,), think_s=600.0))

    run = asked.run(tmp_path, on_progress=at_block(2, press_ctrl_c))

    assert run.ended == "interrupted"
    assert len(run.measured()) == 4
    assert nothing_is_missing(run)
    assert read_run(tmp_path).ended == "interrupted"
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@needs_signals
@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_request_that_takes_long() -> None:
    def later() -> None:
        threading.Timer(0.3, press_ctrl_c).start()

    run = experiment(**alone("hanging", hangs_later)).run(on_progress=at_block(2, later))

    assert run.ended == "interrupted"
    assert [sample.tag for sample in run.samples] == [
        "hanging/cold",
        "0/hanging/warm-up/0/0",
        "0/hanging/0/0",
        "0/hanging/0/1",
    ]
    assert nothing_is_missing(run)
    assert multiprocessing.active_children() == []


@needs_signals
def test_second_ctrl_c_ends_the_run_at_once() -> None:
    def twice() -> None:
        press_ctrl_c()
        press_ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        experiment(**alone("hanging", hangs_later)).run(on_progress=at_block(2, twice))

    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_emulated_tcp_handshake_is_counted_as_connect() -> None:
    """Loopback answers a SYN at once, so the client's own stamps have the wire's round trip in the TLS handshake."""
    wired = Embedded(preset="instant", round_trip_time_s=0.04)
    run = experiment(arms=("connection",), provider=wired, again=False, passes=1).run()

    (cold,) = (sample for sample in run.samples if sample.cold)
    assert cold.record is not None
    wire = cold.record.attempts[0].wire
    assert wire.connect_s == pytest.approx(0.04, abs=0.001)
    assert (wire.tls_s or 0.0) >= 0.039
    assert cold.call is not None
    assert cold.call["attempts"][0]["wire"]["tls_started_ns"] == wire.connect_ended_ns


def test_attribution_compares_with_no_play_at_all() -> None:
    asked = experiment(attribute=(Connection(), RequestEncoding(gzip_level=2)))

    assert [(arm.name, asked.role_of(arm)) for arm in asked.resolved] == [
        ("none", "reference"),
        ("only Connection", "arm"),
        ("only RequestEncoding", "arm"),
        ("every play", "arm"),
        ("none-again", "again"),
    ]


def makes_async(base_url: str, api_key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=base_url, api_key=api_key)


@pytest.mark.parametrize(
    ("arms", "compared"),
    [
        (("fastlane", "no-plays"), {"no-plays": "fastlane"}),
        (DEFAULT_ARMS, {"fastlane": "baseline", "fastlane-async": "baseline-async"}),
        (("baseline", "fastlane", "fastlane-async"), {"fastlane": "baseline", "fastlane-async": "baseline"}),
        (("baseline", "baseline-async", "fastlane"), {"baseline-async": "baseline", "fastlane": "baseline"}),
        (
            ("baseline", "baseline-async", "connection", Arm(name="mine", client=makes_async)),
            {"connection": "baseline", "mine": "baseline-async"},
        ),
    ],
)
def test_arms_are_compared_with_the_stock_client_of_their_kind(arms: Any, compared: dict[str, str]) -> None:
    asked = experiment(arms=arms)

    found = {arm.name: asked.reference_of(arm) for arm in asked.resolved if asked.role_of(arm) == "arm"}
    assert found == compared
    copies = [arm.name for arm in asked.resolved if asked.role_of(arm) == "again"]
    assert copies == [f"{name}-again" for name in dict.fromkeys(compared.values())]


def test_reference_and_its_copy_can_be_chosen() -> None:
    def roles(**changes: Any) -> dict[str, str]:
        asked = experiment(**changes)
        return {arm.name: asked.role_of(arm) for arm in asked.resolved}

    chosen = roles(arms=("baseline", "fastlane"), reference="fastlane")
    assert chosen == {"baseline": "arm", "fastlane": "reference", "fastlane-again": "again"}
    assert roles(arms=("baseline", "baseline-again")) == {"baseline": "reference", "baseline-again": "again"}
    assert roles(arms=("baseline",), again=False) == {"baseline": "reference"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ()}, "at least one arm is needed"),
        ({"arms": ("baseline", Arm(name="baseline"))}, "two arms are called 'baseline'"),
        ({"reference": "nope"}, "the reference has to be one of the arms"),
        ({"metrics": ("speed",)}, "unknown metric 'speed'"),
        ({"workload": (TALKS, TALKS)}, "workloads need names of their own"),
        ({"max_output_tokens": 1}, "max_output_tokens must be at least 2"),
        ({"processes": 3}, "processes must be at most the fewest users"),
        ({"load": Closed(users=(2, 2))}, "one of them twice"),
        ({"load": Closed(think_s=float("nan"))}, "think_s must be at least 0"),
        ({"load": Open(rates=(0.0,))}, "rates must be blocks per second above 0"),
        ({"budget": RunBudget(seconds=float("inf"))}, "budget's seconds must be a number above 0"),
        ({"budget": RunBudget(calls=8)}, "budget's calls must be at least 9"),
        ({"budget": RunBudget(money=1.0)}, "needs the price of model 'bench'"),
        ({"budget": RunBudget(seconds=None), "passes": None}, "nothing ends this run"),
    ],
    ids=str,
)
def test_setting_that_cannot_work_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        experiment(**changes)


def test_password_in_the_providers_address_is_in_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")

    description = Real(base_url="http://someone:password@provider:8000/v1?api-key=secret", model="m").describe()

    assert description == "http://provider:8000/v1, model 'm'"


def test_money_is_counted_by_the_catalogs_price_and_ends_the_run() -> None:
    priced = Shared(model="gpt-oss-120b")

    run = experiment(
        arms=(Arm(name="fastlane"),), again=False, provider=priced, passes=None, budget=RunBudget(money=0.0001)
    ).run()

    assert run.ended == "money spent"
    assert run.header.model == "gpt-oss-120b"
    prices = [sample.price for sample in run.samples]
    # By its price per million tokens: 0.35 US$ in, 0.75 out.
    assert prices[0] == pytest.approx(
        ((run.samples[0].input_tokens or 0) * 0.35 + (run.samples[0].output_tokens or 0) * 0.75) / 1e6
    )
    assert sum(price or 0 for price in prices) >= 0.0001
