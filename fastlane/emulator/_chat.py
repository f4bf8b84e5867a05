"""Chat completions, and legacy completions, as OpenAI writes them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from fastlane.emulator._generation import GeneratedChoice
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._reply import CREATED, DONE, Tick, TokenUsage, compact


class _Completion(ABC):
    """What both kinds of completions share; a `GeneratedReply`."""

    def __init__(
        self,
        prompt: GenerationRequest,
        choices: Sequence[GeneratedChoice],
        usage: TokenUsage,
        *,
        number: int,
        tier: str,
    ) -> None:
        self._prompt = prompt
        self._choices = choices
        self._usage = usage
        self._number = number
        self._head: dict[str, Any] = {
            "created": CREATED,
            "model": prompt.model,
            "system_fingerprint": "fp_emulator",
            **self._names(tier),
        }

    @abstractmethod
    def _names(self, tier: str) -> dict[str, Any]:
        """Return the fields of every chunk that differ between the kinds."""

    @abstractmethod
    def _token(self, choice: GeneratedChoice, at: int) -> bytes:
        """Return the event of one token."""

    @abstractmethod
    def _last(self, choice: GeneratedChoice) -> dict[str, Any]:
        """Return the choice of the event that says why a choice ended."""

    @abstractmethod
    def _whole(self, choice: GeneratedChoice) -> dict[str, Any]:
        """Return a choice of an answer that is not streamed."""

    def _event(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        return f"data: {compact({**self._head, 'choices': choices, **more})}\n\n".encode()

    def ticks(self) -> Iterator[Tick]:
        """Return one event per token; the choices advance together."""
        for at in range(max(choice.tokens for choice in self._choices)):
            going = [choice for choice in self._choices if at < choice.tokens]
            reasoning = sum(at < len(choice.reasoning) for choice in going)
            yield Tick(b"".join(self._token(choice, at) for choice in going), len(going), reasoning)

    def closing(self, *, usage: bool, done: bool) -> bytes:
        """Return the finish events, the usage event if it was asked for, and [DONE]."""
        # OpenAI shows a null usage in every chunk of a stream that will end with one.
        null = {"usage": None} if self._prompt.include_usage else {}
        parts = [self._event([self._last(choice)], **null) for choice in self._choices]
        if usage and self._prompt.include_usage:
            parts.append(self._event([], usage=self._usage.chat()))
        return b"".join([*parts, DONE if done else b""])

    def whole(self, *, usage: bool) -> bytes:
        """Return the completion object."""
        answer = {**self._head, "object": self._head["object"].removesuffix(".chunk")}
        answer["choices"] = [self._whole(choice) for choice in self._choices]
        if usage:
            answer["usage"] = self._usage.chat()
        return compact(answer).encode()


class ChatReply(_Completion):
    """A chat completion."""

    def _names(self, tier: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self._number:012d}", "object": "chat.completion.chunk", "service_tier": tier}

    def opening(self) -> bytes:
        roles = ({"role": "assistant", "content": None if each.tool else "", "refusal": None} for each in self._choices)
        return b"".join(map(self._chunk, self._choices, map(compact, roles)))

    @cached_property
    def _around(self) -> tuple[str, str]:
        """The text before and after the index and the delta of a chunk, which is needed once per token."""
        tail = ',"usage":null}' if self._prompt.include_usage else "}"
        return (
            f'data: {compact(self._head)[:-1]},"choices":[{{"index":',
            f',"logprobs":null,"finish_reason":null}}]{tail}',
        )

    def _chunk(self, choice: GeneratedChoice, delta: str) -> bytes:
        before, after = self._around
        return f'{before}{choice.index},"delta":{delta}{after}\n\n'.encode()

    def _token(self, choice: GeneratedChoice, at: int) -> bytes:
        if at < len(choice.reasoning):
            return self._chunk(choice, f'{{"reasoning_content":{json.dumps(choice.reasoning[at])}}}')
        at -= len(choice.reasoning)
        piece = choice.pieces[at]
        if choice.tool is None:
            return self._chunk(choice, f'{{"content":{json.dumps(piece)}}}')
        call = self._call(choice, piece) if at == 0 else {"function": {"arguments": piece}}
        return self._chunk(choice, compact({"tool_calls": [{"index": 0, **call}]}))

    def _call(self, choice: GeneratedChoice, arguments: str) -> dict[str, Any]:
        call_id = f"call_{self._number:012d}{choice.index:03d}"
        return {"id": call_id, "type": "function", "function": {"name": choice.tool, "arguments": arguments}}

    def _last(self, choice: GeneratedChoice) -> dict[str, Any]:
        return {"index": choice.index, "delta": {}, "logprobs": None, "finish_reason": choice.finish_reason}

    def _whole(self, choice: GeneratedChoice) -> dict[str, Any]:
        text = "".join(choice.pieces)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        if choice.reasoning:
            message["reasoning_content"] = "".join(choice.reasoning)
        if choice.tool:
            message |= {"content": None, "tool_calls": [self._call(choice, text)]}
        return {"index": choice.index, "message": message, "logprobs": None, "finish_reason": choice.finish_reason}


class CompletionReply(_Completion):
    """A legacy completion."""

    def _names(self, tier: str) -> dict[str, Any]:
        return {"id": f"cmpl-{self._number:012d}", "object": "text_completion"}

    def opening(self) -> bytes:
        """Return nothing: there are no roles."""
        return b""

    def _choice(self, choice: GeneratedChoice, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": choice.index, "text": text, "logprobs": None, "finish_reason": finish}

    def _token(self, choice: GeneratedChoice, at: int) -> bytes:
        return self._event([self._choice(choice, (*choice.reasoning, *choice.pieces)[at], None)])

    def _last(self, choice: GeneratedChoice) -> dict[str, Any]:
        return self._choice(choice, "", choice.finish_reason)

    def _whole(self, choice: GeneratedChoice) -> dict[str, Any]:
        return self._choice(choice, "".join((*choice.reasoning, *choice.pieces)), choice.finish_reason)
