"""Register telemetry with the engine; what needs OpenTelemetry is loaded with the first call that is followed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ..records import listeners
from . import _settings
from ._gate import active, say_once

if TYPE_CHECKING:
    from ..engine.observation import Observation
    from ..engine.user_action import user_action
    from ..records.listeners import ActionTrace, CallTrace


class _Telemetry(listeners.Listener):
    """Spans and metrics of OpenTelemetry."""

    is_active = staticmethod(active)

    def prepare(self) -> None:
        # With a client, and not with its first call, which may be made on an event loop: 30 ms of CPU.
        if active():
            try:
                from . import _call_trace  # noqa: F401
                from ._metrics import get_ready
                from ._tracer import tracer_of

                get_ready()
                tracer_of(_settings.current())
            except Exception as error:  # noqa: BLE001 - which every call will say
                say_once(type(error).__name__)

    def trace_call(self, observation: Observation) -> CallTrace | None:
        from ._call_trace import trace_of

        return trace_of(observation)

    def trace_action(self, action: user_action, before: Any) -> ActionTrace | None:
        from ._action_span import ActionSpan

        return ActionSpan(action, before)

    def around_replaced(self, client: Any, issued: Any) -> tuple[AbstractContextManager[None], bool]:
        from ._around import entered

        return entered(client, issued)

    def beneath_official(self, method: Any) -> Any | None:
        from ._others import beneath_official

        return beneath_official(method)


listeners.listener = _Telemetry()
