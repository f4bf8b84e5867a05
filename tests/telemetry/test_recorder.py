"""Metrics are recorded behind the calls' back, once each, before any reader collects."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings
from fastlane.telemetry.metrics import record_waiting
from tests.knowledge.forks import in_child
from tests.telemetry.conftest import CapturedTelemetry, Listening, instruments
from tests.telemetry.measuring import ended
from tests.telemetry.otlp_collector import run

MOST_WAITING = 2_048

# Without a delay, adding thousands of calls takes a hundredth of a second.
AT_ONCE_S = 5.0


class Instrument:
    """One that runs a function whenever a value is recorded."""

    def __init__(self, name: str, provider: Provider) -> None:
        self._name, self._provider = name, provider

    def record(self, value: float, attributes: Any = None, context: Any = None) -> None:
        self._provider.do()
        totals = self._provider.totals
        totals[self._name] = totals.get(self._name, 0) + value

    add = record


class Provider:
    """A provider of an application's: it has what the API asks for, and nothing of the SDK's."""

    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do
        self.totals: dict[str, float] = {}

    @property
    def attempts(self) -> float:
        return self.totals.get("fastlane.client.attempts", 0)

    def get_meter(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Instrument:
        return Instrument(name, self)

    def create_histogram(self, *described: str, **advice: Any) -> Instrument:
        return Instrument(described[0], self)

    def create_observable_up_down_counter(self, *described: Any, **more: Any) -> None:
        pass


def recording(provider: Provider) -> Any:
    return instruments(TelemetrySettings(meter_provider=provider))


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    record_waiting()
    telemetry_settings.use(None)


def calls_counted(meters: CapturedTelemetry) -> int:
    return int(sum(meters.values("fastlane.client.attempts").values()))


def test_every_call_is_recorded_once_by_some_thread(meters: CapturedTelemetry) -> None:
    threads = [threading.Thread(target=lambda: meters.tell(*[ended()] * 100)) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        meters.points()
    for thread in threads:
        thread.join()

    assert calls_counted(meters) == 800  # each reading has all that ended before it
    (point,) = meters.points()["fastlane.client.time_to_first_token"]
    assert point.count == 800


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.usefixtures("restored")
def test_fork_waits_until_nothing_is_recorded() -> None:
    its_own, is_at_work = threading.Lock(), threading.Event()

    def do() -> None:
        with its_own:  # as each instrument of the SDK has
            is_at_work.set()
            time.sleep(0.005)

    meters = recording(Provider(do))
    meters.add(ended())
    assert is_at_work.wait(60)

    def child() -> bool:
        meters.add(ended())
        record_waiting()
        return True

    assert in_child(child)


def test_call_is_recorded_with_the_provider_of_its_time(meters: CapturedTelemetry, listening: Listening) -> None:
    other = listening()
    meters.tell(ended())
    other.tell(ended(), ended())

    assert calls_counted(meters) == 1
    assert calls_counted(other) == 2


def test_hanging_recorder_delays_no_call_and_keeps_a_limit(restored: None, caplog: pytest.LogCaptureFixture) -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait(60)

    provider = Provider(hang)
    found = recording(provider)
    found.add(ended())
    assert hangs.wait(30)
    started = time.monotonic()
    for _ in range(3 * MOST_WAITING):
        found.add(ended())
    took_s = time.monotonic() - started
    go_on.set()
    record_waiting()
    record_waiting()

    assert took_s < AT_ONCE_S
    assert 0 < provider.attempts <= MOST_WAITING + 1
    assert f"more than {MOST_WAITING} calls wait" in caplog.text


def test_error_of_an_instrument_is_logged_by_its_class(restored: None, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ConnectionError("the prompt")

    found = recording(Provider(fail))
    for _ in range(10):
        found.add(ended())
    record_waiting()

    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) <= 1  # logged once in a process, whichever test came first
    assert "the prompt" not in str(messages)


def test_call_may_end_while_another_is_recorded(restored: None) -> None:
    """A garbage collection may end a call in the middle of anything."""
    added: list[None] = []

    def add_another() -> None:
        if len(added) < 3:
            added.append(None)
            found.add(ended())

    found = recording(Provider(add_another))
    found.add(ended())
    record_waiting()

    assert len(added) == 3


START = """
import os
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, InMemoryMetricReader, PeriodicExportingMetricReader
from fastlane.telemetry.metrics import meters_of
from fastlane.telemetry.settings import providers
from tests.telemetry.measuring import ended

def count(reader):
    data = reader.get_metrics_data()
    metrics = [m for r in (data.resource_metrics if data else ()) for s in r.scope_metrics for m in s.metrics]
    return sum(p.value for m in metrics if m.name == "fastlane.client.attempts" for p in m.data.data_points)
"""


def test_provider_set_late_exports_the_last_call_at_exit() -> None:
    program = """
assert meters_of(providers()) is None
reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=3_600_000)
metrics.set_meter_provider(MeterProvider([reader]))
meters_of(providers()).add(ended())
"""
    assert "fastlane.client.time_to_first_token" in run(START + program, {})


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_forked_child_records_its_own_calls_only() -> None:
    program = """
import warnings
warnings.simplefilter("ignore")
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
for _ in range(100):
    meters_of(providers()).add(ended())
child = os.fork()
if not child:
    meters_of(providers()).add(ended())
    meters_of(providers()).add(ended())
    print("child", count(reader), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent", count(reader))
"""
    assert run(START + program, {}) == "child 2\nparent 100\n"
