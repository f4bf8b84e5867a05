"""Keep one call's output within its plan: watch its answers, and say what to ask next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fastlane.engine.session import Stop
from fastlane.errors import InvalidOutputError, OutputAttempt
from fastlane.protocol.assembly import Assembly
from fastlane.protocol.closing import closing_events
from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.usage import usage_counts
from fastlane.records.output import RejectedAnswer, StopReason

from .answer import WatchedAnswer
from .planning import OutputPlan
from .reask import asking_again
from .scanner import JsonScanner
from .section import BoundedOutputSection
from .validation import Problem

WentWrong = Callable[[str, str, Exception], None]

_NAME = "BoundedOutput"


class OutputGuard:
    """One call's output while the call lasts. Sans-IO."""

    def __init__(self, plan: OutputPlan, went_wrong: WentWrong, *, is_parsed: bool) -> None:
        """`is_parsed`: openai's own code makes objects of the application's classes out of the answer."""
        self.plan = plan
        self._is_parsed = is_parsed
        self._went_wrong = went_wrong
        self._attempts: list[OutputAttempt] = []
        self._rejected: list[RejectedAnswer] = []
        self._notes: list[str] = []
        self._kept: tuple[dict[str, Any], int] | None = None
        """An answer of several choices, and which of them was asked for again."""
        self.begin()
        self._pending: dict[tuple[int, int], list[str]] = {}
        """Pieces of text of a Responses stream that the assembly has not been given yet, by the place of the text."""
        self._sequence = -1
        self._stop = Stop()
        options = plan.body.get("stream_options")
        self._include_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        self._unframes = plan.is_json and plan.early_stop and plan.play.validate
        """Whether the application is given the JSON alone."""
        self._leads = self._unframes
        """Whether a fence may stand before the answer yet."""

    def begin(self) -> None:
        """An answer is on its way, the first or another one in its place."""
        choices = self.plan.choices if self._kept is None else 1
        # No method of this object: the answer would hold what holds it.
        notes, went_wrong = self._notes, self._went_wrong

        def on_error(error: Exception) -> None:
            notes.append(f"stop_when raised {type(error).__name__}: the answer went on without it")
            went_wrong(_NAME, "stop_when", error)

        self.answer = WatchedAnswer(self.plan, choices=choices, is_parsed=self._is_parsed, on_error=on_error)
        self._watches = True

    # An answer that is streamed to us

    @property
    def assembly(self) -> Assembly:
        """The answer so far."""
        return self.answer.assembly

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the stream can be closed, or was; None while it cannot."""
        return self.answer.reason

    @property
    def has_all(self) -> bool:
        """Whether nothing is missing of the answer: it may only run on."""
        return self.answer.has_all

    @property
    def usage(self) -> Mapping[str, Any]:
        """What a stopped answer has taken, estimated, in the endpoint's own names."""
        return self.answer.usage

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""
        deltas = self.assembly.take(event)
        stop = False
        if self._watches:
            try:
                stop = self.answer.feed(deltas) and not self.assembly.finished
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._watches = False
                self._went_wrong(_NAME, "watch", error)
        return stop, [delta.kind for delta in deltas]

    def assembled(self) -> dict[str, Any]:
        """The answer as the API gives it without streaming."""
        return self.answer.assembled()

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Look whether a whole answer is what was asked for; the answer without a fence around its JSON."""
        try:
            return self.answer.check(body, self._kept)
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._went_wrong(_NAME, "check", error)
            return body

    # A stream of the application's own

    def see(self, event: Any) -> Stop | None:
        """Look at one typed event."""
        answer = self.answer
        is_stopped = self._see_text(event)
        if is_stopped is None:
            self._assemble_pending()
            is_stopped = answer.feed(answer.assembly.take(event))
        if is_stopped or (self._unframes and (self._leads or answer.has_ended)):
            self._trim(event)
            if self._leads and answer.contents:
                self._leads = any(isinstance(one, JsonScanner) and one.start < 0 for one in answer.contents.values())
        if not is_stopped:
            return None
        self._stop = Stop(self.closing)
        return self._stop

    def _see_text(self, event: Any) -> bool | None:
        """Look at an event that adds content to a text that has begun, and nothing else; None for any other.

        Of a chat stream, the assembly does not need it: the chunks that end a stream hold no text.
        """
        answer = self.answer
        if self.plan.endpoint == CHAT:
            choices = event.choices
            if len(choices) != 1 or event.usage is not None:
                return None
            choice = choices[0]
            channel, delta = (choice.index,), choice.delta
            text = delta.content
            if not text or channel not in answer.contents or choice.finish_reason is not None or delta.role is not None:
                return None
            if delta.tool_calls or delta.function_call or delta.refusal or delta.model_extra:
                return None
            return answer.feed_content(channel, text)
        if self.plan.endpoint == RESPONSES and event.type == "response.output_text.delta" and not event.logprobs:
            place = event.output_index, event.content_index
            if place in answer.contents:
                self._pending.setdefault(place, []).append(event.delta)
                self._sequence = event.sequence_number
                return answer.feed_content(place, event.delta)
        return None

    def _assemble_pending(self) -> None:
        for (output_index, content_index), texts in self._pending.items():
            self.assembly.take({
                "type": "response.output_text.delta", "output_index": output_index, "content_index": content_index,
                "delta": "".join(texts), "sequence_number": self._sequence,
            })  # fmt: skip
        self._pending.clear()

    def _trim(self, event: Any) -> None:
        """Leave out of an event what stands before the answer or behind its end."""
        try:
            for channel, scanner in self.answer.contents.items():
                if self.plan.endpoint == RESPONSES:
                    if (event.output_index, event.content_index) == channel:
                        event.delta = _inside(event.delta, scanner)
                    continue
                for choice in event.choices:
                    if choice.index != channel[0]:
                        continue
                    if self.plan.endpoint != CHAT:
                        choice.text = _inside(choice.text, scanner)
                    elif choice.delta.content is not None:
                        choice.delta.content = _inside(choice.delta.content, scanner)
        except (AttributeError, TypeError):
            pass  # an odd event is handed on as it is

    def closing(self) -> list[dict[str, Any]]:
        """The events that end the stream, which was stopped by this. Raises InvalidOutputError inside of the JSON."""
        self._assemble_pending()
        events = closing_events(self.assembly, self.answer.cut(), include_usage=self._include_usage)
        self._stop.usage = self.answer.usage
        invalid = self._error_of_stream()
        if invalid is not None:
            raise invalid  # a finish reason would say that the model had ended it so
        return events

    def _error_of_stream(self) -> InvalidOutputError | None:
        """What ends a stream of the application's own that was stopped because of what it said; None for another."""
        answer = self.answer
        if answer.reason not in ("prose", "whitespace") or answer.has_all:
            return None
        answer.judge_stream(None)
        if answer.problem is None:
            return None
        answer.text = "".join(scanner.text for scanner in answer.contents.values())
        self._take_down(str(answer.problem))
        return self._gave_up(answer.problem)

    # What comes next

    def next_body(
        self, sent: Mapping[str, Any], error: Exception | None, *, is_truncated: bool, is_parsed: bool
    ) -> dict[str, Any] | None:
        """What to ask instead of handing out the answer; None to hand it out, or its error.

        `error` is what openai's code has raised over the answer; `is_truncated`: because it was cut off; `is_parsed`:
        openai's code has made objects of the application's classes out of it. Raises InvalidOutputError if the answer
        is not to be handed out, and the model is not to be asked again.
        """
        plan, answer = self.plan, self.answer
        reasks_left = plan.reasks - len(self._rejected)
        if is_truncated or answer.verdict == "truncated":
            answer.verdict = "truncated"
            if plan.ceiling_field not in sent:
                return None
            # Our own limit was too low for this model.
            answer.note = (
                f"cut off at the limit of {plan.limit:,} tokens that BoundedOutput had set: reasoning_tokens and "
                "unbounded leave more room, and reasks ask again without it"
            )
            if reasks_left <= 0:
                return None
            self._take_down(answer.note)
            return {name: value for name, value in sent.items() if name != plan.ceiling_field}
        if answer.problem is None and answer.body:
            try:
                if error is not None:
                    answer.raised(error)
                elif self._is_parsed and not is_parsed:
                    answer.is_unread()
            except Exception as failure:  # noqa: BLE001 - a play must not break a call
                self._went_wrong(_NAME, "check", failure)
        problem = answer.problem
        if problem is None or not plan.play.validate:
            return None
        if plan.reasks == 0 and error is not None and not answer.is_cut:
            return None  # openai's own error says it to the application as it always did
        self._take_down(str(problem))
        again = None
        if reasks_left > 0:
            again = asking_again(sent, plan.endpoint, answer.judged or answer.text, problem, cut=answer.is_cut)
        if again is None:
            # The error over an answer that we have cut says that it was cut.
            raise self._gave_up(problem) from (problem.cause if answer.is_cut else error or problem.cause)
        if plan.choices > 1:
            self._kept = (answer.body, answer.choice)
        return again

    def _take_down(self, problem: str) -> None:
        """Take down an answer that is not handed out."""
        answer = self.answer
        counts = usage_counts(answer.usage)
        tokens: dict[str, Any] = {
            "input_tokens": counts.get("input_tokens"),
            "output_tokens": counts.get("output_tokens"),
            "estimated": counts.get("estimated", False),
        }
        reason = None if answer.is_cut else answer.finish_reason
        self._attempts.append(OutputAttempt(text=answer.text, problem=problem, finish_reason=reason, **tokens))
        if len(self._rejected) < self.plan.reasks:
            self._rejected.append(RejectedAnswer(verdict=answer.verdict or "invalid", problem=problem, **tokens))

    def _gave_up(self, problem: Problem) -> InvalidOutputError:
        count = len(self._attempts)
        how = f"none of {count} answers was valid" if count > 1 else "the answer was not valid"
        stopped = f"; the stream was stopped at that ({self.answer.reason})" if self.answer.is_cut else ""
        advice = "" if self.plan.reasks else ". BoundedOutput(reasks=1) asks the model again"
        return InvalidOutputError(
            f"{how}: {problem}{stopped}. What came is in this error's `attempts`{advice}", tuple(self._attempts)
        )

    # When the call is over

    def settle(self, *, finish_reason: str | None) -> None:
        """The call is over: look at what a stream of the application's own has brought."""
        try:
            self.answer.judge_stream(finish_reason)
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._went_wrong(_NAME, "settle", error)

    def record(self, *, refused_fields: tuple[str, ...]) -> BoundedOutputSection:
        """What the call's record says of its output."""
        plan, answer = self.plan, self.answer
        saved = None
        if answer.is_cut and plan.limit is not None:
            saved = max(0, plan.limit - answer.received_tokens)
        return replace(
            plan.record,
            refused_fields=refused_fields,
            stop_reason=answer.reason if answer.is_cut else None,
            visible_tokens=answer.visible_tokens,
            received_tokens=answer.received_tokens if answer.is_cut else None,
            tokens_not_generated=saved,
            verdict=answer.verdict,
            problem=answer.note if answer.problem is None else str(answer.problem),
            notes=(*plan.record.notes, *self._notes),
            rejected=tuple(self._rejected),
        )


def _inside(text: str, scanner: Any) -> str:
    """What of the text that came last belongs to the answer."""
    length = len(scanner.text)
    first, last = 0, length if scanner.end is None else scanner.end
    if isinstance(scanner, JsonScanner):
        first = scanner.start if scanner.start >= 0 else length
    came = length - len(text)
    return text[max(0, first - came) : max(0, last - came)]
