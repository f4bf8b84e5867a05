"""Making one call as the plan has it, leaving it as the plan has it, and looking at what came."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from inspect import isawaitable
from typing import Any, NamedTuple

import httpx2
import openai
import pydantic

import fastlane
from fastlane.emulator._endpoints import vector
from tests.soak.plan import EVENTS, Op

MODEL = "soak"
DIMENSIONS = 8
EMULATOR_SEED = 7
_OVER = object()

ENDS = (
    "answer",  # the whole answer came, and it is this request's
    "part",  # the stream was left, and what came of it is this request's
    "cut",  # the stream ended in good order and before its end
    "misread",  # an answer that holds no nonce
    "foreign",  # an answer that is not this request's
    "status", "connection", "timeout", "malformed", "invalid",  # an error of openai's types
    "cancelled", "gave_up",
    "closed",  # the stream was read when another thread had closed it
    "unexpected",  # any other error
)  # fmt: skip


class Echo(pydantic.BaseModel):
    """What a structured answer looks like."""

    echo: str
    mark: int


class Seen(NamedTuple):
    """How a call ended for the application."""

    end: str
    detail: str = ""


def judged(op: Op, got: str, *, whole: bool) -> Seen:
    """Return what a text is of a call's answer: all of it, a part, or another call's."""
    if got == op.text:
        return Seen("answer" if whole else "part")
    if op.text.startswith(got):
        return Seen("cut" if whole else "part")
    if "soak<" not in got and (op.fault or "").startswith("misparse"):
        return Seen("misread")
    return Seen("foreign", got[:80])


def error_of(error: BaseException) -> Seen:
    """Return what kind of end an error is."""
    detail = f"{type(error).__module__}.{type(error).__name__}"
    match error:
        case httpx2.StreamError():
            return Seen("closed", detail)
        case asyncio.CancelledError():
            return Seen("cancelled", detail)
        # Who reads the bytes itself gets the errors of those who bring them, as with openai's client.
        case openai.APITimeoutError() | httpx2.TimeoutException():
            return Seen("timeout", detail)
        case openai.APIStatusError():
            return Seen("status", f"{detail} {error.status_code}")
        case openai.APIConnectionError() | httpx2.TransportError():
            return Seen("connection", f"{detail}: {type(error.__cause__).__name__}")
        case openai.APIResponseValidationError() | json.JSONDecodeError() | pydantic.ValidationError():
            return Seen("malformed", detail)
        case fastlane.InvalidOutputError() | openai.LengthFinishReasonError():
            return Seen("invalid", f"{detail}: {error}"[:200])
        case TimeoutError():
            return Seen("gave_up", detail)
        case _:
            return Seen("unexpected", f"{detail}: {error}"[:300])


_TOOL = {
    "type": "function",
    "function": {"name": "note", "parameters": {**Echo.model_json_schema(), "additionalProperties": False}},
}


def _request(client: Any, op: Op, model: str) -> tuple[Any, dict[str, Any]]:
    """Return the method of the client that makes the call, and its arguments."""
    if op.max_retries != 2:
        client = client.with_options(max_retries=op.max_retries)
    headers = {"tag": op.nonce, "fault": op.fault, "manner": op.manner, "prefill-ms": op.prefill_ms}
    given = {f"x-emulator-{name}": str(value) for name, value in headers.items() if value is not None}
    ask: dict[str, Any] = {"model": model, "extra_headers": given, "timeout": op.timeout_s}
    if op.deterministic and op.api != "embeddings":
        ask["temperature"] = 0
    messages = [{"role": "system", "content": "Say it again."}, {"role": "user", "content": op.text}]
    chat, responses = client.chat.completions, client.responses
    match op.api:
        case "chat":
            return chat.create, {**ask, "messages": messages, "stream": op.stream}
        case "chat_parse":
            return chat.parse, {**ask, "messages": messages, "response_format": Echo}
        case "chat_events":
            return chat.stream, {**ask, "messages": messages}
        case "chat_raw":
            return chat.with_raw_response.create, {**ask, "messages": messages}
        case "chat_bytes":
            return chat.with_streaming_response.create, {**ask, "messages": messages}
        case "tool":
            named = {"type": "function", "function": {"name": "note"}}
            return chat.create, {**ask, "messages": messages, "tools": [_TOOL], "tool_choice": named}
        case "responses":
            return responses.create, {**ask, "input": op.text, "stream": op.stream, "store": False}
        case "responses_parse":
            return responses.parse, {**ask, "input": op.text, "text_format": Echo, "store": False}
        case "responses_events":
            return responses.stream, {**ask, "input": op.text, "store": False}
        case "completions":
            return client.completions.create, {**ask, "prompt": op.text, "stream": op.stream, "max_tokens": 8_000}
        case "embeddings":
            return client.embeddings.create, {**ask, "input": [op.text], "dimensions": DIMENSIONS}


def _piece(op: Op, event: Any) -> str:
    """Return the text that an event brings."""
    if op.api in ("responses", "responses_events"):
        return event.delta if event.type == "response.output_text.delta" else ""
    if op.api == "chat_events":
        return event.delta if event.type == "content.delta" else ""
    if not event.choices:
        return ""
    return (event.choices[0].text if op.api == "completions" else event.choices[0].delta.content) or ""


def _answer(op: Op, answer: Any) -> Seen:
    """Judge an answer that was not streamed."""
    if op.api == "embeddings":
        packed = vector(f"{EMULATOR_SEED}:{MODEL}:{op.text!r}", DIMENSIONS)
        wanted = list(struct.unpack(f"<{DIMENSIONS}f", packed))
        return Seen("answer") if list(answer.data[0].embedding) == wanted else Seen("foreign", "another's vector")
    match op.api:
        case "chat_raw":
            got = answer.parse().choices[0].message.content
        case "chat_bytes":
            got = json.loads(answer)["choices"][0]["message"]["content"]
        case "chat_parse":
            got = answer.choices[0].message.parsed.echo
        case "tool":
            calls = answer.choices[0].message.tool_calls
            got = json.loads(calls[0].function.arguments)["echo"] if calls else answer.choices[0].message.content
        case "responses":
            got = answer.output_text
        case "responses_parse":
            got = answer.output_parsed.echo
        case "completions":
            got = answer.choices[0].text
        case _:
            got = answer.choices[0].message.content
    return judged(op, got or "", whole=True)


class Hold:
    """A cycle that only the garbage collector takes apart."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.itself = self


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine of a synchronous client, which never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a synchronous client's call waited for an event loop")


