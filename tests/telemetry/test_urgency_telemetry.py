"""What telemetry tells of a call's urgency, its waits for a slot and for rate limits, and its tier."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import fastlane
from fastlane import Connection, Urgency
from fastlane.plays.urgency.slots import queues
from fastlane.records import AdmissionRecord, RateLimitsRecord, UrgencyRecord
from tests.telemetry.conftest import CapturedTelemetry, Listening, attributes_of, seconds
from tests.telemetry.measuring import ended, record
from tests.waiting import until

MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours."}]


def urgency(**changes: Any) -> UrgencyRecord:
    admission = AdmissionRecord(waited_s=0.25, ahead=3, concurrency=16)
    return UrgencyRecord(**{"urgency": "background", "admission": admission, **changes})


def span_attributes(**section: Any) -> dict[str, Any]:
    """What a section of a record adds to the span of the call."""
    (made,) = record(**section).sections
    return {name: value for name, value in made.attributes().items() if value is not None}


def test_urgency_is_a_label_of_fastlane_metrics_only(meters: CapturedTelemetry) -> None:
    meters.tell(ended(record(urgency=urgency())), ended(record(urgency=urgency(admission=None))), ended(record()))

    assert set(meters.values("fastlane.client.time_to_first_token")) == {(False,), (False, "background")}
    assert set(meters.values("gen_ai.client.operation.duration")) == {()}
    assert meters.values("fastlane.client.admission.wait.duration") == {("background",): 0.25}


def test_waits_for_rate_limits_are_measured_by_reason(meters: CapturedTelemetry) -> None:
    waited = RateLimitsRecord(waited_s=0.5, waited_for="tokens", ahead=2, refused=1)
    free = RateLimitsRecord(waited_s=0.0, waited_for=None, ahead=0, refused=0)
    meters.tell(*(ended(record(rate_limits=one)) for one in (waited, waited, free)))

    assert meters.values("fastlane.client.rate_limits.wait.duration") == {("tokens",): 1.0, ("none",): 0.0}
    assert meters.values("fastlane.client.rate_limits.refused") == {(): 2}
    assert span_attributes(rate_limits=waited) == {
        "fastlane.rate_limits.wait.duration": 0.5,
        "fastlane.rate_limits.wait.reason": "tokens",
        "fastlane.rate_limits.ahead": 2,
        "fastlane.rate_limits.refused": 1,
    }


def test_tiers_are_counted_as_requested_and_served(meters: CapturedTelemetry) -> None:
    lower = urgency(asked_tier="priority", served_tier="default")
    fell = urgency(asked_tier="default", served_tier="default", full_tier="flex")
    meters.tell(*(ended(record(urgency=one)) for one in (lower, fell, urgency(served_tier="default"), urgency())))

    assert meters.values("fastlane.client.tiers") == {
        ("priority", "default", "background"): 1,
        ("default", "default", "background"): 1,
        ("none", "default", "background"): 1,
    }


def test_urgency_span_attributes_match_the_record() -> None:
    section = urgency(asked_tier="priority", served_tier="default", full_tier="flex")
    expected = {
        "fastlane.urgency": "background",
        "fastlane.tier.asked": "priority",
        "fastlane.tier.served": "default",
        "fastlane.tier.full": "flex",
        "fastlane.admission.wait.duration": 0.25,
        "fastlane.admission.ahead": 3,
        "fastlane.admission.concurrency": 16,
    }

    assert expected.items() <= span_attributes(urgency=section).items()


@pytest.mark.parametrize("level", ["call", "phases"])
def test_queue_wait_is_a_span_outside_of_prepare(arguments: dict[str, Any], listening: Listening, level: str) -> None:
    captured = listening(level=level)
    with fastlane.OpenAI(**arguments, only_plays=[Connection(), Urgency(max_concurrency=1)]) as client:
        list(client.chat.completions.create(model="first", messages=MESSAGES, stream=True))
        held = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        thread = threading.Thread(
            target=lambda: list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
        )
        thread.start()
        until(lambda: any(sum(queue.queued) for _, queue in queues.items()))
        time.sleep(0.05)
        list(held)
        thread.join()
        waited = client.calls[-1]

    assert waited.urgency is not None
    assert waited.urgency.admission is not None
    waited_s = waited.urgency.admission.waited_s
    assert waited_s >= 0.05
    calls = {attributes_of(span)["fastlane.admission.wait.duration"]: span for span in captured.named("chat")}
    found = attributes_of(calls[waited_s])
    assert found["fastlane.urgency"] == "interactive"
    (attempt,) = waited.attempts
    prepared_s = (attempt.wire.started_ns - waited.timeline.started_ns) / 1e9
    assert found["fastlane.prepare.duration"] + waited_s == pytest.approx(prepared_s)
    if level == "phases":
        (wait,) = [child for child in captured.children(calls[waited_s]) if child.name == "wait_for_place"]
        assert seconds(wait) == pytest.approx(waited_s, abs=1e-6)
