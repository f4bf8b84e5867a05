"""An answer in the forms in which OpenAI writes it: chat completions, legacy completions and responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeAlias

from fastlane.emulator._generation import GeneratedChoice
from fastlane.emulator._prompt import Body, GenerationRequest

# The answers of one seed are equal byte for byte, so that they carry this moment instead of the present one.
CREATED = 1_780_000_000
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
MALFORMED = b'data: {"id": "broken", "choices": [{"index": 0, "delta": {"content": "hal\n\n'
# What a response repeats of its request, and what it says where the request said nothing.
_ECHOED: Mapping[str, Any] = {
    **dict.fromkeys(("instructions", "max_output_tokens", "previous_response_id", "user")),
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
# The event of an item's deltas, and what else stands in it.
_DELTAS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "reasoning": ("response.reasoning_text", {"content_index": 0}),
    "message": ("response.output_text", {"content_index": 0, "logprobs": []}),
    "function_call": ("response.function_call_arguments", {}),
}


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The tokens of one answer, all choices together; `output` includes `reasoning`, `prompt` includes `cached`."""

    prompt: int
    cached: int
    output: int
    reasoning: int
    cache_written: int = 0
    """Tokens that were not in the cache and are from now on; only responses tell them."""
    cached_path: str = "standard"

    @classmethod
    def of(cls, choices: Sequence[GeneratedChoice], **counts: Any) -> TokenUsage:
        reasoning = sum(len(choice.reasoning) for choice in choices)
        return cls(output=sum(choice.tokens for choice in choices), reasoning=reasoning, **counts)

    def chat(self) -> dict[str, Any]:
        more = dict.fromkeys(("audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"), 0)
        return self._shown("prompt", {"audio_tokens": 0}, "completion", more)

    def responses(self) -> dict[str, Any]:
        return self._shown("input", {"cache_write_tokens": self.cache_written}, "output", {})

    def _shown(self, prompt: str, more_prompt: Body, output: str, more_output: Body) -> dict[str, Any]:
        shown: dict[str, Any] = {
            f"{prompt}_tokens": self.prompt,
            f"{prompt}_tokens_details": {"cached_tokens": self.cached, **more_prompt},
            f"{output}_tokens": self.output,
            f"{output}_tokens_details": {"reasoning_tokens": self.reasoning, **more_output},
            "total_tokens": self.prompt + self.output,
        }
        if self.cached_path != "standard":
            del shown[f"{prompt}_tokens_details"]
        *above, last = self.cached_path.split(".")
        if above:
            inner = shown
            for name in above[1:]:
                inner = inner.setdefault(name, {})
            inner[last] = self.cached
        return shown


def _pieces_of_calls(choice: GeneratedChoice) -> list[tuple[int, tuple[str, ...]]]:
    """Return the calls of tools that have begun, by their number, with the pieces of their arguments."""
    pieces: dict[int, list[str]] = {}
    for owner, piece in zip(choice.owners, choice.pieces, strict=True):
        pieces.setdefault(owner, []).append(piece)
    return [(owner, tuple(pieces[owner])) for owner in sorted(pieces)]


def _suffix(owner: int) -> str:
    return f"_{owner}" if owner else ""


class Tick(NamedTuple):
    data: bytes
    tokens: int
    reasoning_tokens: int


