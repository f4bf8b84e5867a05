"""Look at an answer while it arrives, and say when its stream can be closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastlane.protocol.content import Channel, Delta
from fastlane.records.output import StopReason

from ..progress._json_progress import JsonProgress
from ..progress._text_progress import TextProgress
from ._plan import OutputPlan
from ._reader import BY_SCHEMA, Reader

# After these, nothing that a channel can still bring is wanted.
_ENDED: frozenset[StopReason | None] = frozenset({
    "whitespace", "prose", "fence", "invalid", "stop_sequence", "stop_when",
})  # fmt: skip

_NO_ANSWER: frozenset[StopReason] = frozenset({"prose", "fence", "invalid"})

Progress = JsonProgress | TextProgress


class Watch:
    """Sans-IO: the watchers of one answer's texts. `reason` is set once the stream can be closed."""

    __slots__ = (
        "_is_refused", "_plan", "_reader", "_reasons", "_went_wrong", "choices", "contents", "reason", "reasoning",
        "tool_calls",
    )  # fmt: skip

    def __init__(
        self, plan: OutputPlan, choices: int, went_wrong: Callable[[Exception], None], reader: Reader = BY_SCHEMA
    ) -> None:
        self._plan = plan
        self._reader = reader
        self.choices = choices
        self._went_wrong = went_wrong
        self._is_refused = False
        self._reasons: dict[tuple[str, Channel], StopReason] = {}
        self.contents: dict[Channel, Progress] = {}
        self.tool_calls: dict[Channel, Progress] = {}
        self.reasoning: list[str] = []
        self.reason: StopReason | None = None

    def feed(self, deltas: Iterable[Delta]) -> bool:
        """Look at what one event has brought; True if the stream is to be closed now."""
        for channel, kind, text, name in deltas:
            if kind == "content":
                progress = self.contents.get(channel)
                if progress is None:
                    progress = self.contents[channel] = self._content()
            elif kind == "tool_call":
                progress = self.tool_calls.get(channel)
                if progress is None:
                    progress = self.tool_calls[channel] = self._tool_call(name)
            else:
                if kind == "reasoning":
                    self.reasoning.append(text)
                else:
                    self._is_refused = True
                continue
            try:
                reason = progress.feed(text)
            except Exception as error:  # noqa: BLE001 - what the application has given must not break a call
                self._went_wrong(error)
                self._replace(progress)
                continue
            if reason is not None and self._plan.early_stop:
                self._noted(kind, channel, progress, reason)
        return self.reason is not None

    @property
    def problem(self) -> str | None:
        """Why the answer can no longer become valid, by place and rule; None while it can."""
        watched = (*self.contents.values(), *self.tool_calls.values())
        return next((one.problem for one in watched if one.problem is not None), None)

    @property
    def texts(self) -> list[str]:
        """All texts that have come, but reasoning."""
        return [one.text for watched in (self.contents, self.tool_calls) for one in watched.values()]

    @property
    def has_ended(self) -> bool:
        """Whether any of the texts may have, or can be stopped."""
        return bool(self._reasons)

    @property
    def is_framed(self) -> bool:
        """Whether something stands around the values in the contents."""
        return any(
            isinstance(one, JsonProgress) and one.end is not None and one.text[one.end :].strip()
            for one in self.contents.values()
        )

    def ends(self) -> tuple[dict[Channel, int], dict[Channel, int]]:
        """Where the values in the contents end, and where they begin, in characters; only where that says something."""
        watched = [*self.contents.items(), *self.tool_calls.items()]
        ends = {channel: one.end for channel, one in watched if one.end is not None}
        starts = {channel: one.start for channel, one in watched if isinstance(one, JsonProgress) and one.start}
        return ends, starts

    def _content(self) -> Progress:
        plan = self._plan
        if plan.is_json:
            # Where an answer may be anything, what it may not be must not hide that it runs on.
            return JsonProgress(self._reader.content_node(plan.watched_schema if plan.validates else None))
        return TextProgress(plan.stop, plan.stop_when)

    def _tool_call(self, name: str | None) -> Progress:
        tool = self._plan.tools.get(name or "") if self._plan.validates else None
        return JsonProgress(self._reader.tool_node(name, tool))

    def _replace(self, failed: Progress) -> None:
        """Go on without what the application has given, as it raised."""
        for channel, one in self.contents.items():
            if one is failed:
                plain = self.contents[channel] = TextProgress(self._plan.stop, None)
                plain.feed(failed.text)

    def _noted(self, kind: str, channel: Channel, progress: Progress, reason: StopReason) -> None:
        plan = self._plan
        if not plan.validates and (reason == "invalid" or (reason == "whitespace" and progress.end is None)):
            return  # the application is to have all of an answer that may be anything
        if kind == "content" and plan.is_json and not plan.content_is_all and reason in _NO_ANSWER:
            return  # a tool may be called yet, and what is said before that is no answer
        if reason == "fence" and not plan.at_once and _is_closing_fence(progress):
            reason = "complete"  # which may be the end of it
        self._reasons[kind, channel] = reason
        if self._is_refused:
            return
        if kind == "tool_call":
            if reason in _ENDED or (reason == "complete" and plan.one_tool_call and plan.at_once):
                self.reason = reason
            return
        reasons: list[Any] = [self._reasons.get(("content", one)) for one in self.contents]
        if len(reasons) < self.choices or None in reasons:
            return  # the others go on
        ended = next((one for one in reasons if one in _ENDED), None)
        if ended is not None:
            self.reason = ended
        elif plan.at_once and plan.content_is_all:
            self.reason = "complete"


def _is_closing_fence(progress: Progress) -> bool:
    """Whether nothing has come behind the value but the fence that closes the one before it."""
    if not isinstance(progress, JsonProgress) or progress.end is None:
        return False
    return progress.text[progress.end :].strip(" \t\r\n") in ("`", "``", "```")
