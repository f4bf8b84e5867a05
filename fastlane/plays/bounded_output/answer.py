"""One answer: watched while it arrives, and judged once it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fastlane.engine.session import Stop
from fastlane.knowledge.tokens import counter
from fastlane.protocol.answer_texts import AnswerText, answer_texts, verdict_of
from fastlane.protocol.assembly import AnswerCut, Assembly, assembly_of
from fastlane.protocol.content import Channel, Delta, is_cut_off
from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.json_scanner import JsonScanner
from fastlane.protocol.request_fields import ANY_OBJECT
from fastlane.protocol.usage import estimated_usage, prompt_tokens
from fastlane.records.plays import OutputVerdict, StopReason

from .plan import OutputPlan
from .validation import Problem, problem_in, problem_of, stopped

# Behind these reasons, nothing that a text can still bring is wanted.
_ENDED: frozenset[StopReason] = frozenset({"whitespace", "prose", "fence"})
# What a Responses answer may say of itself where there is none.
_NO_ANSWER = ("failed", "cancelled", "queued", "in_progress")


class WatchedAnswer:
    """One answer to a call. Sans-IO."""

    def __init__(self, plan: OutputPlan, *, is_parsed: bool, on_error: Callable[[str, Exception], None]) -> None:
        """`is_parsed`: openai's own code makes objects of the application's classes out of it, and is the judge.

        `on_error` is called with what was done when an error was raised here.
        """
        self._plan = plan
        self._is_parsed = is_parsed
        self._on_error = on_error
        assembly = assembly_of(plan.endpoint, choices=plan.choices)
        assert assembly is not None
        self.assembly: Assembly = assembly
        self.contents: dict[Channel, JsonScanner] = {}
        self._tool_calls: dict[Channel, JsonScanner] = {}
        self._other_texts: list[str] = []
        """Reasoning, and content that need not be JSON."""
        self._reasons: dict[tuple[str, Channel], StopReason] = {}
        self._has_refusal = False
        self._is_watched = True
        self._unframes = plan.is_json and plan.early_stop and plan.play.validate
        """Whether the application is given the JSON alone."""
        self.stop_reason: StopReason | None = None
        """Why the stream can be closed; None while it cannot."""
        self.is_cut = False
        """Whether it was closed."""
        self.usage: Mapping[str, Any] = {}
        """The provider's own, or the estimate in its place."""
        self.received_tokens: int | None = None
        """Tokens that had come when it was closed, estimated; no answer is longer than its limit."""
        self.verdict: OutputVerdict | None = None
        self.problem: Problem | None = None
        self.text = ""
        """The text that is wrong, or else the content."""
        self.calls_tools = False
        self.finish_reason: str | None = None
        self.body: dict[str, Any] = {}
        """The whole answer as it is handed out."""
        self.note: str | None = None
        """What is to be known of an answer that was cut off."""

    # While it arrives

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""
        deltas = self.assembly.take(event)
        stops = False
        if self._is_watched:
            try:
                stops = self._feed(deltas) and not self.assembly.finished
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._is_watched = False
                self._on_error("watch", error)
        return stops, [delta.kind for delta in deltas]

    def see(self, event: Any) -> bool:
        """Look at one typed event of a stream that the application reads; True if the stream is to be closed.

        What stands before the answer or behind its end is left out of the event.
        """
        stops = self._see_content(event)
        if stops is None:
            stops = self._feed(self.assembly.take(event))
        if stops or (self._unframes and (self._reasons or not self._has_begun)):
            self._leave_out(event)
        return stops

    @property
    def _has_begun(self) -> bool:
        """Whether no fence may stand before the answer any more."""
        scanners = self.contents.values()
        return bool(scanners) and all(one.start >= 0 for one in scanners)

    def _see_content(self, event: Any) -> bool | None:
        """Look at a chunk that adds content to a text that has begun, and nothing else; None for any other event.

        The assembly does not need it: the chunks that end a stream hold no text.
        """
        if self._plan.endpoint != CHAT:
            return None
        choices = event.choices
        if len(choices) != 1 or event.usage is not None:
            return None
        choice = choices[0]
        channel, delta = (choice.index,), choice.delta
        text = delta.content
        if not text or channel not in self.contents or choice.finish_reason is not None or delta.role is not None:
            return None
        if delta.tool_calls or delta.function_call or delta.refusal or delta.model_extra:
            return None
        return self._feed_content(channel, text)

    def _leave_out(self, event: Any) -> None:
        for channel, scanner in self.contents.items():
            if self._plan.endpoint == RESPONSES:
                where = getattr(event, "output_index", None), getattr(event, "content_index", None)
                holders = [(event, "delta")] if where == channel else []
            else:
                choices = [choice for choice in event.choices if choice.index == channel[0]]
                is_chat = self._plan.endpoint == CHAT
                holders = [(choice.delta, "content") if is_chat else (choice, "text") for choice in choices]
            for holder, name in holders:
                text = getattr(holder, name, None)
                if isinstance(text, str):
                    setattr(holder, name, scanner.inside(text))

    def _feed(self, deltas: Iterable[Delta]) -> bool:
        """Look at what an event has brought; True if the stream is to be closed now."""
        for channel, kind, text, _ in deltas:
            if kind == "content" and self._plan.is_json:
                self._feed_content(channel, text)
            elif kind == "tool_call":
                scanner = self._tool_calls.setdefault(channel, JsonScanner())
                self._note(kind, channel, scanner, scanner.feed(text))
            elif kind in ("content", "reasoning"):
                self._other_texts.append(text)
            else:
                self._has_refusal = True
        return self.stop_reason is not None

    def _feed_content(self, channel: Channel, text: str) -> bool:
        scanner = self.contents.get(channel)
        if scanner is None:
            scanner = self.contents[channel] = JsonScanner()
        self._note("content", channel, scanner, scanner.feed(text))
        return self.stop_reason is not None

    def _note(self, kind: str, channel: Channel, scanner: JsonScanner, reason: StopReason | None) -> None:
        """Set the reason for closing the stream, if nothing of use can come any more."""
        plan = self._plan
        if reason is None or not plan.early_stop:
            return
        if scanner.end is None and not plan.play.validate:
            return  # the application is to have all of an answer that may be anything
        if kind == "content" and not plan.content_is_all and reason in ("prose", "fence"):
            return  # a tool may be called yet, and text before that is no answer
        is_fence = reason == "fence" and scanner.text[scanner.end :].strip(" \t\r\n") in ("`", "``", "```")
        if is_fence and plan.play.early_stop != "at_once":
            reason = "complete"  # which may be the end of it
        self._reasons[kind, channel] = reason
        if self._has_refusal:
            return
        if kind == "tool_call":
            if reason in _ENDED or (plan.one_tool_call and plan.play.early_stop == "at_once"):
                self.stop_reason = reason
            return
        reasons = [self._reasons.get(("content", one)) for one in self.contents]
        if len(reasons) < plan.choices or None in reasons:
            return  # the others go on
        ended = next((one for one in reasons if one in _ENDED), None)
        if ended is not None:
            self.stop_reason = ended
        elif plan.play.early_stop == "at_once" and plan.content_is_all:
            self.stop_reason = "complete"

    @property
    def has_all(self) -> bool:
        """Whether nothing is missing of it: it may only run on."""
        plan = self._plan
        is_whole = plan.is_json and plan.content_is_all and len(self.contents) >= plan.choices
        return is_whole and _are_complete(self.contents.values())

    # Once it has ended, or was closed

    def closing_events(self, stop: Stop) -> list[dict[str, Any]]:
        """Return the events that end a stream which the application reads and we have closed."""
        options = self._plan.body.get("stream_options")
        include_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        events = self.assembly.closing_events(self._cut(), include_usage=include_usage)
        stop.usage = self.usage
        return events

    def _cut(self) -> AnswerCut:
        """The stream is closed: return where the texts end, and the estimated usage."""
        self.is_cut = True
        self.usage = self._estimated_usage()
        return replace(self._spans(), usage=self.usage)

    def _spans(self) -> AnswerCut:
        watched = [*self.contents.items(), *self._tool_calls.items()]
        return AnswerCut(
            ends={channel: one.end for channel, one in watched if one.end is not None},
            starts={channel: one.start for channel, one in watched if one.start > 0},
        )

    def _estimated_usage(self) -> Mapping[str, Any]:
        plan = self._plan
        counting = counter(plan.model, wait=False)
        watched = (*self.contents.values(), *self._tool_calls.values())
        received = sum(counting.text(one.text) for one in watched) + counting.text("".join(self._other_texts))
        self.received_tokens = received if plan.limit is None else min(received, plan.limit)
        input_tokens = prompt_tokens(plan.body, counting)
        return estimated_usage(plan.endpoint, input_tokens=input_tokens, output_tokens=self.received_tokens)

    def assembled(self) -> dict[str, Any]:
        """Return the answer as the API gives it without streaming."""
        if (self.stop_reason is not None or self.has_all) and not self.assembly.finished:
            return self.assembly.body(self._cut())
        body = self.assembly.body()
        runs_on = any(one.end is not None and one.text[one.end :].strip() for one in self.contents.values())
        if self.has_all and (runs_on or verdict_of(body, self._plan.endpoint) == "truncated"):
            # What it ran on in came with its end, or up to the limit.
            body = self.assembly.body(self._spans())
        if "choices" in body and body.get("usage") is None:
            # Without streaming, the provider would have counted it.
            body["usage"] = dict(self._estimated_usage())
        return body

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Judge a whole answer, and return it."""
        try:
            self._check(body)
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._on_error("check", error)
        return body

    def _check(self, body: dict[str, Any]) -> None:
        plan = self._plan
        usage = body.get("usage")
        self.usage = usage if isinstance(usage, Mapping) else {}
        texts = answer_texts(body, plan.endpoint)
        self.finish_reason = next((one.finish_reason for one in texts), None)
        self.text = "".join(one.text for one in texts if one.kind == "content")
        self.body = body
        self.verdict = verdict_of(body, plan.endpoint)
        texts = self._of_answer(texts)
        self.calls_tools = any(one.kind == "tool_call" for one in texts)
        is_judged = plan.play.validate and (plan.is_json or self.calls_tools)
        if self.verdict is None and is_judged and body.get("status") not in _NO_ANSWER:
            if self.stop_reason in ("whitespace", "prose") and not self._is_complete:
                self._is_wrong(stopped(self.stop_reason), texts[0].text if texts else "")
                return
            problems = () if self._is_parsed else ((self._problem_in(one), one.text) for one in texts)
            problem, text = next(((problem, text) for problem, text in problems if problem is not None), (None, ""))
            self.verdict = "valid"
            if problem is not None:
                self._is_wrong(problem, text)

    def read_by_class(self, error: Exception | None, *, is_parsed: bool) -> None:
        """Take down what openai's code has made of the answer: an error, an object of a class, or nothing yet."""
        try:
            problem = None if error is None else problem_of(error, self._plan.schema)
            if problem is not None:
                # The error's traceback leads to where this is kept.
                self._is_wrong(replace(problem, cause=None), self.text)
            elif error is None and self._is_parsed and not is_parsed and self.verdict == "valid":
                # No class has read it yet, as with a raw response. What the schema refuses, the class may still take.
                texts = self._of_answer(answer_texts(self.body, self._plan.endpoint))
                if any(self._problem_in(one) is not None for one in texts):
                    self.verdict = None
        except Exception as failure:  # noqa: BLE001 - a play must not break a call
            self._on_error("check", failure)

    def judge_stream(self, finish_reason: str | None) -> None:
        """Judge what a stream that the application reads has brought."""
        plan, contents = self._plan, list(self.contents.values())
        is_complete = bool(contents) and _are_complete(contents)
        if is_cut_off(finish_reason) and not (is_complete and self._is_complete):
            self.verdict = "truncated"
        elif plan.is_json and plan.play.validate and contents:
            if is_complete:
                problems = (problem_in(one.value, self._schema) for one in contents)
                problem = next(filter(None, problems), None)
                if problem is None:
                    self.verdict = "valid"
                elif not self._is_parsed:
                    self._is_wrong(problem, self.text)
            elif self.stop_reason in ("whitespace", "prose"):
                self._is_wrong(stopped(self.stop_reason), self.text)

    @property
    def _schema(self) -> Any:
        return ANY_OBJECT if self._plan.schema is None else self._plan.schema

    @property
    def _is_complete(self) -> bool:
        return _are_complete([*self.contents.values(), *self._tool_calls.values()])

    def _is_wrong(self, problem: Problem, text: str) -> None:
        self.problem, self.verdict, self.text = problem, "invalid", text

    def _of_answer(self, texts: list[AnswerText]) -> list[AnswerText]:
        """Return the texts without those beside calls of tools, which are no answer."""
        is_response = self._plan.endpoint == RESPONSES
        calling = {is_response or one.where[0] for one in texts if one.kind == "tool_call"}
        return [one for one in texts if one.kind != "content" or (is_response or one.where[0]) not in calling]

    def _problem_in(self, one: AnswerText) -> Problem | None:
        if one.kind == "content" and self._plan.is_json:
            return problem_in(one.text, self._schema)
        tool = self._plan.tools.get(one.name or "") if one.kind == "tool_call" and one.form == "function" else None
        return problem_in(one.text, tool.schema) if tool is not None and tool.strict else None


def _are_complete(scanners: Iterable[JsonScanner]) -> bool:
    """Whether there are texts, and each has come to its end."""
    scanners = list(scanners)
    return bool(scanners) and all(one.end is not None for one in scanners)
