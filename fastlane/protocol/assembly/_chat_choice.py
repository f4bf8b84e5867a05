"""Put one choice of a chat completion together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._contents import Content
from ._cut import Cut, tokens_within
from ._deltas import REASONING_FIELDS, Channel, Delta
from ._merge import merge_delta, own, replace_fields
from ._tool_calls import ToolCalls

_OF_CHOICE = frozenset(("delta", "finish_reason", "index", "logprobs", "message"))
_LEGACY_CALL = -1


class ChatChoice:
    """One choice, chunk by chunk."""

    __slots__ = (
        "_begun", "_calls", "_channel", "_content", "_extra", "_index", "_logprobs", "_message", "_reasoning",
        "_refusal", "finish_reason",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self._index = index
        self._channel: Channel = (index,)
        self._begun = False
        self._content = Content()
        self._reasoning: dict[str, list[str]] = {}
        self._refusal: list[str] | None = None
        self._calls: ToolCalls | None = None
        self._message: dict[str, Any] = {"role": "assistant"}
        self._extra: dict[str, Any] = {}
        self._logprobs: dict[str, Any] | None = None
        self.finish_reason: Any = None

    def take(self, piece: Mapping[str, Any], deltas: list[Delta]) -> None:
        """Add what one chunk says of this choice."""
        # More than an index and a delta, which most chunks have and some providers leave out.
        if len(piece) > 2 or "index" not in piece or "delta" not in piece:
            reason = piece.get("finish_reason")
            if reason:  # some send "" until there is one
                self.finish_reason = reason
            logprobs = piece.get("logprobs")
            if isinstance(logprobs, Mapping):
                if self._logprobs is None:
                    self._logprobs = {}
                merge_delta(self._logprobs, logprobs)
            if not piece.keys() <= _OF_CHOICE:
                replace_fields(self._extra, piece, _OF_CHOICE, lists_go_on=True)
        delta = piece.get("delta")
        if delta is None and not self._begun:
            # An answer in one piece. Behind deltas it would say again what they said.
            delta = piece.get("message")
        if isinstance(delta, Mapping):
            self._begun = True
            self._take_delta(delta, deltas)

    def _take_delta(self, delta: Mapping[str, Any], deltas: list[Delta]) -> None:
        for name, value in delta.items():
            if name == "content":
                self._content.take(value, self._channel, deltas)
            elif name in REASONING_FIELDS and (value is None or isinstance(value, str)):
                pieces = self._reasoning.setdefault(name, [])
                if value:
                    pieces.append(value)
                    # Some send it under both names; it is one thought.
                    if name == next(one for one in REASONING_FIELDS if delta.get(one)):
                        deltas.append(Delta(self._channel, "reasoning", value))
            elif name == "refusal" and (value is None or isinstance(value, str)):
                self._take_refusal(value, deltas)
            elif name == "tool_calls":
                if isinstance(value, list | tuple) and value:
                    if self._calls is None:
                        self._calls = ToolCalls(self._index)
                    self._calls.take(value, deltas)
            elif name == "role":
                self._message["role"] = value or self._message["role"]
            else:
                if name == "function_call" and isinstance(value, Mapping):
                    self._legacy_call(value, deltas)
                merge_delta(self._message, {name: value})

    def _take_refusal(self, value: str | None, deltas: list[Delta]) -> None:
        if "refusal" not in self._message:
            # Who tells a refusal in its streams tells the annotations of an answer too, and leaves an empty list out.
            self._message["refusal"] = None
            self._message.setdefault("annotations", [])
        if value is not None:
            self._refusal = self._refusal or []
            self._refusal.append(value)
            if value:
                deltas.append(Delta(self._channel, "refusal", value))

    def _legacy_call(self, call: Mapping[str, Any], deltas: list[Delta]) -> None:
        arguments = call.get("arguments")
        begun = "function_call" not in self._message
        name = call.get("name") if begun and isinstance(call.get("name"), str) else None
        if name is not None or (isinstance(arguments, str) and arguments):
            text = arguments if isinstance(arguments, str) else ""
            deltas.append(Delta((self._index, _LEGACY_CALL), "tool_call", text, name))

    def text(self, channel: Channel) -> str:
        """Return the content, or else the refusal, or the arguments of one of the tool calls."""
        if len(channel) == 1:
            return self._content.text or "".join(self._refusal or ())
        if channel[1] == _LEGACY_CALL:
            call = self._message.get("function_call")
            return str(call.get("arguments") or "") if isinstance(call, dict) else ""
        return "" if self._calls is None else self._calls.text(channel[1])

    def body(self, cut: Cut | None) -> dict[str, Any]:
        """Return the choice as it stands in an answer."""
        message = own(self._message)
        message["content"] = self._content.body(cut, self._channel)
        if self._refusal is not None:
            message["refusal"] = "".join(self._refusal) or None
        for name, pieces in self._reasoning.items():
            message[name] = "".join(pieces) if pieces else None
        if self._calls is not None:
            message["content"] = message["content"] or None
            message["tool_calls"] = self._calls.body(cut)
        if cut is not None and isinstance(message.get("function_call"), dict):
            call = message["function_call"]
            if isinstance(call.get("arguments"), str):
                call["arguments"] = cut.of((self._index, _LEGACY_CALL), call["arguments"])
        return {
            **own(self._extra),
            "index": self._index,
            "message": message,
            "logprobs": self._logprobs_of(cut),
            "finish_reason": self._reason(cut),
        }

    def _logprobs_of(self, cut: Cut | None) -> dict[str, Any] | None:
        logprobs: dict[str, Any] | None = own(self._logprobs)
        if logprobs is not None and cut is not None and cut.concerns(self._channel):
            tokens = logprobs.get("content")
            text = self._content.text
            if isinstance(tokens, list):
                logprobs["content"] = tokens[tokens_within(tokens, text, *cut.span(self._channel, len(text)))]
        return logprobs

    def _reason(self, cut: Cut | None) -> Any:
        called = "tool_calls" if self._calls is not None else None
        if called is None and isinstance(self._message.get("function_call"), dict):
            called = "function_call"
        return reason_after(cut, self.finish_reason, called=called, index=self._index)


def reason_after(cut: Cut | None, reason: Any, *, called: str | None, index: int) -> Any:
    """Return the finish reason of a choice whose stream was closed, or which ran on behind what was asked for.

    `called`: that of one which calls tools.
    """
    if cut is None:
        return reason
    if reason is None or (reason == "length" and any(channel[:1] == (index,) for channel in cut.ends)):
        return called or "stop"
    return reason
