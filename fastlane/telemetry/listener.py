"""Register telemetry with the engine. OpenTelemetry is loaded only where the application has loaded it before."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ..records import listeners
from .settings import providers, warn_of_error

if TYPE_CHECKING:
    from ..engine.call_state import CallState
    from ..engine.user_action import user_action
    from ..records.listeners import ActionTrace, CallTrace
    from .settings import Providers


@cache  # an import statement takes microseconds of each call
def _traces() -> Any:
    from . import traces

    return traces


class _Telemetry(listeners.CallListener):
    """Spans and metrics of OpenTelemetry."""

    _providers: Providers

    def is_active(self) -> bool:
        found = self._providers = providers()
        return found.is_active

    def prepare(self) -> None:
        # With a client and not with its first call, which may be made on an event loop: 30 ms of CPU.
        if self.is_active():
            try:
                traces = _traces()
                traces.meters_of(providers())
                traces.span_maker(providers())
            except Exception as error:  # noqa: BLE001 - which every call will say
                warn_of_error("finding a provider", error)

    def trace_call(self, observation: CallState) -> CallTrace | None:
        return _traces().trace_of(observation, self._providers)  # type: ignore[no-any-return]

    def trace_action(self, action: user_action, before: Any) -> ActionTrace | None:
        return _traces().ActionSpan(action, before)  # type: ignore[no-any-return]


listeners.listener = _Telemetry()