async def settled(value: Any) -> Any:
    """Wait for what an asynchronous client returns, and return what a synchronous one does."""
    return await value if isawaitable(value) else value


async def ask(client: Any, op: Op, model: str) -> Seen:
    """Make a call with a client of either kind. Raises nothing but a cancellation that the plan does not know."""
    try:
        if op.leave == "cancel":
            task = asyncio.create_task(_asked(client, op, model))
            # Without this the task would be cancelled before it has begun, and there would be no call.
            await asyncio.sleep(0)
            await asyncio.sleep(op.delay_s)
            task.cancel()
            return await task
        if op.leave == "gave_up":
            async with asyncio.timeout(op.delay_s + 0.001):
                return await _asked(client, op, model)
        return await _asked(client, op, model)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and op.leave != "cancel":
            raise
        return error_of(error)


async def _asked(client: Any, op: Op, model: str) -> Seen:
    with fastlane.user_action(op.action):
        method, arguments = _request(client, op, model)
        async with AsyncExitStack() as stack:

            async def entered(manager: Any) -> Any:
                if hasattr(manager, "__enter__"):
                    return stack.enter_context(manager)
                return await stack.enter_async_context(manager)

            if op.api == "chat_bytes":
                answer = await entered(method(**arguments))
                return _answer(op, await settled(answer.read()))
            if op.api in EVENTS:
                return await _read(op, await entered(method(**arguments)))
            stream = await settled(method(**arguments))
            if not op.stream:
                return _answer(op, stream)
            if op.leave == "with":
                await entered(stream)
            if op.leave == "elsewhere":
                closer = threading.Timer(op.delay_s, stream.close)
                closer.start()
                stack.callback(closer.join)
            if op.leave == "cycle":
                stream = Hold(stream).held
            seen = await _read(op, stream)
            if op.leave == "close":
                await settled(stream.close())
            return seen


async def _read(op: Op, stream: Any) -> Seen:
    leaves = op.leave in ("close", "with", "drop", "cycle")
    got: list[str] = []
    if not leaves or op.after:
        # Not by a generator of our own: it would hold a stream that is dropped.
        is_async = hasattr(stream, "__aiter__")
        events: Any = aiter(stream) if is_async else iter(stream)
        while (event := await anext(events, _OVER) if is_async else next(events, _OVER)) is not _OVER:
            got.append(_piece(op, event))
            if leaves and len(got) >= op.after:
                break
    return judged(op, "".join(got), whole=not leaves and op.leave != "elsewhere")
