from __future__ import annotations

import os

import openai
import pytest

from fastlane import ConfigurationError
from fastlane.bench import Arm, Conversation, Embedded, RunFailedError, Settings, Workload, arms_named, run, summarise

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
    failing = Arm(name="failing", description="", make_client=fails_later)

    result = run(settings(*arms_named(["baseline"]), failing, lanes=1))

    summary = summarise(result)
    assert [(arm.requests, arm.failed) for arm in summary.arms] == [(12, 0), (12, 1)]
    assert summary.arms[1].errors == {"BadRequestError 400": 1}
    assert {comparison.pairs for comparison in summary.comparisons} == {11}
    assert summary.problems == ()


@pytest.mark.parametrize("make_client", [no_client, dies_later])
def test_a_process_that_ends_early_ends_the_run(make_client: object) -> None:
    broken = Arm(name="broken", description="", make_client=make_client)  # type: ignore[arg-type]

    with pytest.raises(RunFailedError, match="process of arm 'broken' ended early"):
        run(settings(broken))


@pytest.mark.parametrize(
    "changes",
    [
        {"lanes": 0},
        {"think_s": -1.0},
        {"think_s": float("nan")},
        {"budget_s": float("inf")},
        {"max_output_tokens": 1},
        {"budget_s": -1.0},
        {"turns": 0},
    ],
    ids=str,
)
def test_a_setting_that_cannot_work_is_named(changes: dict[str, object]) -> None:
    (name,) = changes

    with pytest.raises(ConfigurationError, match=f"{name} must be at least"):
        settings(*arms_named(["baseline"]), **changes)
