"""One call's part of bounded output: plan it, watch its answer, and ask again for one that is not valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.engine.call import Call
from fastlane.engine.effects import Flow
from fastlane.engine.session import CallOutcome, SendCall, Session, Stop
from fastlane.errors import InvalidOutputError, OutputAttempt
from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.usage import usage_of
from fastlane.records.plays import RejectedAnswer

from .answer import WatchedAnswer
from .plan import OutputPlan, OutputPlanner
from .section import BoundedOutputSection
from .validation import Problem, encodable

if TYPE_CHECKING:
    from .play import BoundedOutput

# Around what was wrong, the sentences are always the same: the provider's prompt cache holds the first request.
_WRONG = "Your last answer is not valid. What is wrong with it:\n"
_AGAIN = "\nGive the whole answer again, corrected: only the answer itself, in the requested form."


class BoundedOutputSession(Session):
    """Keeps the output of a call at one upstream within its plan."""

    def __init__(self, call: Call, play: BoundedOutput) -> None:
        self._play = play
        self._is_stream = call.stream
        self._on_error = partial(call.caller.report_error, "BoundedOutput")
        # Where a class may read the answer, it says what is valid. Helpers read what they stream by classes that the
        # call knows nothing of; one of them says so.
        by_class = call.stream and (call.is_helped or call.endpoint == "/responses")
        self._is_parsed = by_class or call.parser is not None
        self._plan: OutputPlan | None = None
        self._planned = call
        self._asked_again: Mapping[str, Any] | None = None
        """The body that asks again."""
        self._answer: WatchedAnswer
        self._attempts: list[OutputAttempt] = []
        self._rejected: list[RejectedAnswer] = []
        self._stop = Stop()
        self._checked_ns: tuple[int, int] | None = None

    def plan(self, call: Call) -> Call:
        """Set the limit, write the schema as the provider takes it, and say how the answer is to be watched."""
        if self._asked_again is not None:
            refused = call.refused.intersection(self._planned.optional)
            body = {name: value for name, value in self._asked_again.items() if name not in refused}
            call = self._planned.replaced(body=body, refused=call.refused, attempt_kind=call.attempt_kind)
        else:
            call, self._plan = OutputPlanner(call, self._play).run()
            self._planned = call
            if self._plan is None:
                return call
            self._begin()
        return call if call.stream else call.replaced(collector=self._begin)

    def _begin(self) -> WatchedAnswer:
        """Watch an answer, the first or another one in its place."""
        assert self._plan is not None
        self._answer = WatchedAnswer(self._plan, is_parsed=self._is_parsed, on_error=self._on_error)
        return self._answer

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
                    self._asked_again = self._next_body(None if reply is None else reply.result, failed)
                finally:
                    del failed  # its traceback refers to this frame
                if self._asked_again is None:
                    return reply
                call = call.replaced(attempt_kind="repair")

        return send_until_valid

    def _next_body(self, result: Any, error: Exception | None) -> Mapping[str, Any] | None:
        """Return what to ask instead of handing out an answer; None to hand it out. Raises its error.

        Raises InvalidOutputError if the answer is not valid and the model is not to be asked again.
        """
        try:
            is_truncated = isinstance(error, openai.LengthFinishReasonError)
            if isinstance(error, openai.OpenAIError) and not is_truncated:
                raise error
            body = None
            if self._plan is not None:
                began_ns = now_ns()
                try:
                    if is_truncated or self._answer.verdict == "truncated":
                        self._note_cut(self._plan)
                    else:
                        body = self._body_for_invalid(self._plan, error, is_parsed=_is_parsed(result))
                finally:
                    self._checked_ns = began_ns, now_ns()
            if body is None and error is not None:
                raise error
            return body
        finally:
            del error  # its traceback leads here, and would keep it until a garbage collection

    def _note_cut(self, plan: OutputPlan) -> None:
        """Say whether our own limit cut the answer off."""
        self._answer.verdict = "truncated"
        if plan.ceiling_field is not None:
            self._answer.note = (
                f"cut off at the limit of {plan.limit:,} tokens that BoundedOutput had set: reasoning_tokens and "
                "unbounded leave more room"
            )

    def _body_for_invalid(
        self, plan: OutputPlan, error: Exception | None, *, is_parsed: bool
    ) -> Mapping[str, Any] | None:
        """Return the body that asks again for an answer that is not valid; None if it is to be handed out.

        `error` is what openai's code has raised over the answer.
        """
        answer = self._answer
        if answer.problem is None and answer.body:
            answer.read_by_class(error, is_parsed=is_parsed)
        problem = answer.problem
        if problem is None or not plan.play.validate:
            return None
        if plan.reasks == 0 and error is not None and not answer.is_cut:
            return None  # openai's own error says it to the application as it always did
        may_ask = len(self._rejected) < plan.reasks
        self._take_down(str(problem))
        sent = self._planned.body if self._asked_again is None else self._asked_again
        again = ask_again(sent, plan.endpoint, answer.text, problem) if may_ask and not answer.calls_tools else None
        if again is None:
            # The error over an answer that we have cut says that it was cut.
            raise self._gave_up(plan, problem) from (problem.cause if answer.is_cut else error or problem.cause)
        return again

    def _take_down(self, problem: str) -> None:
        """Take down an answer that is not handed out."""
        answer = self._answer
        usage = usage_of(answer.usage)
        tokens: dict[str, Any] = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "estimated")}
        reason = None if answer.is_cut else answer.finish_reason
        self._attempts.append(OutputAttempt(text=answer.text, problem=problem, finish_reason=reason, **tokens))
        if self._plan is not None and len(self._rejected) < self._plan.reasks:
            self._rejected.append(RejectedAnswer(verdict=answer.verdict or "invalid", problem=problem, **tokens))

    def _gave_up(self, plan: OutputPlan, problem: Problem) -> InvalidOutputError:
        count = len(self._attempts)
        how = f"none of {count} answers was valid" if count > 1 else "the answer was not valid"
        stopped = f"; the stream was stopped at that ({self._answer.stop_reason})" if self._answer.is_cut else ""
        advice = "" if plan.reasks else ". BoundedOutput(reasks=1) asks the model again"
        return InvalidOutputError(
            f"{how}: {problem}{stopped}. What came is in this error's `attempts`{advice}", tuple(self._attempts)
        )

    # A stream that the application reads

    def on_event(self, event: Any) -> Stop | None:
        """Look at a typed event."""
        if self._plan is None or not self._answer.see(event):
            return None
        self._stop = Stop(self._closing)
        return self._stop

    def _closing(self) -> list[dict[str, Any]]:
        """Return the events that end the stream. Raises InvalidOutputError inside of the JSON."""
        answer, plan = self._answer, self._plan
        assert plan is not None
        events = answer.closing_events(self._stop)
        if answer.stop_reason in ("prose", "whitespace") and not answer.has_all:
            answer.judge_stream(None)
            if answer.problem is not None:
                # A finish reason would say that the model had ended it so.
                answer.text = "".join(scanner.text for scanner in answer.contents.values())
                self._take_down(str(answer.problem))
                raise self._gave_up(plan, answer.problem)
        return events

    # When the call is over

    def close(self, outcome: CallOutcome) -> BoundedOutputSection | None:
        """Judge a stream that the application has read, and return the section."""
        plan, self._plan = self._plan, None
        self._asked_again, self._planned = None, self._planned.replaced(body={}, encoded=None, collector=None, data={})
        if plan is None:
            return None
        answer = self._answer
        if self._is_stream:
            began_ns = now_ns()
            try:
                answer.judge_stream(outcome.finish_reason)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._on_error("close", error)
            self._checked_ns = began_ns, now_ns()
        received = answer.received_tokens if answer.is_cut else None
        return replace(
            plan.record,
            refused_fields=outcome.refused,
            stop_reason=answer.stop_reason if answer.is_cut else None,
            received_tokens=received,
            tokens_not_generated=None if received is None or plan.limit is None else max(0, plan.limit - received),
            verdict=answer.verdict,
            problem=answer.note if answer.problem is None else str(answer.problem),
            rejected=tuple(self._rejected),
            checked_ns=self._checked_ns if answer.verdict is not None else None,
        )


def ask_again(body: Mapping[str, Any], endpoint: str, answer: str, problem: Problem) -> dict[str, Any] | None:
    """Return the request that asks again for an answer, and says what was wrong with it. `body` is never changed.

    It only appends. None for a body whose messages or input cannot be appended to, and for one of a `conversation`,
    which holds question and answer already.
    """
    field = {CHAT: "messages", RESPONSES: "input"}.get(endpoint, "")
    given = body.get(field)
    if isinstance(given, str) and endpoint == RESPONSES:
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list | tuple) or body.get("conversation") is not None:
        return None
    # White space at its end is what an answer ran on in, and is paid for again.
    said = {"role": "assistant", "content": encodable(answer.rstrip()) or "(no text)"}
    return {**body, field: [*given, said, {"role": "user", "content": encodable(f"{_WRONG}{problem.advice}{_AGAIN}")}]}


def _is_parsed(result: Any) -> bool:
    """Whether openai's code has made an object of the application's classes out of an answer."""
    if getattr(result, "output_parsed", None) is not None:
        return True
    choices: Any = getattr(result, "choices", None)
    return bool(choices) and getattr(getattr(choices[0], "message", None), "parsed", None) is not None
