"""The span of a user action. It is current while the action lasts, so that calls and other spans are below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import set_span_in_context

from .attributes import CANCELLATIONS, experiment_attributes, printable
from .experiments import current_experiment
from .metrics import EndedAction
from .recorder import meters_of
from .settings import providers
from .spans import end_span, span_maker

if TYPE_CHECKING:
    from ..engine.user_action import user_action


class ActionSpan:
    """`invoke_workflow {name}`, from the action's start to its end."""

    __slots__ = ("_before", "_context", "_experiment", "_meters", "_settings", "_span", "_token")

    def __init__(self, action: user_action, previous: ActionSpan | None = None) -> None:
        """`previous`: the span of an action that ended in another context and is still current in this one."""
        assert action.started_wall_ns is not None
        found = providers()
        self._settings = found.settings
        self._experiment = current_experiment()
        self._meters = meters_of(found)
        name = printable(action.name)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": name,
            "fastlane.interaction.name": name,
            "openinference.span.kind": "CHAIN",
        }
        if self._experiment is not None:
            attributes.update(experiment_attributes(self._experiment))
        before = get_current()
        if previous is not None and previous._context is before:
            before = previous._before
        self._before: Context = before
        self._span = span_maker(found).start(f"invoke_workflow {name}", before, action.started_wall_ns, attributes)
        self._context: Context = set_span_in_context(self._span, before)
        # Last, so that nothing has to be undone when a step before it fails.
        self._token: Any = attach(self._context)

    def ended(self, action: user_action, error: type[BaseException] | None, *, is_here: bool) -> None:
        """End the span of an action that is over. `is_here`: in the context that it began in."""
        token, self._token = self._token, None
        if is_here:
            detach(token)
        assert action.started_wall_ns is not None
        assert action.started_ns is not None
        assert action.ended_ns is not None
        duration_ns = action.ended_ns - action.started_ns
        failed = None if error is None or error.__name__ in CANCELLATIONS else error.__name__
        span = self._span
        if span.is_recording():
            attributes: dict[str, Any] = {
                "fastlane.application.duration": duration_ns / 1e9,
                "fastlane.interaction.calls": action.call_count,
            }
            if failed is not None:
                attributes["error.type"] = failed
            end_span(span, action.started_wall_ns + duration_ns, attributes, failed)
        if self._meters is not None:
            own = span.get_span_context()
            own_or_none = own if own.is_valid else None
            ended = EndedAction(action.name, duration_ns / 1e9, failed, own_or_none, self._experiment)
            self._meters.add(ended, self._settings.conventions)
