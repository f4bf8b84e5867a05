"""Judge one answer: whether it is what was asked for, what is wrong with it, and what it is once it is unwrapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastlane.knowledge.tokens import counter
from fastlane.protocol.answer_texts import AnswerText, answer_texts, verdict_of
from fastlane.protocol.content import is_cut_off
from fastlane.protocol.endpoints import RESPONSES
from fastlane.protocol.request_fields import ANY_OBJECT
from fastlane.records.output import OutputVerdict

from ..progress._json_progress import JsonProgress
from ..progress._nodes import compile_schema
from ..validation._validation import Problem, problem_of, stopped, validator
from ._choices import with_choice
from ._plan import OutputPlan
from ._reader import Reader
from ._repair import Judged
from ._watch import Watch

# What a Responses answer may say of itself where there is none.
_NO_ANSWER = ("failed", "cancelled", "queued", "in_progress")


class Judgement:
    """What was found of one answer."""

    def __init__(self, plan: OutputPlan, watch: Watch, reader: Reader, *, parses: bool) -> None:
        self._plan = plan
        self._watch = watch
        self._reader = reader
        self._parses = parses
        """Whether openai's own code makes objects of the application's classes out of the answer."""
        self.verdict: OutputVerdict | None = None
        self.problem: Problem | None = None
        """What is wrong with it; None where nothing is."""
        self.choice = 0
        """Which choice is wrong."""
        self.text = ""
        """What was said in it."""
        self.judged: list[Judged] = []
        """All texts of that choice, where it calls tools, each with what is wrong with it."""
        self.finish_reason: str | None = None
        self.usage: Mapping[str, Any] = {}
        """The provider's own, or the estimate in its place."""
        self.answer: dict[str, Any] = {}
        """The answer as it is handed out."""
        self.visible_tokens: int | None = None
        """Of what can be seen of it but reasoning, estimated."""
        self.saved_tokens: int | None = None
        self.note: str | None = None
        """What else the application is to know of it."""

    def whole(self, body: dict[str, Any], kept: tuple[dict[str, Any], int] | None) -> dict[str, Any]:
        """Look at a whole answer; the answer, its JSON unwrapped and its names written out again.

        `kept`: an earlier answer, and which of its choices this one was asked for in the place of.
        """
        usage = body.get("usage")
        self.usage = usage if isinstance(usage, Mapping) else {}
        if kept is not None:
            body = with_choice(kept[0], body, kept[1])
        body = self._without_frame(body)
        texts = answer_texts(body, self._plan.endpoint)
        self.finish_reason = next((one.finish_reason for one in texts), None)
        self.text = "".join(one.text for one in texts if one.kind == "content")
        self.count([one.text for one in texts])
        self.verdict = verdict_of(body, self._plan.endpoint)
        if self.verdict is None and body.get("status") not in _NO_ANSWER:
            body = self._look(body, texts)
        self.answer = body
        return body

    def count(self, texts: list[str]) -> None:
        """Estimate what these texts come to."""
        if self.visible_tokens is None:
            counting = counter(self._plan.model, origin=self._plan.origin, wait=False)
            self.visible_tokens = sum(counting.text(text) for text in texts)

    def by_error(self, error: Exception) -> None:
        """Take down what openai's code has raised over the answer."""
        problem = problem_of(error, self._plan.schema)
        if problem is not None:
            # Whoever raises has the error. Its traceback leads to where this is kept.
            problem = replace(problem, cause=None)
            texts = answer_texts(self.answer, self._plan.endpoint)
            # It does not say which of them it is about.
            judged = [(one, self._reader.problem(one, self._plan.schema) if len(texts) > 1 else None) for one in texts]
            self._is_wrong(judged, problem)

    def unparsed(self) -> None:
        """Look again: openai's code has made no object of a class out of it, or not yet."""
        self._parses = False
        if self.verdict == "valid":
            self.verdict = None
            self._look(self.answer, answer_texts(self.answer, self._plan.endpoint), is_expanded=True)

    def stream(self, finish_reason: str | None) -> None:
        """Look at what a stream of the application's own has brought."""
        plan, watch = self._plan, self._watch
        self.count(watch.texts)
        if is_cut_off(finish_reason) and not (watch.contents and self._is_complete()):
            self.verdict = "truncated"
            return
        if not plan.is_json or not plan.validates or not watch.contents:
            return
        for progress in watch.contents.values():
            if not isinstance(progress, JsonProgress):
                return
            problem: Problem | None = None
            if progress.problem is not None:
                problem = stopped(watch.reason or "invalid", progress.problem)
            elif not progress.complete:
                return  # nobody read it to its end, or it was cut off
            elif plan.schema is not None:
                problem = validator(plan.schema)(progress.text[progress.start : progress.end])
            if problem is not None:
                if self._reader.by == "schema" or watch.reason is not None:
                    self.problem, self.verdict = problem, "invalid"
                return
        self.verdict = "valid"

    def _without_frame(self, body: dict[str, Any]) -> dict[str, Any]:
        """An answer that came whole, without a fence around its JSON or what stands behind it."""
        if self._watch.contents or not self._plan.is_json or not self._plan.validates:
            return body
        for one in self._of_answer(answer_texts(body, self._plan.endpoint)):
            if one.kind == "content":
                progress = JsonProgress(compile_schema(None))
                progress.feed(one.text)
                if progress.end is not None and one.text[progress.end :].strip():
                    body = one.replaced(body, one.text[progress.start : progress.end])
        return body

    def _look(self, body: dict[str, Any], texts: list[AnswerText], *, is_expanded: bool = False) -> dict[str, Any]:
        plan, reason = self._plan, self._watch.reason
        texts = self._of_answer(texts)
        is_structured = plan.is_json or any(one.kind == "tool_call" for one in texts)
        if reason in ("invalid", "whitespace") and not self._is_complete():
            judged = [(one, self._stopped(one)) for one in texts]
            said = next((problem for _, problem in judged if problem is not None), None)
            self._is_wrong(judged, said or stopped(reason, self._watch.problem))
        elif is_structured:
            shown = texts
            if plan.compacted is not None and not is_expanded:
                body, shown = self._expanded(body, texts)
            if plan.validates:
                # The model is shown what it wrote, and not what was made of that.
                problems = [self._problem_of(one) for one in self._of_answer(shown)]
                if plan.compacted is not None:
                    problems = [self._as_written(one, found) for one, found in zip(texts, problems, strict=True)]
                wrong = next((problem for problem in problems if problem is not None), None)
                if wrong is not None:
                    self._is_wrong(list(zip(texts, problems, strict=True)), wrong)
        if self.problem is None and is_structured and plan.validates:
            self.verdict = "valid"
        return body

    def _of_answer(self, texts: list[AnswerText]) -> list[AnswerText]:
        """Without what is said beside calls of tools: that is no answer."""
        is_response = self._plan.endpoint == RESPONSES
        calling = {is_response or one.where[0] for one in texts if one.kind == "tool_call"}
        return [one for one in texts if one.kind != "content" or (is_response or one.where[0]) not in calling]

    def _is_wrong(self, judged: list[Judged], problem: Problem) -> None:
        """Take down what is wrong, and with which choice."""
        self.problem = problem
        self.verdict = "invalid"
        if not judged:
            return
        bad = next((text for text, wrong in judged if wrong is not None), judged[0][0])
        self.choice = bad.where[0] if self._plan.endpoint != RESPONSES else 0
        same = [pair for pair in judged if self._plan.endpoint == RESPONSES or pair[0].where[0] == self.choice]
        self.judged = same if any(text.kind == "tool_call" for text, _ in same) else []
        self.text = bad.text

    def _stopped(self, one: AnswerText) -> Problem | None:
        """What the watcher of this text had found when it had the stream closed."""
        watched = self._watch.contents if one.kind == "content" else self._watch.tool_calls
        progress = watched.get(one.where)
        said = None if progress is None else progress.problem
        if said is None:
            return None
        return self._in_long_names(one, stopped("invalid", said))

    def _in_long_names(self, one: AnswerText, found: Problem) -> Problem:
        """The same problem where the application knows it, if the answer was stopped in short names."""
        compacted, schema = self._plan.compacted, self._plan.schema
        if compacted is None or one.kind != "content":
            return found
        again = JsonProgress(compile_schema(schema))
        again.feed(compacted.expand(one.text))
        return found if again.problem is None else replace(stopped("invalid", again.problem), advice=found.advice)

    def _is_complete(self) -> bool:
        watched = [*self._watch.contents.values(), *self._watch.tool_calls.values()]
        return bool(watched) and all(getattr(one, "complete", True) for one in watched)

    def _problem_of(self, one: AnswerText) -> Problem | None:
        plan = self._plan
        if one.kind == "content" and plan.is_json and not self._parses:
            if self._reader.content is not None:
                return self._reader.problem(one, plan.schema)
            return validator(plan.schema if plan.schema is not None else ANY_OBJECT)(one.text)
        tool = plan.tools.get(one.name or "") if one.kind == "tool_call" and one.form == "function" else None
        if tool is not None and one.name in self._reader.tools:
            return None if self._parses else self._reader.problem(one, tool.schema)
        return validator(tool.schema)(one.text) if tool is not None and tool.strict else None

    def _as_written(self, one: AnswerText, found: Problem | None) -> Problem | None:
        """What is wrong with an answer in short names: for the model in those, for the application in its own."""
        compacted = self._plan.compacted
        written = validator(compacted.schema)(one.text) if compacted is not None and one.kind == "content" else None
        if found is None or written is None:
            return found or written
        return replace(found, advice=written.advice)

    def _expanded(self, body: dict[str, Any], texts: list[AnswerText]) -> tuple[dict[str, Any], list[AnswerText]]:
        """The answer with its names written out again."""
        plan = self._plan
        assert plan.compacted is not None
        counting = counter(plan.model, origin=plan.origin, wait=False)
        saved = 0
        for one in texts:
            if one.kind == "content":
                long = plan.compacted.expand(one.text)
                saved += counting.text(long) - counting.text(one.text)
                body = one.replaced(body, long)
        self.saved_tokens = saved
        return body, answer_texts(body, plan.endpoint)
