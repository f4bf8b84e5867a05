"""The span of a user action, current while that lasts: calls and the application's own spans are in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import SpanKind, set_span_in_context

from . import _names as names, _settings
from ._attributes import experiment_attributes
from ._emit import fail, sayable
from ._ended import EndedAction
from ._experiment import current_experiment
from ._metrics import get_ready, tell
from ._tracer import tracer_of

if TYPE_CHECKING:
    from ..engine.user_action import user_action

# Cancellation by the application is no failure.
_CANCELLATIONS = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})


class ActionSpan:
    """`invoke_workflow {name}`, from the action's start to its end."""

    __slots__ = ("_before", "_context", "_experiment", "_is_measured", "_span", "_token")

    def __init__(self, action: user_action, left: ActionSpan | None = None) -> None:
        """`left`: of an action that has ended, and is still there in this context."""
        assert action.started_wall_ns is not None
        self._experiment = current_experiment()
        name = sayable(action.name)
        attributes: dict[str, Any] = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.WORKFLOW_NAME: name,
            names.INTERACTION_NAME: name,
            names.OPENINFERENCE_KIND: "CHAIN",
        }
        if self._experiment is not None:
            attributes.update(experiment_attributes(self._experiment))
        self._is_measured = get_ready()
        before = get_current()
        if left is not None and left._context is before:
            before = left._before
        self._before: Context = before
        self._span = tracer_of(_settings.current()).start_span(
            f"{names.INVOKE_WORKFLOW} {name}",
            context=before,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=action.started_wall_ns,
            record_exception=False,
            set_status_on_exception=False,
        )
        self._context: Context = set_span_in_context(self._span, before)
        # The last step: whoever fails before has nothing to undo.
        self._token: Any = attach(self._context)

    def ended(self, action: user_action, error: type[BaseException] | None, *, is_here: bool) -> None:
        """The action is over. `is_here`: in the very context that it began in."""
        token, self._token = self._token, None
        if is_here:
            detach(token)
        assert action.started_ns is not None
        assert action.ended_ns is not None
        assert action.started_wall_ns is not None
        duration_ns = action.ended_ns - action.started_ns
        failed = None if error is None or error.__name__ in _CANCELLATIONS else error.__name__
        span = self._span
        if span.is_recording():
            told: dict[str, Any] = {
                names.APPLICATION_DURATION: duration_ns / 1e9,
                names.INTERACTION_CALLS: action.call_count,
            }
            if failed is not None:
                told[names.ERROR_TYPE] = failed
                fail(span, failed)
            span.set_attributes(told)
            span.end(action.started_wall_ns + duration_ns)
        if self._is_measured:
            context = self._context if span.get_span_context().is_valid else None
            tell(EndedAction(action.name, duration_ns / 1e9, failed, context, self._experiment))
