"""Chat completions, and legacy completions, as OpenAI writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastlane.emulator._generation import GeneratedChoice
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._reply import CREATED, DONE, NO_EXTRAS, Extras, Tick, TokenUsage

_FINGERPRINT = "fp_emulator"


def compact(value: object) -> str:
    """Return JSON without white space."""
    return json.dumps(value, separators=(",", ":"))


class ChatReply:
    """A chat completion; a `Reply`."""

    def __init__(
        self,
        prompt: GenerationRequest,
        choices: Sequence[GeneratedChoice],
        usage: TokenUsage,
        *,
        number: int,
        tier: str | None,
    ) -> None:
        self._prompt = prompt
        self._choices = choices
        self._usage = usage
        self._call_ids = [f"call_{number:012d}{choice.index:03d}" for choice in choices]
        self._head = {
            "id": f"chatcmpl-{number:012d}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": prompt.model,
            **({} if tier is None else {"service_tier": tier}),
            "system_fingerprint": _FINGERPRINT,
        }
        # OpenAI shows a null usage in every chunk of a stream that will end with one.
        tail = ',"usage":null}' if prompt.include_usage else "}"
        head = compact(self._head)[:-1]
        self._before = [f'data: {head},"choices":[{{"index":{choice.index},"delta":' for choice in choices]
        self._after = f',"logprobs":null,"finish_reason":null}}]{tail}\n\n'

    def _chunk(self, choice: GeneratedChoice, delta: str) -> bytes:
        return f"{self._before[choice.index]}{delta}{self._after}".encode()

    def opening(self) -> bytes:
        """Return the role chunk of every choice."""
        return b"".join(map(self._role_chunk, self._choices))

    def _role_chunk(self, choice: GeneratedChoice) -> bytes:
        content: str | None = None if choice.tool else ""
        return self._chunk(choice, compact({"role": "assistant", "content": content, "refusal": None}))

    def ticks(self) -> Iterator[Tick]:
        """Return one chunk per token; the choices advance together."""
        for at in range(max(choice.tokens for choice in self._choices)):
            data: list[bytes] = []
            reasoning = 0
            for choice in self._choices:
                if at < len(choice.reasoning):
                    reasoning += 1
                    data.append(self._chunk(choice, f'{{"reasoning_content":{json.dumps(choice.reasoning[at])}}}'))
                elif at < choice.tokens:
                    data.append(self._chunk(choice, self._delta(choice, at - len(choice.reasoning))))
            yield Tick(b"".join(data), len(data), reasoning)

    def _delta(self, choice: GeneratedChoice, at: int) -> str:
        piece = choice.pieces[at]
        if choice.tool is None:
            return f'{{"content":{json.dumps(piece)}}}'
        call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
        if at == 0:
            call = {
                "index": 0,
                "id": self._call_ids[choice.index],
                "type": "function",
                "function": {"name": choice.tool, "arguments": piece},
            }
        return compact({"tool_calls": [call]})

    def closing(self, *, usage: bool, done: bool, extras: Extras = NO_EXTRAS) -> bytes:
        """Return the finish chunks, the usage chunk if it was asked for, and [DONE]."""
        parts = [
            self._chunk(choice, "{}").replace(b'"finish_reason":null', f'"finish_reason":"{_finish(choice)}"'.encode())
            for choice in self._choices
        ]
        if usage and self._prompt.include_usage:
            counted = {**self._usage.chat(), **extras.usage}
            last = {**self._head, "choices": [], "usage": counted, **extras.answer}
            parts.append(f"data: {compact(last)}\n\n".encode())
        elif extras.answer:
            parts[-1] = _with_fields(parts[-1], extras.answer)
        if done:
            parts.append(DONE)
        return b"".join(parts)

    def whole(self, *, usage: bool, extras: Extras = NO_EXTRAS) -> bytes:
        """Return the completion object."""
        answer: dict[str, Any] = {
            **self._head,
            "object": "chat.completion",
            "choices": [
                {
                    "index": choice.index,
                    "message": self._message(choice),
                    "logprobs": None,
                    "finish_reason": _finish(choice),
                }
                for choice in self._choices
            ],
        }
        if usage:
            answer["usage"] = {**self._usage.chat(), **extras.usage}
        return compact({**answer, **extras.answer}).encode()

    def _message(self, choice: GeneratedChoice) -> dict[str, Any]:
        text = "".join(choice.pieces)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        if choice.reasoning:
            message["reasoning_content"] = "".join(choice.reasoning)
        if choice.tool:
            message["content"] = None
            message["tool_calls"] = [
                {
                    "id": self._call_ids[choice.index],
                    "type": "function",
                    "function": {"name": choice.tool, "arguments": text},
                }
            ]
        return message


class CompletionReply:
    """A legacy completion; a `Reply`."""

    def __init__(
        self,
        prompt: GenerationRequest,
        choices: Sequence[GeneratedChoice],
        usage: TokenUsage,
        *,
        number: int,
        tier: str | None,
    ) -> None:
        self._prompt = prompt
        self._choices = choices
        self._usage = usage
        self._head = {
            "id": f"cmpl-{number:012d}",
            "object": "text_completion",
            "created": CREATED,
            "model": prompt.model,
            "system_fingerprint": _FINGERPRINT,
        }

    def _choice(self, choice: GeneratedChoice, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": choice.index, "text": text, "logprobs": None, "finish_reason": finish}

    def _event(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        return f"data: {compact({**self._head, 'choices': choices, **more})}\n\n".encode()

    def opening(self) -> bytes:
        """Return nothing: there are no roles."""
        return b""

    def ticks(self) -> Iterator[Tick]:
        """Return one event per token; the choices advance together."""
        for at in range(max(choice.tokens for choice in self._choices)):
            going = [choice for choice in self._choices if at < choice.tokens]
            data = b"".join(
                self._event([self._choice(choice, (*choice.reasoning, *choice.pieces)[at], None)]) for choice in going
            )
            yield Tick(data, len(going), 0)

    def closing(self, *, usage: bool, done: bool, extras: Extras = NO_EXTRAS) -> bytes:
        """Return the finish events, the usage event if it was asked for, and [DONE]."""
        parts = [self._event([self._choice(choice, "", _finish(choice))]) for choice in self._choices]
        if usage and self._prompt.include_usage:
            parts.append(self._event([], usage={**self._usage.chat(), **extras.usage}, **extras.answer))
        elif extras.answer:
            parts[-1] = _with_fields(parts[-1], extras.answer)
        return b"".join([*parts, DONE if done else b""])

    def whole(self, *, usage: bool, extras: Extras = NO_EXTRAS) -> bytes:
        """Return the completion object."""
        choices = [
            self._choice(choice, "".join((*choice.reasoning, *choice.pieces)), _finish(choice))
            for choice in self._choices
        ]
        answer: dict[str, Any] = {**self._head, "choices": choices}
        if usage:
            answer["usage"] = {**self._usage.chat(), **extras.usage}
        return compact({**answer, **extras.answer}).encode()


def _with_fields(event: bytes, fields: Mapping[str, object]) -> bytes:
    """Add fields to an event that is a JSON object."""
    return event.removesuffix(b"}\n\n") + f",{compact(fields)[1:]}\n\n".encode()


def _finish(choice: GeneratedChoice) -> str:
    return choice.finish_reason