class ChatReply:
    def __init__(
        self, prompt: GenerationRequest, choices: Sequence[GeneratedChoice], usage: TokenUsage, number: int, tier: str
    ) -> None:
        self._prompt, self._choices, self._usage, self._number = prompt, choices, usage, number
        self._head: dict[str, Any] = {
            "created": CREATED,
            "model": prompt.model,
            "system_fingerprint": "fp_emulator",
            **self._names(tier),
        }

    def _names(self, tier: str) -> dict[str, Any]:
        """Return the fields of every chunk that a legacy completion has others of."""
        return {"id": f"chatcmpl-{self._number:012d}", "object": "chat.completion.chunk", "service_tier": tier}

    def _event(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        return f"data: {compact({**self._head, 'choices': choices, **more})}\n\n".encode()

    def ticks(self) -> Iterator[Tick]:
        """Return one event per token; the choices advance together."""
        for at in range(max(choice.tokens for choice in self._choices)):
            going = [choice for choice in self._choices if at < choice.tokens]
            reasoning = sum(at < len(choice.reasoning) for choice in going)
            yield Tick(b"".join(self._token(choice, at) for choice in going), len(going), reasoning)

    def closing(self, *, usage: bool, done: bool) -> bytes:
        # OpenAI shows a null usage in every chunk of a stream that will end with one.
        null = {"usage": None} if self._prompt.include_usage else {}
        parts = [self._event([self._last(choice)], **null) for choice in self._choices]
        if usage and self._prompt.include_usage:
            parts.append(self._event([], usage=self._usage.chat()))
        return b"".join([*parts, DONE if done else b""])

    def whole(self, *, usage: bool) -> bytes:
        answer = {**self._head, "object": self._head["object"].removesuffix(".chunk")}
        answer["choices"] = [self._whole(choice) for choice in self._choices]
        if usage:
            answer["usage"] = self._usage.chat()
        return compact(answer).encode()

    def opening(self) -> bytes:
        """Return what comes before the first token: the role chunks."""
        roles = (
            {"role": "assistant", "content": None if each.tools else "", "refusal": None} for each in self._choices
        )
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
        if not choice.tools:
            return self._chunk(choice, f'{{"content":{json.dumps(piece)}}}')
        owner = choice.owners[at]
        is_first = choice.owners.index(owner) == at
        call = self._call(choice, owner, piece) if is_first else {"function": {"arguments": piece}}
        return self._chunk(choice, compact({"tool_calls": [{"index": owner, **call}]}))

    def _call(self, choice: GeneratedChoice, owner: int, arguments: str) -> dict[str, Any]:
        call_id = f"call_{self._number:012d}{choice.index:03d}{_suffix(owner)}"
        return {"id": call_id, "type": "function", "function": {"name": choice.tools[owner], "arguments": arguments}}

    def _last(self, choice: GeneratedChoice) -> dict[str, Any]:
        return {"index": choice.index, "delta": {}, "logprobs": None, "finish_reason": choice.finish_reason}

    def _whole(self, choice: GeneratedChoice) -> dict[str, Any]:
        text = "".join(choice.pieces)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        if choice.reasoning:
            message["reasoning_content"] = "".join(choice.reasoning)
        if choice.tools:
            calls = [self._call(choice, owner, "".join(pieces)) for owner, pieces in _pieces_of_calls(choice)]
            message |= {"content": None, "tool_calls": calls}
        return {"index": choice.index, "message": message, "logprobs": None, "finish_reason": choice.finish_reason}


class CompletionReply(ChatReply):
    def _names(self, tier: str) -> dict[str, Any]:
        return {"id": f"cmpl-{self._number:012d}", "object": "text_completion"}

    def opening(self) -> bytes:
        return b""

    def _choice(self, choice: GeneratedChoice, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": choice.index, "text": text, "logprobs": None, "finish_reason": finish}

    def _token(self, choice: GeneratedChoice, at: int) -> bytes:
        return self._event([self._choice(choice, (*choice.reasoning, *choice.pieces)[at], None)])

    def _last(self, choice: GeneratedChoice) -> dict[str, Any]:
        return self._choice(choice, "", choice.finish_reason)

    def _whole(self, choice: GeneratedChoice) -> dict[str, Any]:
        return self._choice(choice, "".join((*choice.reasoning, *choice.pieces)), choice.finish_reason)


@dataclass(frozen=True, slots=True)
class _Item:
    kind: str
    id: str
    index: int
    pieces: tuple[str, ...]
    fields: Mapping[str, Any]
    """What its kind has beside id, type, status and text."""
    status: str

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def shown(self, *, begun: bool = True) -> dict[str, Any]:
        """Return it as it is at its end, or before its first piece."""
        status = self.status if begun else "in_progress"
        item = {"id": self.id, "type": self.kind, "status": status, **self.fields}
        if self.kind == "function_call":
            return {**item, "arguments": self.text if begun else ""}
        return {**item, "content": [self.part(self.text)] if begun else []}

    def part(self, text: str) -> dict[str, Any]:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponsesReply:
    """A response. It has no [DONE]: its last event says how it ended."""

    def __init__(
        self, prompt: GenerationRequest, choices: Sequence[GeneratedChoice], usage: TokenUsage, number: int, tier: str
    ) -> None:
        choice = choices[0]
        self._usage = usage
        self._sequence = 0
        self._status = "incomplete" if choice.finish_reason == "length" else "completed"
        self._items: list[_Item] = []
        if choice.reasoning:
            fields: dict[str, Any] = {"summary": []}
            self._items.append(_Item("reasoning", f"rs_{number:012d}", 0, choice.reasoning, fields, "completed"))
        if choice.pieces and not choice.tools:
            fields = {"role": "assistant"}
            self._items.append(
                _Item("message", f"msg_{number:012d}", len(self._items), choice.pieces, fields, self._status)
            )
        for owner, pieces in _pieces_of_calls(choice) if choice.tools else ():
            id_ = f"{number:012d}{_suffix(owner)}"
            fields = {"call_id": f"call_{id_}", "name": choice.tools[owner]}
            self._items.append(_Item("function_call", f"fc_{id_}", len(self._items), pieces, fields, self._status))
        given = {name: prompt.body[name] for name in _ECHOED if prompt.body.get(name) is not None}
        self.id = f"resp_{number:012d}"
        self._base: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": CREATED,
            "background": bool(prompt.body.get("background")),
            "error": None,
            "model": prompt.model,
            "service_tier": tier,
            **_ECHOED,
            **given,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: {compact(event)}\n\n".encode()

    def opening(self) -> bytes:
        begun = {**self._base, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def ticks(self) -> Iterator[Tick]:
        """Return one delta event per token, the first and last of an item with the events around it."""
        for item in self._items:
            before, after = self._around_deltas(item)
            for at, piece in enumerate(item.pieces):
                # In the order of sending, because each event takes the next number.
                data = self._begin(item) if at == 0 else b""
                data += f"{before}{self._sequence}{after}{json.dumps(piece)}}}\n\n".encode()
                self._sequence += 1
                if at == len(item.pieces) - 1:
                    data += self._end(item)
                yield Tick(data, 1, int(item.kind == "reasoning"))

    def _begin(self, item: _Item) -> bytes:
        data = self._event("response.output_item.added", output_index=item.index, item=item.shown(begun=False))
        if item.kind == "message":
            where = {"item_id": item.id, "output_index": item.index, "content_index": 0}
            data += self._event("response.content_part.added", part=item.part(""), **where)
        return data

    def _around_deltas(self, item: _Item) -> tuple[str, str]:
        """Return the text before and after the number of an event: written once, because it is needed per token."""
        kind, more = _DELTAS[item.kind]
        where = compact({"item_id": item.id, "output_index": item.index, **more})[1:-1]
        return f'event: {kind}.delta\ndata: {{"type":"{kind}.delta","sequence_number":', f',{where},"delta":'

    def _end(self, item: _Item) -> bytes:
        kind, more = _DELTAS[item.kind]
        where = {"item_id": item.id, "output_index": item.index}
        if item.kind == "function_call":
            data = self._event(f"{kind}.done", name=item.fields["name"], arguments=item.text, **where)
        else:
            data = self._event(f"{kind}.done", text=item.text, **where, **more)
        if item.kind == "message":
            data += self._event("response.content_part.done", part=item.part(item.text), content_index=0, **where)
        return data + self._event("response.output_item.done", output_index=item.index, item=item.shown())

    def _finished(self, *, usage: bool) -> dict[str, Any]:
        return {
            **self._base,
            "status": self._status,
            "incomplete_details": {"reason": "max_output_tokens"} if self._status == "incomplete" else None,
            "output": [item.shown() for item in self._items],
            "usage": self._usage.responses() if usage else None,
        }

    def closing(self, *, usage: bool, done: bool) -> bytes:
        """Return the event that says how the response ended; `done` False leaves it out, as its kind of [DONE]."""
        return self._event(f"response.{self._status}", response=self._finished(usage=usage)) if done else b""

    def whole(self, *, usage: bool) -> bytes:
        return compact(self._finished(usage=usage)).encode()


class StoredResponse(NamedTuple):
    """A response that is generated in the background, whether its events are read or not."""

    prompt: GenerationRequest
    events: list[tuple[int, int, bytes, int]]
    """When each comes into being, its number, its bytes, its tokens."""

    @classmethod
    def of(cls, prompt: GenerationRequest, reply: ResponsesReply, at_ns: int, next_gap: Callable[[], int]) -> Self:
        events: list[tuple[int, int, bytes, int]] = []

        def add(data: bytes, tokens: int) -> None:
            for part in data.split(b"\n\n")[:-1]:
                is_delta = b".delta\n" in part
                events.append((at_ns, len(events), part + b"\n\n", tokens if is_delta else 0))

        add(reply.opening(), 0)
        for tick in reply.ticks():
            add(tick.data, tick.tokens)
            at_ns += next_gap()
        add(reply.closing(usage=True, done=True), 0)
        return cls(prompt, events)


Reply: TypeAlias = ChatReply | CompletionReply | ResponsesReply
"""One answer, streamed (`opening`, `ticks`, `closing`) or `whole`; pure."""
