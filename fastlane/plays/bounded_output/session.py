"""One call's part of bounded output: plan it, watch its answer, and ask again for one that is not valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import openai

from fastlane._clock import now_ns
from fastlane.engine.call import Call
from fastlane.engine.effects import Flow
from fastlane.engine.session import CallOutcome, SendCall, Session, Stop

from .guard import OutputGuard
from .planning import OutputPlan, planned
from .play import BoundedOutput
from .section import BoundedOutputSection


class BoundedOutputSession(Session):
    """Keeps the output of a call at one upstream within its plan."""

    def __init__(self, play: BoundedOutput, call: Call) -> None:
        self._play = play
        self._is_stream = call.stream
        self._origin, self._model = call.origin, call.model
        self._went_wrong = call.caller.went_wrong
        # Where a class may read the answer, it says what is valid. Helpers read what they stream by classes that the
        # call knows nothing of; one of them says so.
        by_class = call.stream and (call.is_helped or call.endpoint == "/responses")
        self._is_parsed = by_class or call.parser is not None
        self._guard: OutputGuard | None = None
        self._planned = call
        self._asks_again: Mapping[str, Any] | None = None
        """The body that asks again."""
        self._checked_ns: tuple[int, int] | None = None

    def plan(self, call: Call) -> Call:
        """Set the limit, write the schema as the provider takes it, and say how the answer is to be watched."""
        body = self._asks_again
        if body is not None:
            refused = call.refused.intersection(self._planned.optional)
            body = {name: value for name, value in body.items() if name not in refused}
            return self._planned.replaced(body=body, refused=call.refused, attempt_kind=call.attempt_kind)
        call = planned(call, self._play)
        plan = call.get(OutputPlan)
        if plan is not None:
            self._guard = OutputGuard(plan, self._went_wrong, is_parsed=self._is_parsed)
            call = call.replaced(collector=None if call.stream else self._guard)
        self._planned = call
        return call

    def around_call(self, send: SendCall) -> SendCall:
        """Ask again while the answer is not valid and `reasks` are left."""
        if self._is_stream:
            return send

        def send_until_valid(call: Call) -> Flow:
            while True:
                reply, failed = None, None
                try:
                    reply = yield from send(call)
                except Exception as error:  # noqa: BLE001 - looked at, and raised again if it is not about the answer
                    failed = error
                try:
                    again = self._next_body(None if reply is None else reply.result, failed)
                finally:
                    del failed  # its traceback refers to this frame
                if again is None:
                    return reply
                call = call.replaced(attempt_kind="repair")

        return send_until_valid

    def _next_body(self, result: Any, error: Exception | None) -> Mapping[str, Any] | None:
        """Return what to ask instead of handing out an answer; None to hand it out. Raises its error.

        Raises InvalidOutputError where the answer is not valid and the model is not to be asked again.
        """
        try:
            is_truncated = isinstance(error, openai.LengthFinishReasonError)
            if error is not None and isinstance(error, openai.OpenAIError) and not is_truncated:
                raise error
            body = None
            if self._guard is not None:
                sent, is_parsed = self._asks_again or self._planned.body, _is_parsed(result)
                began_ns = now_ns()
                try:
                    body = self._guard.next_body(sent, error, is_truncated=is_truncated, is_parsed=is_parsed)
                finally:
                    self._checked_ns = began_ns, now_ns()
            if body is None and error is not None:
                raise error
        finally:
            del error  # its traceback leads here, and would keep it until a garbage collection
        if body is not None:
            assert self._guard is not None
            self._asks_again = body
            self._guard.begin()
        return body

    def on_event(self, event: Any) -> Stop | None:
        """Look at an event of a stream of the application's own."""
        return None if self._guard is None else self._guard.see(event)

    def close(self, outcome: CallOutcome) -> BoundedOutputSection | None:
        """Judge a stream of the application's own, learn how long the model has reasoned, and say what was found."""
        guard, self._guard = self._guard, None
        self._asks_again, self._planned = None, self._planned.replaced(body={}, collector=None, data={})
        if guard is None:
            return None
        if self._is_stream:
            began_ns = now_ns()
            guard.settle(finish_reason=outcome.finish_reason)
            self._checked_ns = began_ns, now_ns()
        section = guard.record(refused_fields=outcome.refused)
        usage = outcome.usage
        # An answer that was cut off at its limit, and so ended in an error, has reasoned at least that long.
        is_counted = outcome.ending in ("completed", "failed") and not usage.estimated
        if is_counted and usage.output_tokens is not None and section.visible_tokens is not None:
            self._play.reasoning.learn(
                self._origin,
                self._model,
                section.effort,
                visible_tokens=section.visible_tokens,
                output_tokens=usage.output_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )
        return replace(section, checked_at_ns=self._checked_ns if section.verdict is not None else None)


def _is_parsed(result: Any) -> bool:
    """Whether openai's code has made an object of the application's classes out of an answer."""
    if getattr(result, "output_parsed", None) is not None:
        return True
    choices: Any = getattr(result, "choices", None)
    return bool(choices) and getattr(getattr(choices[0], "message", None), "parsed", None) is not None
