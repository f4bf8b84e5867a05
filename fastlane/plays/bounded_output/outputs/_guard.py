"""Keep one call's output within its plan: watch it, put it together, check it, and say what to ask next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastlane.errors import InvalidOutputError, OutputAttempt
from fastlane.knowledge.tokens import counter
from fastlane.protocol.answer_texts import verdict_of
from fastlane.protocol.assembly import Assembly, assembly_of
from fastlane.protocol.cut import Cut
from fastlane.protocol.estimates import prompt_tokens
from fastlane.protocol.usage import estimated_usage, usage_counts
from fastlane.records.output import BoundedOutputRecord, RejectedAnswer, StopReason

from ..progress._json_progress import JsonProgress
from ..validation._validation import Problem
from ._judgement import Judgement
from ._plan import OutputPlan
from ._reader import BY_SCHEMA, Reader
from ._repair import repaired_body
from ._watch import Watch

WentWrong = Callable[[str, str, Exception], None]

_NAME = "BoundedOutput"


class Guard:
    """One call's output while the call lasts. Sans-IO."""

    def __init__(self, plan: OutputPlan, went_wrong: WentWrong, *, parses: bool, reader: Reader = BY_SCHEMA) -> None:
        self.plan = plan
        self._reader = reader
        self._parses = parses
        """Whether openai's own code makes objects of the application's classes out of the answer."""
        self._went_wrong = went_wrong
        self._attempts: list[OutputAttempt] = []
        self._rejected: list[RejectedAnswer] = []
        self._made: BoundedOutputRecord | None = None
        self._ceiling_lifted = False
        self._last_problem: Problem | None = None
        """What a repair was asked to put right."""
        self._refused: tuple[str, ...] = ()
        self._notes: list[str] = []
        self._kept: tuple[dict[str, Any], int] | None = None
        self.begin()

    def refused(self, fields: tuple[str, ...]) -> None:
        """The provider refused these fields, and the call has gone without them."""
        self._refused += fields

    def begin(self) -> None:
        """An answer is on its way, the first or another one in its place."""
        plan = self.plan
        # Of several choices only the one that was wrong is asked for again.
        choices = plan.choices if self._kept is None else 1
        assembly = assembly_of(plan.endpoint, choices=choices)
        assert assembly is not None
        self.assembly: Assembly = assembly
        self.watch = Watch(plan, choices, partial(_note_failure, self._notes, self._went_wrong), self._reader)
        self._watches = True
        self.is_cut = False
        self.judgement = Judgement(plan, self.watch, self._reader, parses=self._parses)
        self.usage: Mapping[str, Any] = {}
        """What a stopped answer has taken, estimated, in the endpoint's own names."""
        self._thought_tokens = 0

    @property
    def collects(self) -> bool:
        """Whether the answer is streamed to us, though the application does not stream."""
        return self.plan.collects

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the stream can be closed, or was; None while it cannot."""
        return self.watch.reason

    # While the answer arrives

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""
        deltas = self.assembly.take(event)
        stop = False
        if self._watches:
            try:
                stop = self.watch.feed(deltas) and not self.assembly.finished
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._watches = False
                self._went_wrong(_NAME, "watch", error)
        return stop, [delta.kind for delta in deltas]

    def cut(self) -> Cut:
        """The stream is closed: where the answer ends, and what it has taken, estimated."""
        self.is_cut = True
        ends, starts = self.watch.ends()
        self.usage = self._estimated()
        return Cut(ends=ends, starts=starts, usage=self.usage)

    def _estimated(self) -> Mapping[str, Any]:
        plan = self.plan
        counting = counter(plan.model, origin=plan.origin, wait=False)
        self.judgement.count(self.watch.texts)
        self._thought_tokens = counting.text("".join(self.watch.reasoning))
        input_tokens = prompt_tokens(plan.body, counting)
        return estimated_usage(plan.endpoint, input_tokens=input_tokens, output_tokens=self._received)

    @property
    def _received(self) -> int:
        received = (self.judgement.visible_tokens or 0) + self._thought_tokens
        # An estimate, and no answer is longer than its limit.
        return received if self.plan.limit is None else min(received, self.plan.limit)

    @property
    def has_all(self) -> bool:
        """Whether nothing is missing of the answer: it may only run on."""
        contents = self.watch.contents.values()
        return (
            self.plan.is_json
            and self.plan.content_is_all
            and len(contents) >= self.watch.choices
            and all(isinstance(one, JsonProgress) and one.complete for one in contents)
        )

    # When it is whole

    def assembled(self) -> dict[str, Any]:
        """The answer as the API gives it without streaming."""
        runs_on = self.watch.reason is not None or self.has_all
        if runs_on and not self.assembly.finished:
            return self.assembly.body(self.cut())
        body = self.assembly.body()
        if self.has_all and (self.watch.is_framed or verdict_of(body, self.plan.endpoint) == "truncated"):
            # What it ran on in came with its end, or up to the limit.
            ends, starts = self.watch.ends()
            body = self.assembly.body(Cut(ends=ends, starts=starts))
        if "choices" in body and body.get("usage") is None:
            # Without streaming, the provider would have counted it.
            body["usage"] = dict(self._estimated())
        return body

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Look whether a whole answer is what was asked for; the answer, its names written out again."""
        try:
            return self.judgement.whole(body, self._kept)
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._went_wrong(_NAME, "check", error)
            return body

    # What comes next

    def next_body(
        self, sent: Mapping[str, Any], error: Exception | None, *, is_truncated: bool, is_parsed: bool
    ) -> dict[str, Any] | None:
        """What to ask instead of handing out the answer; None to hand it out, or its error.

        `error` is what openai's code has raised over the answer; `is_truncated`: because it was cut off; `is_parsed`:
        openai's code has made objects of the application's classes out of it. Raises InvalidOutputError if the answer
        is not to be handed out, and no repair is left.
        """
        plan, judgement = self.plan, self.judgement
        repairs_left = plan.repairs - len(self._rejected)
        if is_truncated or judgement.verdict == "truncated":
            judgement.verdict = "truncated"
            if self._last_problem is not None and plan.repair_tokens is not None:
                # What was left of the budget was not enough to put right what was wrong.
                self._took(f"{self._last_problem}; cut off at what was left of repair_tokens")
                raise self._gave_up(self._last_problem) from self._last_problem.cause
            if not plan.ceiling_fields or self._ceiling_lifted:
                return None
            # Our own limit was too low for this model.
            judgement.note = (
                f"cut off at the limit of {plan.limit:,} tokens that BoundedOutput had set: reasoning_tokens and "
                "unbounded leave more room, and repairs ask again without it"
            )
            if repairs_left <= 0:
                return None
            self._took(judgement.note)
            self._ceiling_lifted = True
            return {name: value for name, value in sent.items() if name not in plan.ceiling_fields}
        self._look_again(error, is_parsed=is_parsed)
        problem = judgement.problem
        if problem is None or not plan.validates:
            return None
        if plan.repairs == 0 and error is not None and not self.is_cut:
            return None  # openai's own error says it to the application as it always did
        self._took(str(problem))
        left = self._budget()
        repaired = None
        if repairs_left > 0 and (left is None or left > 0):
            repaired = repaired_body(
                sent,
                plan.endpoint,
                judgement.judged or judgement.text,
                problem,
                temperature=plan.repair_temperature,
                most_tokens=left,
                cut=self.is_cut,
            )
        if repaired is None:
            # The error over an answer that we have cut says that it was cut.
            raise self._gave_up(problem) from (problem.cause if self.is_cut else error or problem.cause)
        self._last_problem = problem
        if plan.choices > 1:
            self._kept = (judgement.answer, judgement.choice)
        return repaired

    def _look_again(self, error: Exception | None, *, is_parsed: bool) -> None:
        """What could be judged only when openai's code had been at it."""
        judgement = self.judgement
        if judgement.problem is not None or not judgement.answer:
            return
        try:
            if error is not None:
                judgement.by_error(error)
            elif self._parses and not is_parsed:
                judgement.unparsed()
        except Exception as failure:  # noqa: BLE001 - a play must not break a call
            self._went_wrong(_NAME, "check", failure)

    def _took(self, problem: str) -> None:
        """Take down an answer that is not handed out."""
        judgement = self.judgement
        counts = usage_counts(judgement.usage)
        taken: dict[str, Any] = {
            "input_tokens": counts.get("input_tokens"),
            "output_tokens": counts.get("output_tokens"),
            "estimated": counts.get("estimated", False),
        }
        self._attempts.append(
            OutputAttempt(
                text=judgement.text,
                problem=problem,
                finish_reason=None if self.is_cut else judgement.finish_reason,
                **taken,
            )
        )
        if len(self._rejected) < self.plan.repairs:
            self._rejected.append(RejectedAnswer(verdict=judgement.verdict or "invalid", problem=problem, **taken))

    def _budget(self) -> int | None:
        most = self.plan.repair_tokens
        if most is None:
            return None
        # The first answer is not a repair.
        left = most - sum(one.output_tokens or 0 for one in self._attempts[1:])
        return left if self.plan.limit is None else min(left, self.plan.limit)

    def _gave_up(self, problem: Problem) -> InvalidOutputError:
        count = len(self._attempts)
        how = f"none of {count} answers was valid" if count > 1 else "the answer was not valid"
        stopped = f"; the stream was stopped at that ({self.watch.reason})" if self.is_cut else ""
        advice = "" if self.plan.repairs else ". BoundedOutput(repairs=1) asks the model again"
        return InvalidOutputError(
            f"{how}: {problem}{stopped}. What came is in this error's `attempts`{advice}", tuple(self._attempts)
        )

    def error_of_stream(self) -> InvalidOutputError | None:
        """What ends a stream of the application's own that was stopped because of what it said; None for another."""
        judgement = self.judgement
        if self.watch.reason not in ("invalid", "whitespace") or self.has_all:
            return None
        judgement.stream(None)
        problem = judgement.problem
        if problem is None:
            return None
        judgement.usage, judgement.text = self.usage, "".join(self.watch.texts)
        self._took(str(problem))
        return self._gave_up(problem)

    # When the call is over

    def settle(self, *, is_stream: bool, finish_reason: str | None) -> None:
        """The call is over: look at what a stream of the application's own has brought."""
        if not is_stream:
            return
        try:
            self.judgement.stream(finish_reason)
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._went_wrong(_NAME, "settle", error)

    def record(self) -> BoundedOutputRecord:
        """What the call's record says of its output."""
        if self._made is None:
            self._made = self._record()
        return self._made

    def _record(self) -> BoundedOutputRecord:
        plan, judgement = self.plan, self.judgement
        reason = self.watch.reason if self.is_cut else None
        saved = None
        if self.is_cut and plan.limit is not None:
            saved = max(0, plan.limit - self._received)
        return replace(
            plan.record,
            refused_fields=self._refused,
            stop_reason=reason,
            visible_tokens=judgement.visible_tokens,
            received_tokens=self._received if self.is_cut else None,
            tokens_not_generated=saved,
            verdict=judgement.verdict,
            problem=judgement.note if judgement.problem is None else str(judgement.problem),
            notes=(*plan.record.notes, *self._notes),
            rejected=tuple(self._rejected),
            compact_saved_tokens=judgement.saved_tokens,
        )


def _note_failure(notes: list[str], went_wrong: WentWrong, error: Exception) -> None:
    # No method: the watcher would hold the guard that holds it.
    notes.append(f"stop_when raised {type(error).__name__}: the answer went on without it")
    went_wrong(_NAME, "stop_when", error)
