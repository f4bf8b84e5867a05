"""Keep one call's output within its plan: watch it, put it together, check it, and say what to ask next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .._exceptions import InvalidOutputError, OutputAttempt
from .._output_records import BoundedOutputRecord, OutputRepair, OutputVerdict
from .._tokens import counter
from ._answer_texts import AnswerText, answer_texts, estimated_usage, verdict_of
from ._assembly import Assembly, Cut, assembly_of
from ._choices import with_choice
from ._plan import OutputPlan
from ._repair import Judged, repaired_body
from ._request import RESPONSES
from ._validation import Problem, problem_of, stopped, validator
from ._watch import Watch

WentWrong = Callable[[str, str, Exception], None]

_NAME = "BoundedOutput"


class Guard:
    """One call's output while the call lasts. Sans-IO."""

    def __init__(self, plan: OutputPlan, went_wrong: WentWrong, *, parses: bool) -> None:
        self.plan = plan
        self._parses = parses
        """Whether openai's own code makes objects of the application's classes out of the answer."""
        self._went_wrong = went_wrong
        self._attempts: list[OutputAttempt] = []
        self._repairs: list[OutputRepair] = []
        self._made: BoundedOutputRecord | None = None
        self._ceiling_lifted = False
        self._ceiling_refused = False
        self._kept: tuple[dict[str, Any], int] | None = None
        self.begin()

    def refused(self, fields: tuple[str, ...]) -> None:
        """The provider refused these fields, and the call goes out without them."""
        self._ceiling_refused = not set(self.plan.ceiling_fields).isdisjoint(fields)

    def begin(self) -> None:
        """An answer is on its way, the first or another one in its place."""
        plan = self.plan
        assembly = assembly_of(plan.endpoint, choices=plan.choices)
        assert assembly is not None
        self.assembly: Assembly = assembly
        self.watch = Watch(plan, self._stop_when_failed)
        self.is_cut = False
        self._verdict: OutputVerdict | None = None
        self._problem: Problem | None = None
        self._text = ""
        self._finish_reason: str | None = None
        self._usage: Mapping[str, Any] = {}
        self.usage: Mapping[str, Any] = {}
        """What a stopped answer has taken, estimated, in the endpoint's own names."""
        self._judged: list[Judged] = []
        self._choice = 0
        self._whole: dict[str, Any] = {}
        self._visible_tokens: int | None = None
        self._thought_tokens = 0
        self._saved_tokens: int | None = None

    @property
    def collects(self) -> bool:
        """Whether the answer is streamed to us, though the application does not stream."""
        return self.plan.collects

    def _stop_when_failed(self, error: Exception) -> None:
        self._went_wrong(_NAME, "stop_when", error)

    # While the answer arrives

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""
        deltas = self.assembly.take(event)
        stop = self.watch.feed(deltas) and not self.assembly.finished
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
        self._visible_tokens = sum(counting.text(text) for text in self.watch.texts)
        self._thought_tokens = counting.text("".join(self.watch.reasoning))
        body = plan.body
        prompt = body.get("messages", body.get("input", body.get("prompt", "")))
        beside = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
        listed: Any = [*beside, *(prompt if isinstance(prompt, list) else [str(prompt)])]
        input_tokens = counting.messages(listed, body.get("tools") or ())
        return estimated_usage(plan.endpoint, input_tokens=input_tokens, output_tokens=self._received)

    @property
    def _received(self) -> int:
        return (self._visible_tokens or 0) + self._thought_tokens

    # When it is whole

    def assembled(self) -> dict[str, Any]:
        """The answer as the API gives it without streaming."""
        return self.assembly.body(self.cut() if self.watch.reason and not self.assembly.finished else None)

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Look whether a whole answer is what was asked for; the answer, its names written out again."""
        plan = self.plan
        try:
            if self._kept is not None:
                # One of several choices was asked for again: it takes the place of the one that was not valid.
                kept, choice = self._kept
                usage = body.get("usage")
                body = with_choice(kept, body, choice)
            else:
                usage = body.get("usage")
            self._usage = usage if isinstance(usage, Mapping) else {}
            texts = answer_texts(body, plan.endpoint)
            self._look_at(texts)
            self._verdict = verdict_of(body, plan.endpoint)
            if self._verdict is None:
                body = self._judge(body, texts)
            self._whole = body
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._went_wrong(_NAME, "check", error)
        return body

    def _look_at(self, texts: list[AnswerText]) -> None:
        self._finish_reason = None if self.is_cut else next((one.finish_reason for one in texts), None)
        if self._visible_tokens is None:
            counting = counter(self.plan.model, origin=self.plan.origin, wait=False)
            self._visible_tokens = sum(counting.text(one.text) for one in texts)

    def _judge(self, body: dict[str, Any], texts: list[AnswerText]) -> dict[str, Any]:
        plan = self.plan
        is_structured = plan.is_json or any(one.kind == "tool_call" for one in texts)
        if self.watch.reason in ("invalid", "whitespace") and not self._is_complete():
            self._is_wrong(texts, [(one, None) for one in texts], stopped(self.watch.reason, self.watch.problem))
        elif is_structured:
            shown = texts
            if plan.compacted is not None:
                body, shown = self._expanded(body, texts)
            if plan.validates:
                # The model is shown what it wrote, and not what was made of that.
                problems = [self._problem_of(one) for one in shown]
                judged = list(zip(texts, problems, strict=True))
                wrong = next((problem for problem in problems if problem is not None), None)
                if wrong is not None:
                    self._is_wrong(texts, judged, wrong)
        if self._problem is None and is_structured:
            self._verdict = "valid"
        return body

    def _is_wrong(self, texts: list[AnswerText], judged: list[Judged], problem: Problem) -> None:
        """Take down what is wrong, and with which choice."""
        self._problem = problem
        self._verdict = "invalid"
        bad = next((text for text, wrong in judged if wrong is not None), texts[0] if texts else None)
        if bad is None:
            return
        self._choice = bad.where[0] if self.plan.endpoint != RESPONSES else 0
        same = [pair for pair in judged if self.plan.endpoint == RESPONSES or pair[0].where[0] == self._choice]
        self._judged = same if any(text.kind == "tool_call" for text, _ in same) else []
        self._text = bad.text

    def _is_complete(self) -> bool:
        watched = [*self.watch.contents.values(), *self.watch.tool_calls.values()]
        return bool(watched) and all(getattr(one, "complete", True) for one in watched)

    def _problem_of(self, one: AnswerText) -> Problem | None:
        plan = self.plan
        if one.kind == "content" and plan.is_json and not self._parses:
            return validator(plan.schema if plan.schema is not None else True)(one.text)
        tool = plan.tools.get(one.name or "") if one.kind == "tool_call" and one.form == "function" else None
        return validator(tool.schema)(one.text) if tool is not None and tool.strict else None

    def _expanded(self, body: dict[str, Any], texts: list[AnswerText]) -> tuple[dict[str, Any], list[AnswerText]]:
        """The answer with its names written out again."""
        compacted = self.plan.compacted
        assert compacted is not None
        counting = counter(self.plan.model, origin=self.plan.origin, wait=False)
        saved = 0
        for one in texts:
            if one.kind == "content":
                long = compacted.expand(one.text)
                saved += counting.text(long) - counting.text(one.text)
                body = one.replaced(body, long)
        self._saved_tokens = saved
        return body, answer_texts(body, self.plan.endpoint)

    # What comes next

    @property
    def problem(self) -> Problem | None:
        """What is wrong with the answer; None where nothing is."""
        return self._problem

    def next_body(self, sent: Mapping[str, Any], error: Exception | None, *, is_truncated: bool) -> Any:
        """What to ask instead of handing out the answer; None to hand it out, or its error.

        `error` is what openai's code has raised over the answer; `is_truncated`: because it was cut off. Raises
        InvalidOutputError if the answer is not to be handed out, and no repair is left.
        """
        plan = self.plan
        repairs_left = plan.repairs - len(self._repairs)
        if is_truncated or self._verdict == "truncated":
            self._verdict = "truncated"
            if not plan.ceiling_fields or self._ceiling_lifted or repairs_left <= 0:
                return None
            # Our own limit was too low for this model.
            self._took("cut off at the limit of tokens that was set for it")
            self._ceiling_lifted = True
            return {name: value for name, value in sent.items() if name not in plan.ceiling_fields}
        problem = self._problem
        if problem is None and error is not None:
            problem = problem_of(error, plan.schema)
            if problem is not None:
                texts = answer_texts(self._whole, plan.endpoint)
                self._is_wrong(texts, [(one, None) for one in texts], problem)
        if problem is None or not plan.validates:
            return None
        if plan.repairs == 0 and error is not None and not self.is_cut:
            return None  # openai's own error says it to the application as it always did
        self._took(str(problem))
        left = self._budget()
        if repairs_left <= 0 or (left is not None and left <= 0):
            raise self._gave_up(problem) from (error or problem.cause)
        repaired = repaired_body(
            sent,
            plan.endpoint,
            self._judged or self._text,
            problem,
            temperature=plan.repair_temperature,
            most_tokens=left,
            cut=self.is_cut,
        )
        if repaired is None:
            raise self._gave_up(problem) from (error or problem.cause)
        if plan.choices > 1:
            self._kept = (self._whole, self._choice)
        return repaired

    def _took(self, problem: str) -> None:
        """Take down an answer that is not handed out."""
        usage = self._usage
        taken: dict[str, Any] = {
            "input_tokens": usage.get("prompt_tokens", usage.get("input_tokens")),
            "output_tokens": usage.get("completion_tokens", usage.get("output_tokens")),
            "estimated": usage.get("estimated") is True,
        }
        self._attempts.append(
            OutputAttempt(text=self._text, problem=problem, finish_reason=self._finish_reason, **taken)
        )
        if len(self._repairs) < self.plan.repairs:
            self._repairs.append(OutputRepair(verdict=self._verdict or "invalid", problem=problem, **taken))

    def _budget(self) -> int | None:
        most = self.plan.repair_tokens
        if most is None:
            return None
        # The first answer is not a repair.
        return most - sum(one.output_tokens or 0 for one in self._attempts[1:])

    def _gave_up(self, problem: Problem) -> InvalidOutputError:
        count = len(self._attempts)
        how = f"none of {count} answers was valid" if count > 1 else "the answer was not valid"
        stopped = f"; the stream was stopped at that ({self.watch.reason})" if self.is_cut else ""
        advice = "" if self.plan.repairs else ". BoundedOutput(repairs=1) asks the model again"
        return InvalidOutputError(
            f"{how}: {problem}{stopped}. What came is in this error's `attempts`{advice}", tuple(self._attempts)
        )

    # When the call is over

    def record(self) -> BoundedOutputRecord:
        """What the call's record says of its output."""
        if self._made is None:
            self._made = self._record()
        return self._made

    def _record(self) -> BoundedOutputRecord:
        plan = self.plan
        reason = self.watch.reason if self.is_cut else None
        saved = None
        if self.is_cut and plan.limit is not None:
            saved = max(0, plan.limit - self._received)
        return replace(
            plan.record,
            ceiling_refused=self._ceiling_refused,
            stop_reason=reason,
            visible_tokens=self._visible_tokens,
            received_tokens=self._received if self.is_cut else None,
            tokens_not_generated=saved,
            verdict=self._verdict,
            problem=None if self._problem is None else str(self._problem),
            repairs=tuple(self._repairs),
            compact_saved_tokens=self._saved_tokens,
        )
