"""What telemetry tells of a call's urgency, its waits for a slot and for rate limits, and its tier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import fastlane
from fastlane import Connection, Urgency
from fastlane.plays.rate_limits.section import RateLimitsSection
from fastlane.plays.urgency.slots import queues
from fastlane.records import AdmissionRecord, UrgencyRecord
from fastlane.telemetry.attributes import call_attributes
from tests.telemetry.conftest import CapturedTelemetry
from tests.telemetry.measuring import Meters, ended, meters as meters, record

Listening = Callable[..., CapturedTelemetry]
MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours."}]


def urgency(**changes: Any) -> UrgencyRecord:
    admission = AdmissionRecord(waited_s=0.25, ahead=3, concurrency=16)
    return UrgencyRecord(**{"urgency": "background", "admission": admission, **changes})


def test_urgency_is_a_label_of_fastlane_metrics_only(meters: Meters) -> None:
    meters.tell(ended(record(urgency=urgency())), ended(record()))

    assert set(meters.values("fastlane.client.time_to_first_token")) == {(False,), (False, "background")}
    assert set(meters.values("gen_ai.client.operation.duration")) == {()}


def test_waits_for_slots_are_measured(meters: Meters) -> None:
    meters.tell(*(ended(record(urgency=one)) for one in (urgency(), urgency(), urgency(admission=None))))

    assert meters.values("fastlane.client.admission.wait.duration") == {("background",): 0.5}


def test_waits_for_rate_limits_are_measured_by_reason(meters: Meters) -> None:
    waited = RateLimitsSection(waited_s=0.5, waited_for="tokens", ahead=2, refused=1)
    free = RateLimitsSection(waited_s=0.0, waited_for=None, ahead=0, refused=0)
    meters.tell(*(ended(record(rate_limits=one)) for one in (waited, waited, free)))

    assert meters.values("fastlane.client.rate_limits.wait.duration") == {("tokens",): 1.0, ("none",): 0.0}
    assert meters.values("fastlane.client.rate_limits.refused") == {(): 2}
    assert (
        call_attributes(record(rate_limits=waited)).items()
        >= {
            "fastlane.rate_limits.wait.duration": 0.5,
            "fastlane.rate_limits.wait.reason": "tokens",
            "fastlane.rate_limits.ahead": 2,
            "fastlane.rate_limits.refused": 1,
        }.items()
    )


def test_tiers_are_counted_as_requested_and_served(meters: Meters) -> None:
    lower = urgency(asked_tier="priority", served_tier="default")
    fell = urgency(asked_tier="default", served_tier="default", full_tier="flex")
    meters.tell(*(ended(record(urgency=one)) for one in (lower, fell, urgency(served_tier="default"), urgency())))

    assert meters.values("fastlane.client.tiers") == {
        ("priority", "default", "background"): 1,
        ("default", "default", "background"): 1,
        ("none", "default", "background"): 1,
    }


def test_urgency_span_attributes_match_the_record() -> None:
    span_attributes = call_attributes(
        record(urgency=urgency(asked_tier="priority", served_tier="default", full_tier="flex"))
    )

    assert span_attributes["fastlane.urgency"] == "background"
    assert (span_attributes["fastlane.tier.asked"], span_attributes["fastlane.tier.served"]) == ("priority", "default")
    assert span_attributes["fastlane.tier.full"] == "flex"
    assert span_attributes["fastlane.admission.wait.duration"] == 0.25
    assert (span_attributes["fastlane.admission.ahead"], span_attributes["fastlane.admission.concurrency"]) == (3, 16)


@pytest.mark.parametrize("level", ["call", "phases"])
def test_queue_wait_is_a_span_outside_of_prepare(arguments: dict[str, Any], listening: Listening, level: str) -> None:
    captured = listening(level=level)
    with fastlane.OpenAI(**arguments, only_plays=[Connection(), Urgency(max_concurrency=1)]) as client:
        first = client.chat.completions.create(model="first", messages=MESSAGES, stream=True)
        list(first)
        held = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        thread = threading.Thread(
            target=lambda: list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
        )
        thread.start()
        until = time.monotonic() + 30
        while not any(sum(queue.queued) for _, queue in queues.items()):
            assert time.monotonic() < until
            time.sleep(0.002)
        time.sleep(0.05)
        list(held)
        thread.join()
        waited = client.calls[-1]

    calls = {
        span.attributes["fastlane.admission.wait.duration"]: span for span in captured.named("chat") if span.attributes
    }
    assert waited.urgency is not None
    assert waited.urgency.admission is not None
    waited_s = waited.urgency.admission.waited_s
    span = calls[waited_s]
    assert waited_s >= 0.05
    assert span.attributes is not None
    assert span.attributes["fastlane.urgency"] == "interactive"
    prepared_s = span.attributes["fastlane.prepare.duration"]
    assert isinstance(prepared_s, float)
    (attempt,) = waited.attempts
    assert prepared_s + waited_s == pytest.approx((attempt.wire.started_ns - waited.timeline.started_ns) / 1e9)
    if level == "phases":
        waits = [child for child in captured.children(span) if child.name == "wait_for_place"]
        assert len(waits) == 1
        assert waits[0].end_time is not None
        assert waits[0].start_time is not None
        assert waits[0].end_time - waits[0].start_time == pytest.approx(waited_s * 1e9, abs=1_000)
