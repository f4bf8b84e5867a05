from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence

import openai
import pytest

from fastlane import ConfigurationError
from fastlane.bench import Arm, Conversation, Embedded, RunFailedError, Settings, Workload, arms_named, run, summarise
from fastlane.bench._run import _Crew

TALK = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."})
WORKLOAD = Workload(
    name="talks", conversations=tuple(Conversation(name=f"talk {at}", messages=TALK * 4) for at in range(3))
)
INSTANT = Embedded(preset="instant", round_trip_time_s=0.0)


def no_client(base_url: str, api_key: str) -> openai.OpenAI:
    raise RuntimeError("this arm makes no client")


def dies_later(base_url: str, api_key: str) -> openai.OpenAI:
    class Dying(openai.OpenAI):
        asked = 0

        @property
        def chat(self):  # type: ignore[no-untyped-def]
            Dying.asked += 1
            if Dying.asked > 3:
                os._exit(3)
            return super().chat

    return Dying(base_url=base_url, api_key=api_key)


def fails_later(base_url: str, api_key: str) -> openai.OpenAI:
    class Failing(openai.OpenAI):
        asked = 0

        @property
        def chat(self):  # type: ignore[no-untyped-def]
            Failing.asked += 1
            if Failing.asked == 3:
                # The provider refuses what it cannot read, and writes down that it did.
                return self.with_options(default_headers={"x-emulator-prefill-ms": "soon"}).chat
            return super().chat

    return Failing(base_url=base_url, api_key=api_key)


def hangs_later(base_url: str, api_key: str) -> openai.OpenAI:
    class Hanging(openai.OpenAI):
        asked = 0

        @property
        def chat(self):  # type: ignore[no-untyped-def]
            Hanging.asked += 1
            if Hanging.asked == 4:
                return self.with_options(default_headers={"x-emulator-prefill-ms": "600000"}).chat
            return super().chat

    return Hanging(base_url=base_url, api_key=api_key)


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def settings(*arms: Arm, **changes: object) -> Settings:
    values: dict[str, object] = {"workload": WORKLOAD, "provider": INSTANT, "lanes": 2, "think_s": 0.0}
    return Settings(arms=arms, **{**values, **changes})  # type: ignore[arg-type]


def test_every_lane_sends_every_block_with_every_arm() -> None:
    seen: list[tuple[int, int]] = []

    result = run(
        settings(*arms_named(["baseline", "baseline-again"])),
        on_block=lambda done, planned: seen.append((done, planned)),
    )

    assert (result.blocks_run, result.blocks_planned) == (12, 12)
    assert seen == [(done, 12) for done in range(1, 13)]
    assert len(result.samples) == 2 + 2 * 12
    assert [sample.tag for sample in result.samples if sample.cold] == ["baseline/cold", "baseline-again/cold"]
    assert summarise(result).problems == ()


def test_a_failed_request_stays_in_the_run_and_is_counted() -> None:
    failing = Arm(name="failing", description="", client=fails_later)

    result = run(settings(*arms_named(["baseline"]), failing, lanes=1))

    summary = summarise(result)
    assert [(arm.requests, arm.failed) for arm in summary.arms] == [(12, 0), (12, 1)]
    assert summary.arms[1].errors == {"BadRequestError 400": 1}
    assert {comparison.pairs for comparison in summary.comparisons} == {11}
    assert summary.problems == ()


@pytest.mark.parametrize("make_client", [no_client, dies_later])
def test_a_process_that_ends_early_ends_the_run(make_client: object) -> None:
    broken = Arm(name="broken", description="", client=make_client)  # type: ignore[arg-type]

    with pytest.raises(RunFailedError, match="process of arm 'broken' ended early"):
        run(settings(broken))


@pytest.mark.parametrize(
    "changes",
    [
        {"lanes": 0},
        {"think_s": -1.0},
        {"think_s": float("nan")},
        {"max_output_tokens": 1},
        {"turns": 0},
    ],
    ids=str,
)
def test_a_setting_that_cannot_work_is_named(changes: dict[str, object]) -> None:
    (name,) = changes

    with pytest.raises(ConfigurationError, match=f"{name} must be at least"):
        settings(*arms_named(["baseline"]), **changes)


@pytest.mark.parametrize("budget_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_budget_is_a_number_of_seconds_above_0(budget_s: float) -> None:
    with pytest.raises(ConfigurationError, match=r"budget_s must be a number of seconds above 0, got "):
        settings(*arms_named(["baseline"]), budget_s=budget_s)


def test_a_provider_that_cannot_be_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigurationError, match="unknown preset 'nope'"):
        Embedded(preset="nope")
    with pytest.raises(ConfigurationError, match="round_trip_time_s"):
        Embedded(round_trip_time_s=float("nan"))


needs_signals = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system sends no signal to a thread")


def at_block(number: int, act: Callable[[], None]) -> Callable[[int, int], None]:
    return lambda done, _planned: act() if done == number else None


@needs_signals
def test_ctrl_c_keeps_what_was_finished() -> None:
    # Both lanes pause after their first block, for longer than the test may last.
    paused = settings(*arms_named(["baseline", "fastlane"]), think_s=600.0)

    result = run(paused, on_block=at_block(2, press_ctrl_c))

    assert result.interrupted
    assert (result.blocks_run, result.blocks_planned) == (2, 12)
    assert summarise(result).problems == ()
    assert multiprocessing.active_children() == []


@needs_signals
def test_ctrl_c_does_not_wait_for_a_request_that_takes_long() -> None:
    hanging = Arm(name="hanging", description="", client=hangs_later)

    def later() -> None:
        threading.Timer(0.3, press_ctrl_c).start()

    # The fourth request, one after the warm-up and two blocks, would take longer than the test may last.
    result = run(settings(hanging, lanes=1), on_block=at_block(2, later))

    assert result.interrupted
    assert [sample.tag for sample in result.samples] == ["hanging/cold", "hanging/0/0", "hanging/0/1"]
    assert result.log is not None
    assert [entry.tag for entry in result.log] == [sample.tag for sample in result.samples]
    assert summarise(result).problems == ()
    assert multiprocessing.active_children() == []


@needs_signals
def test_a_second_ctrl_c_ends_the_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Arm(name="hanging", description="", client=hangs_later)
    waited_for_requests = _Crew._end_soon

    def press_again(crew: _Crew, ended: Sequence[threading.Event]) -> None:
        press_ctrl_c()
        waited_for_requests(crew, ended)

    monkeypatch.setattr(_Crew, "_end_soon", press_again)

    with pytest.raises(KeyboardInterrupt):
        run(settings(hanging, lanes=1), on_block=at_block(2, press_ctrl_c))

    assert multiprocessing.active_children() == []
