"""Register telemetry with the engine. OpenTelemetry is loaded only where the application has loaded it before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..records import listeners
from .settings import is_active, providers, warn_of_error

if TYPE_CHECKING:
    from ..engine.call_state import CallState
    from ..engine.user_action import user_action
    from ..records.listeners import ActionTrace, CallTrace


class _Telemetry(listeners.CallListener):
    """Spans and metrics of OpenTelemetry."""

    is_active = staticmethod(is_active)

    def prepare(self) -> None:
        # With a client and not with its first call, which may be made on an event loop: 30 ms of CPU.
        if is_active():
            try:
                from . import traces  # noqa: F401
                from .metrics import meters_of
                from .spans import span_maker

                meters_of(providers())
                span_maker(providers())
            except Exception as error:  # noqa: BLE001 - which every call will say
                warn_of_error("finding a provider", error)

    def trace_call(self, observation: CallState) -> CallTrace | None:
        from .traces import trace_of

        return trace_of(observation)

    def trace_action(self, action: user_action, before: Any) -> ActionTrace | None:
        from .traces import ActionSpan

        return ActionSpan(action, before)


listeners.listener = _Telemetry()
