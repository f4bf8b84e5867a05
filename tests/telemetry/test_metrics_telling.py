from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from fastlane.telemetry import TelemetrySettings, _metrics, _settings
from fastlane.telemetry._metrics import MOST_PENDING, flush, get_ready, tell
from tests.telemetry.measuring import Meters, ended, meters as meters

# Where it is not delayed, telling thousands of calls takes a hundredth of a second.
AT_ONCE_S = 5.0


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


class Instrument:
    """One that does as it is told whenever a value is recorded."""

    def __init__(self, name: str, provider: Provider) -> None:
        self._name, self._provider = name, provider

    def record(self, value: float, attributes: Any = None, context: Any = None) -> None:
        self._provider.do()
        totals = self._provider.totals
        totals[self._name] = totals.get(self._name, 0) + value

    add = record


class Provider:
    """An application's own, or a proxy: it has what the API asks for, and nothing of the SDK's."""

    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do
        self.callbacks: list[Any] = []
        self.totals: dict[str, float] = {}

    def get_meter(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Instrument:
        return Instrument(name, self)

    # An older API knows nothing of advice.
    create_histogram = create_counter

    def create_observable_up_down_counter(
        self, name: str, callbacks: Any = None, unit: str = "", description: str = ""
    ) -> None:
        self.callbacks += callbacks


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    flush()
    _settings.use(None)


def calls_counted(meters: Meters) -> int:
    return int(sum(meters.values("fastlane.client.attempts").values()))


def test_a_reader_that_collects_sees_all_that_was_told_before(meters: Meters) -> None:
    counts = []
    for _ in range(20):
        meters.tell(*[ended()] * 50)
        counts.append(calls_counted(meters))

    assert counts == [50 * time for time in range(1, 21)]


def test_every_value_is_recorded_once_by_whomever(meters: Meters) -> None:
    threads = [threading.Thread(target=lambda: meters.tell(*[ended()] * 100)) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        meters.points()
    for thread in threads:
        thread.join()

    assert calls_counted(meters) == 800
    (point,) = meters.points()["fastlane.client.time_to_first_token"]
    assert point.count == 800


def test_what_is_told_is_recorded_though_nobody_collects(restored: None) -> None:
    recorded: list[None] = []
    provider = Provider(lambda: recorded.append(None))
    _settings.use(TelemetrySettings(meter_provider=provider))
    tell(ended())

    assert eventually(lambda: bool(recorded))


def test_each_call_is_told_to_the_provider_of_its_own_time(meters: Meters) -> None:
    other = Meters()
    meters.use()
    meters.tell(ended())
    other.use()
    meters.tell(ended(), ended())

    assert calls_counted(meters) == 1
    assert calls_counted(other) == 2
    other.provider.shutdown()


def test_a_recording_that_hangs_delays_nobody_and_piles_nothing_up(restored: None) -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait(60)

    provider = Provider(hang)
    _settings.use(TelemetrySettings(meter_provider=provider))
    tell(ended())
    assert hangs.wait(30)
    started = time.monotonic()
    for _ in range(3 * MOST_PENDING):
        tell(ended())
    took_s = time.monotonic() - started
    meters = Meters()
    tell(ended())
    go_on.set()
    flush()

    assert took_s < AT_ONCE_S
    assert 0 < provider.totals["fastlane.client.attempts"] <= MOST_PENDING + 2
    assert eventually(lambda: calls_counted(meters) == 1)


def test_the_calls_that_were_dropped_are_counted_and_spoken_of(
    restored: None, caplog: pytest.LogCaptureFixture
) -> None:
    _metrics._telling._logged.discard("dropped")
    hangs, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait(60)

    provider = Provider(hang)
    _settings.use(TelemetrySettings(meter_provider=provider))
    tell(ended())
    assert hangs.wait(30)
    for _ in range(MOST_PENDING + 7):
        tell(ended())
    go_on.set()

    assert eventually(lambda: provider.totals.get("fastlane.client.attempts", 0) >= MOST_PENDING + 1)
    assert provider.totals["fastlane.telemetry.dropped"] == 7
    assert "more than 2048 calls waited" in caplog.text


def test_a_reader_that_is_slow_to_collect_delays_no_call(meters: Meters) -> None:
    collects, go_on = threading.Event(), threading.Event()

    def slow(options: CallbackOptions) -> list[Observation]:
        collects.set()
        go_on.wait(60)
        return []

    meters.provider.get_meter("application").create_observable_gauge("slow", [slow])
    reading = threading.Thread(target=meters.points)
    reading.start()
    assert collects.wait(30)
    started = time.monotonic()
    for _ in range(1_000):
        get_ready()
        tell(ended())
    took_s = time.monotonic() - started
    go_on.set()
    reading.join()

    assert took_s < AT_ONCE_S
    assert calls_counted(meters) == 1_000


def test_a_first_call_waits_for_no_reader_that_is_slow_to_collect(restored: None) -> None:
    collects, go_on = threading.Event(), threading.Event()

    def slow(options: CallbackOptions) -> list[Observation]:
        collects.set()
        go_on.wait(60)
        return []

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    provider.get_meter("application").create_observable_gauge("slow", [slow])
    reading = threading.Thread(target=reader.collect)
    reading.start()
    assert collects.wait(30)
    _settings.use(TelemetrySettings(meter_provider=provider))
    started = time.monotonic()
    ready = get_ready()
    tell(ended())
    took_s = time.monotonic() - started
    go_on.set()
    reading.join()

    assert ready
    assert took_s < AT_ONCE_S
    flush()
    assert "fastlane.client.attempts" in str(reader.get_metrics_data())
    provider.shutdown()


def test_a_provider_that_raises_is_logged_once_by_its_class_and_breaks_nothing(
    restored: None, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ConnectionError("the prompt")

    provider = Provider(fail)
    _settings.use(TelemetrySettings(meter_provider=provider))
    with caplog.at_level(logging.WARNING, "fastlane"):
        assert get_ready()
        for _ in range(10):
            tell(ended())
        flush()

    told = [record.getMessage() for record in caplog.records]
    assert len(told) <= 1  # one process logs it once, whichever test came first
    assert not [text for text in told if "the prompt" in text]


def test_a_call_may_end_in_the_middle_of_recording_another(restored: None) -> None:
    # As a garbage collection does it.
    told: list[None] = []

    def tell_another() -> None:
        if len(told) < 3:
            told.append(None)
            tell(ended())

    provider = Provider(tell_another)
    _settings.use(TelemetrySettings(meter_provider=provider))
    assert get_ready()
    tell(ended())
    flush()

    assert len(told) == 3


def test_readers_of_a_provider_that_only_has_the_api_find_all_that_was_told(restored: None) -> None:
    recorded: list[None] = []
    provider = Provider(lambda: recorded.append(None))
    _settings.use(TelemetrySettings(meter_provider=provider))
    assert get_ready()
    assert eventually(lambda: bool(provider.callbacks))
    tell(ended())
    list(provider.callbacks[0](CallbackOptions()))

    assert recorded


def run(program: str) -> str:
    """What a program of its own prints: providers of the whole process, forks and ends are not for this one."""
    start = """
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, InMemoryMetricReader
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        def count(reader):
            data = reader.get_metrics_data()
            points = [p for r in (data.resource_metrics if data else ()) for s in r.scope_metrics for m in s.metrics
                      if m.name == "fastlane.client.attempts" for p in m.data.data_points]
            return sum(p.value for p in points)
    """
    whole = textwrap.dedent(start) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", whole],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_a_provider_may_be_set_after_the_first_calls() -> None:
    printed = run("""
        from fastlane.telemetry._metrics import get_ready, tell
        from tests.telemetry.measuring import ended
        ready = get_ready()
        tell(ended())
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        print(ready, get_ready())
        tell(ended())
        print(count(reader) >= 1)
    """)

    assert printed == "False True\nTrue\n"


@pytest.mark.parametrize("get_ready", ["get_ready()", ""])
def test_what_was_told_last_is_exported_when_the_interpreter_ends(get_ready: str) -> None:
    printed = run(f"""
        reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=3_600_000)
        metrics.set_meter_provider(MeterProvider([reader]))
        from fastlane.telemetry._metrics import get_ready, tell
        from tests.telemetry.measuring import ended
        {get_ready}
        tell(ended())
    """)

    assert "fastlane.client.time_to_first_token" in printed


def test_a_child_process_tells_what_is_its_own() -> None:
    printed = run("""
        from fastlane.telemetry._metrics import get_ready, tell
        from tests.telemetry.measuring import ended
        import os
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        get_ready()
        for _ in range(100):
            tell(ended())
        child = os.fork()
        if not child:
            get_ready()
            tell(ended())
            tell(ended())
            print("child", count(reader), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent", count(reader))
    """)

    assert printed == "child 2\nparent 100\n"
