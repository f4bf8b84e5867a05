"""One answer: watched while it arrives, and judged once it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fastlane.knowledge.tokens import counter
from fastlane.protocol.answer_texts import AnswerText, answer_texts, verdict_of
from fastlane.protocol.assembly import Assembly, assembly_of
from fastlane.protocol.content import Channel, Delta, is_cut_off
from fastlane.protocol.cut import Cut
from fastlane.protocol.endpoints import RESPONSES
from fastlane.protocol.estimates import prompt_tokens
from fastlane.protocol.request_fields import ANY_OBJECT
from fastlane.protocol.usage import estimated_usage
from fastlane.records.output import OutputVerdict, StopReason

from .planning import OutputPlan
from .reask import Judged, with_choice
from .scanner import JsonScanner, TextScanner
from .validation import Problem, problem_in, problem_of, stopped

# Behind these reasons, nothing that a text can still bring is wanted.
_ENDED: frozenset[StopReason] = frozenset({"whitespace", "prose", "fence", "stop_sequence", "stop_when"})
# What a Responses answer may say of itself where there is none.
_NO_ANSWER = ("failed", "cancelled", "queued", "in_progress")

Scanner = JsonScanner | TextScanner


class WatchedAnswer:
    """One answer to a call. Sans-IO.

    `is_parsed`: openai's own code makes objects of the application's classes out of it, and is the judge.
    `on_error` is called with what `stop_when` raises.
    """

    def __init__(
        self, plan: OutputPlan, *, choices: int, is_parsed: bool, on_error: Callable[[Exception], None]
    ) -> None:
        self._plan = plan
        self._choices = choices
        self._is_parsed = is_parsed
        self._on_error = on_error
        assembly = assembly_of(plan.endpoint, choices=choices)
        assert assembly is not None
        self.assembly: Assembly = assembly
        self.contents: dict[Channel, Scanner] = {}
        self.tool_calls: dict[Channel, Scanner] = {}
        self._reasoning: list[str] = []
        self._reasons: dict[tuple[str, Channel], StopReason] = {}
        self._has_refusal = False
        self.reason: StopReason | None = None
        """Why the stream can be closed; None while it cannot."""
        self.is_cut = False
        """Whether it was closed."""
        self.usage: Mapping[str, Any] = {}
        """The provider's own, or the estimate in its place."""
        self.visible_tokens: int | None = None
        """Of what can be seen of it but reasoning, estimated."""
        self._reasoning_tokens = 0
        self.verdict: OutputVerdict | None = None
        self.problem: Problem | None = None
        self.choice = 0
        """Which choice is wrong."""
        self.text = ""
        """The text that is wrong, or else the content."""
        self.judged: list[Judged] = []
        """All texts of that choice, where it calls tools, each with what is wrong with it."""
        self.finish_reason: str | None = None
        self.body: dict[str, Any] = {}
        """The whole answer as it is handed out."""
        self.note: str | None = None
        """What else the application is to know of it."""

    # While it arrives

    def feed(self, deltas: Iterable[Delta]) -> bool:
        """Look at what an event has brought; True if the stream is to be closed now."""
        for channel, kind, text, _ in deltas:
            if kind == "content":
                self.feed_content(channel, text)
            elif kind == "tool_call":
                scanner = self.tool_calls.get(channel)
                if scanner is None:
                    scanner = self.tool_calls[channel] = JsonScanner()
                reason = scanner.feed(text)
                if reason is not None:
                    self._note(kind, channel, scanner, reason)
            elif kind == "reasoning":
                self._reasoning.append(text)
            else:
                self._has_refusal = True
        return self.reason is not None

    def feed_content(self, channel: Channel, text: str) -> bool:
        """Look at a piece of content; True if the stream is to be closed now."""
        scanner = self.contents.get(channel)
        if scanner is None:
            play = self._plan.play
            scanner = JsonScanner() if self._plan.is_json else TextScanner(tuple(play.stop), play.stop_when)
            self.contents[channel] = scanner
        try:
            reason = scanner.feed(text)
        except Exception as error:  # noqa: BLE001 - what the application has given must not break a call
            self._on_error(error)
            plain = self.contents[channel] = TextScanner(tuple(self._plan.play.stop))
            plain.feed(scanner.text)
            return False
        if reason is not None:
            self._note("content", channel, scanner, reason)
        return self.reason is not None

    def _note(self, kind: str, channel: Channel, scanner: Scanner, reason: StopReason) -> None:
        """Set the reason for closing the stream, if nothing of use can come any more."""
        plan = self._plan
        if not plan.early_stop:
            return
        at_once = plan.play.early_stop == "at_once"
        if isinstance(scanner, JsonScanner):
            if scanner.end is None and not plan.play.validate:
                return  # the application is to have all of an answer that may be anything
            if kind == "content" and not plan.content_is_all and reason in ("prose", "fence"):
                return  # a tool may be called yet, and what is said before that is no answer
            if reason == "fence" and not at_once and scanner.text[scanner.end :].strip(" \t\r\n") in ("`", "``", "```"):
                reason = "complete"  # which may be the end of it
        self._reasons[kind, channel] = reason
        if self._has_refusal:
            return
        if kind == "tool_call":
            if reason in _ENDED or (plan.one_tool_call and at_once):
                self.reason = reason
            return
        reasons = [self._reasons.get(("content", one)) for one in self.contents]
        if len(reasons) < self._choices or None in reasons:
            return  # the others go on
        ended = next((one for one in reasons if one in _ENDED), None)
        if ended is not None:
            self.reason = ended
        elif at_once and plan.content_is_all:
            self.reason = "complete"

    @property
    def has_ended(self) -> bool:
        """Whether one of its texts has, or can be stopped."""
        return bool(self._reasons)

    @property
    def has_all(self) -> bool:
        """Whether nothing is missing of it: it may only run on."""
        return (
            self._plan.is_json
            and self._plan.content_is_all
            and len(self.contents) >= self._choices
            and _are_complete(self.contents.values())
        )

    def cut(self) -> Cut:
        """The stream is closed: return where the texts end, and the estimated usage."""
        self.is_cut = True
        self.usage = self._estimated_usage()
        return replace(self._spans(), usage=self.usage)

    def _spans(self) -> Cut:
        watched = [*self.contents.items(), *self.tool_calls.items()]
        return Cut(
            ends={channel: one.end for channel, one in watched if one.end is not None},
            starts={channel: one.start for channel, one in watched if isinstance(one, JsonScanner) and one.start > 0},
        )

    def _estimated_usage(self) -> Mapping[str, Any]:
        plan = self._plan
        counting = counter(plan.model, origin=plan.origin, wait=False)
        self._count(self._texts)
        self._reasoning_tokens = counting.text("".join(self._reasoning))
        input_tokens = prompt_tokens(plan.body, counting)
        return estimated_usage(plan.endpoint, input_tokens=input_tokens, output_tokens=self.received_tokens)

    @property
    def _texts(self) -> list[str]:
        return [one.text for watched in (self.contents, self.tool_calls) for one in watched.values()]

    @property
    def received_tokens(self) -> int:
        """Tokens that have come, estimated; no answer is longer than its limit."""
        received = (self.visible_tokens or 0) + self._reasoning_tokens
        return received if self._plan.limit is None else min(received, self._plan.limit)

    def assembled(self) -> dict[str, Any]:
        """Return the answer as the API gives it without streaming."""
        if (self.reason is not None or self.has_all) and not self.assembly.finished:
            return self.assembly.body(self.cut())
        body = self.assembly.body()
        runs_on = any(one.end is not None and one.text[one.end :].strip() for one in self.contents.values())
        if self.has_all and (runs_on or verdict_of(body, self._plan.endpoint) == "truncated"):
            # What it ran on in came with its end, or up to the limit.
            body = self.assembly.body(self._spans())
        if "choices" in body and body.get("usage") is None:
            # Without streaming, the provider would have counted it.
            body["usage"] = dict(self._estimated_usage())
        return body

    # Once it is whole

    def check(self, body: dict[str, Any], kept: tuple[dict[str, Any], int] | None) -> dict[str, Any]:
        """Judge a whole answer, and return it without a fence around its JSON.

        `kept`: an earlier answer, and which of its choices this one was asked for in the place of.
        """
        plan = self._plan
        usage = body.get("usage")
        self.usage = usage if isinstance(usage, Mapping) else {}
        if kept is not None:
            body = with_choice(kept[0], body, kept[1])
        if plan.is_json and plan.play.validate and not self.contents:
            body = self._without_frame(body)
        texts = answer_texts(body, plan.endpoint)
        self.finish_reason = next((one.finish_reason for one in texts), None)
        self.text = "".join(one.text for one in texts if one.kind == "content")
        self._count([one.text for one in texts])
        self.body = body
        self.verdict = verdict_of(body, plan.endpoint)
        if self.verdict is None and body.get("status") not in _NO_ANSWER:
            self._judge(self._of_answer(texts))
        return body

    def _count(self, texts: list[str]) -> None:
        if self.visible_tokens is None:
            counting = counter(self._plan.model, origin=self._plan.origin, wait=False)
            self.visible_tokens = sum(map(counting.text, texts))

    def _judge(self, texts: list[AnswerText]) -> None:
        plan = self._plan
        if not plan.play.validate or not (plan.is_json or any(one.kind == "tool_call" for one in texts)):
            return
        watched = [*self.contents.values(), *self.tool_calls.values()]
        if self.reason in ("whitespace", "prose") and not _are_complete(watched):
            self._is_wrong([(one, None) for one in texts], stopped(self.reason))
            return
        judged = [(one, None if self._is_parsed else self._problem_in(one)) for one in texts]
        problem = next((problem for _, problem in judged if problem is not None), None)
        if problem is None:
            self.verdict = "valid"
        else:
            self._is_wrong(judged, problem)

    def raised(self, error: Exception) -> None:
        """Take down what openai's code has raised over the answer."""
        problem = problem_of(error, self._plan.schema)
        if problem is not None:
            texts = answer_texts(self.body, self._plan.endpoint)
            # The error does not say which of them it is about. Its traceback leads to where this is kept.
            judged = [(one, self._problem_in(one) if len(texts) > 1 else None) for one in texts]
            self._is_wrong(judged, replace(problem, cause=None))

    def is_unread(self) -> None:
        """Take back what the schema says where no class has read the answer yet: it may take more."""
        if self.verdict == "valid" and any(map(self._problem_in, answer_texts(self.body, self._plan.endpoint))):
            self.verdict = None

    def judge_stream(self, finish_reason: str | None) -> None:
        """Judge what a stream of the application's own has brought."""
        plan = self._plan
        self._count(self._texts)
        contents = list(self.contents.values())
        if is_cut_off(finish_reason) and not (contents and _are_complete([*contents, *self.tool_calls.values()])):
            self.verdict = "truncated"
        elif plan.is_json and plan.play.validate and contents:
            if self.reason in ("whitespace", "prose") and not _are_complete(contents):
                self.problem, self.verdict = stopped(self.reason), "invalid"
            elif _are_complete(contents):
                values = [one.value for one in contents if isinstance(one, JsonScanner)]
                schema: Any = ANY_OBJECT if plan.schema is None else plan.schema
                problem = next((found for value in values if (found := problem_in(value, schema)) is not None), None)
                if problem is None:
                    self.verdict = "valid"
                elif not self._is_parsed:
                    self.problem, self.verdict = problem, "invalid"

    def _without_frame(self, body: dict[str, Any]) -> dict[str, Any]:
        """An answer that came whole, without a fence around its JSON and without what stands behind it."""
        for one in self._of_answer(answer_texts(body, self._plan.endpoint)):
            if one.kind == "content":
                scanner = JsonScanner()
                scanner.feed(one.text)
                if scanner.end is not None and one.text[scanner.end :].strip():
                    body = one.replaced(body, scanner.value)
        return body

    def _of_answer(self, texts: list[AnswerText]) -> list[AnswerText]:
        """Without what is said beside calls of tools: that is no answer."""
        is_response = self._plan.endpoint == RESPONSES
        calling = {is_response or one.where[0] for one in texts if one.kind == "tool_call"}
        return [one for one in texts if one.kind != "content" or (is_response or one.where[0]) not in calling]

    def _is_wrong(self, judged: list[Judged], problem: Problem) -> None:
        """Take down what is wrong, and with which choice."""
        self.problem, self.verdict = problem, "invalid"
        if not judged:
            return
        bad = next((text for text, wrong in judged if wrong is not None), judged[0][0])
        is_response = self._plan.endpoint == RESPONSES
        self.choice = 0 if is_response else bad.where[0]
        same = [pair for pair in judged if is_response or pair[0].where[0] == self.choice]
        self.judged = same if any(text.kind == "tool_call" for text, _ in same) else []
        self.text = bad.text

    def _problem_in(self, one: AnswerText) -> Problem | None:
        plan = self._plan
        if one.kind == "content" and plan.is_json:
            return problem_in(one.text, ANY_OBJECT if plan.schema is None else plan.schema)
        tool = plan.tools.get(one.name or "") if one.kind == "tool_call" and one.form == "function" else None
        return problem_in(one.text, tool.schema) if tool is not None and tool.strict else None


def _are_complete(scanners: Iterable[Scanner]) -> bool:
    """Whether there are texts, and each that has to be JSON has come to its end."""
    scanners = list(scanners)
    return bool(scanners) and not any(isinstance(one, JsonScanner) and one.end is None for one in scanners)
