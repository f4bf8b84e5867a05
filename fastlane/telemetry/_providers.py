"""Providers: those that fastlane has built and ends, and those that are set globally."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from ._exporters import METRICS, TRACES, Exporters, Signal

log = logging.getLogger("fastlane")


class Built:
    """The providers that are fastlane's, and the thread that ends them."""

    def __init__(self) -> None:
        self.exporters = Exporters()
        self.providers: dict[Signal, Any] = {}
        self.resource: Any = None
        self.ended = False
        self._end = threading.Event()
        self._has_ended = threading.Event()

    def start(self) -> None:
        """Be ready to end them."""
        # At the end of a process no thread can be started any more, so this one waits for it: what it does there, the
        # SDK does without any limit of time that could be given.
        threading.Thread(target=self._run, name="fastlane-telemetry-end", daemon=True).start()

    def forked(self) -> None:
        """Make no use of what belongs to the process that this one was forked from."""
        self.exporters.forked()
        if not self.ended:
            self._end, self._has_ended = threading.Event(), threading.Event()
            self.start()

    def _run(self) -> None:
        end, has_ended = self._end, self._has_ended
        end.wait()
        for provider in list(self.providers.values()):
            with contextlib.suppress(Exception):  # which the SDK has logged, and nobody waits for
                provider.shutdown()
        if self.exporters.file is not None:
            self.exporters.file.close()
        has_ended.set()

    def shutdown(self, timeout_s: float) -> None:
        """Send what is not sent yet and end all of them, waiting for that for `timeout_s` seconds."""
        self.ended = True
        self._end.set()
        self._has_ended.wait(timeout_s)


def within(timeout_s: float, steps: list[Callable[..., Any]]) -> bool:
    """Do all steps in a thread of their own. Says whether they were done in time, and none said that it was not."""
    done: list[bool] = []

    def run() -> None:
        for step in steps:
            try:
                done.append(step(timeout_millis=max(1, int(timeout_s * 1e3))) is not False)
            except Exception as error:  # noqa: BLE001 - of any exporter
                log.warning("telemetry could not be sent: %s", type(error).__name__)
                done.append(False)

    thread = threading.Thread(target=run, name="fastlane-telemetry-flush", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the process ends
        run()
    else:
        thread.join(timeout_s)
    return len(done) == len(steps) and all(done)


def get_global(signal: Signal) -> Any:
    """The provider that is set globally, or None."""
    provider: Any
    if signal is TRACES:
        from opentelemetry.trace import get_tracer_provider

        provider = get_tracer_provider()
    elif signal is METRICS:
        from opentelemetry.metrics import get_meter_provider

        provider = get_meter_provider()
    else:
        from opentelemetry._logs import get_logger_provider

        provider = get_logger_provider()
    kind = type(provider)
    return None if "Proxy" in kind.__name__ and kind.__module__.startswith("opentelemetry.") else provider


def set_global(signal: Signal, provider: Any) -> None:
    if signal is TRACES:
        from opentelemetry.trace import set_tracer_provider

        set_tracer_provider(provider)
    elif signal is METRICS:
        from opentelemetry.metrics import set_meter_provider

        set_meter_provider(provider)
    else:
        from opentelemetry._logs import set_logger_provider

        set_logger_provider(provider)
