"""Making one call as the plan has it, leaving it as the plan has it, and looking at what came."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import pydantic

import fastlane
from fastlane.emulator._endpoints import vector
from tests.soak.plan import Op

MODEL = "soak"
DIMENSIONS = 8
EMULATOR_SEED = 7

ENDS = (
    "answer",  # the whole answer came, and it is this request's
    "part",  # the stream was left, and what came of it is this request's
    "cut",  # the stream ended in good order and before its end
    "misread",  # an answer that holds nobody's nonce
    "foreign",  # an answer that is not this request's
    "status", "connection", "timeout", "malformed", "invalid",  # an error of openai's types
    "cancelled", "gave_up",
    "closed",  # the stream was read when somebody else had closed it
    "unexpected",  # any other error
)  # fmt: skip


class Echo(pydantic.BaseModel):
    """What a structured answer looks like."""

    echo: str
    mark: int


@dataclass(frozen=True, slots=True)
class Seen:
    """How a call ended for the application."""

    end: str
    detail: str = ""


def judged(op: Op, got: str, *, whole: bool) -> Seen:
    """Return what a text is of a call's answer: all of it, a part, or somebody else's."""
    if got == op.text:
        return Seen("answer" if whole else "part")
    if op.text.startswith(got):
        return Seen("cut" if whole else "part")
    if "soak<" not in got and (op.fault or "").startswith("misparse"):
        return Seen("misread")
    # Which nonce it was is told; what else it said, is not needed.
    return Seen("foreign", got[:80])


def error_of(error: BaseException) -> Seen:
    """Return what kind of end an error is."""
    detail = f"{type(error).__module__}.{type(error).__name__}"
    match error:
        case httpx2.StreamError():
            return Seen("closed", detail)
        case asyncio.CancelledError():
            return Seen("cancelled", detail)
        case openai.APITimeoutError():
            return Seen("timeout", detail)
        case openai.APIStatusError():
            return Seen("status", f"{detail} {error.status_code}")
        # Who reads the bytes itself gets the errors of those who bring them, as with openai's client.
        case httpx2.TimeoutException():
            return Seen("timeout", detail)
        case httpx2.TransportError():
            return Seen("connection", detail)
        case openai.APIConnectionError():
            return Seen("connection", f"{detail}: {type(error.__cause__).__name__}")
        case openai.APIResponseValidationError() | json.JSONDecodeError() | pydantic.ValidationError():
            return Seen("malformed", detail)
        case fastlane.InvalidOutputError() | openai.LengthFinishReasonError():
            return Seen("invalid", f"{detail}: {error}"[:200])
        case TimeoutError():
            return Seen("gave_up", detail)
        case _:
            return Seen("unexpected", f"{detail}: {error}"[:300])


def _headers(op: Op) -> dict[str, str]:
    headers = {"x-emulator-tag": op.nonce}
    if op.fault is not None:
        headers["x-emulator-fault"] = op.fault
    if op.manner is not None:
        headers["x-emulator-manner"] = op.manner
    if op.prefill_ms is not None:
        headers["x-emulator-prefill-ms"] = str(op.prefill_ms)
    return headers


_TOOL = {
    "type": "function",
    "function": {"name": "note", "parameters": {**Echo.model_json_schema(), "additionalProperties": False}},
}


def _request(client: Any, op: Op, model: str) -> tuple[Any, dict[str, Any]]:
    """Return the method of the client that makes the call, and its arguments."""
    if op.max_retries != 2:
        client = client.with_options(max_retries=op.max_retries)
    ask: dict[str, Any] = {"model": model, "extra_headers": _headers(op), "timeout": op.timeout_s}
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
        case "chat":
            got = answer.choices[0].message.content
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
            raise AssertionError(op.api)
    return judged(op, got or "", whole=True)


class Hold:
    """A cycle that only the garbage collector takes apart."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.itself = self


def ask(client: Any, op: Op, model: str) -> Seen:
    """Make a call with a synchronous client. Raises nothing."""
    try:
        with fastlane.user_action(op.action):
            return _asked(client, op, model)
    except Exception as error:  # noqa: BLE001 - every end is an end
        return error_of(error)


def _asked(client: Any, op: Op, model: str) -> Seen:
    method, arguments = _request(client, op, model)
    if op.api == "chat_bytes":
        with method(**arguments) as answer:
            return _answer(op, answer.read())
    if not op.stream:
        return _answer(op, method(**arguments))
    if op.api in ("chat_events", "responses_events"):
        with method(**arguments) as stream:
            return _read(op, stream)
    stream = method(**arguments)
    if op.leave == "elsewhere":
        closer = threading.Timer(op.delay_s, stream.close)
        closer.start()
        try:
            return _read(op, stream)
        finally:
            closer.join()
    if op.leave == "with":
        with stream:
            return _read(op, stream)
    if op.leave == "cycle":
        return _read(op, Hold(stream).held)
    seen = _read(op, stream)
    if op.leave == "close":
        stream.close()
    return seen


def _read(op: Op, stream: Any) -> Seen:
    leaves = op.leave in ("close", "with", "drop", "cycle")
    got: list[str] = []
    if not leaves or op.after:
        for number, event in enumerate(stream, 1):
            got.append(_piece(op, event))
            if leaves and number >= op.after:
                break
    return judged(op, "".join(got), whole=not leaves and op.leave != "elsewhere")


async def aask(client: Any, op: Op, model: str) -> Seen:
    """Make a call with an asynchronous client. Raises nothing but a cancellation that the plan does not know."""
    if op.leave != "cancel":
        return await _aended(client, op, model)
    task = asyncio.create_task(_aasked(client, op, model))
    # Without this the task would be cancelled before it has begun, and there would be no call.
    await asyncio.sleep(0)
    await asyncio.sleep(op.delay_s)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError as error:
        return error_of(error)
    except Exception as error:  # noqa: BLE001 - every end is an end
        return error_of(error)


async def _aended(client: Any, op: Op, model: str) -> Seen:
    try:
        if op.leave == "gave_up":
            async with asyncio.timeout(op.delay_s + 0.001):
                return await _aasked(client, op, model)
        return await _aasked(client, op, model)
    except Exception as error:  # noqa: BLE001 - every end is an end
        return error_of(error)


async def _aasked(client: Any, op: Op, model: str) -> Seen:
    with fastlane.user_action(op.action):
        method, arguments = _request(client, op, model)
        if op.api == "chat_bytes":
            async with method(**arguments) as answer:
                return _answer(op, await answer.read())
        if not op.stream:
            return _answer(op, await method(**arguments))
        if op.api in ("chat_events", "responses_events"):
            async with method(**arguments) as stream:
                return await _aread(op, stream)
        stream = await method(**arguments)
        if op.leave == "with":
            async with stream:
                return await _aread(op, stream)
        if op.leave == "cycle":
            return await _aread(op, Hold(stream).held)
        seen = await _aread(op, stream)
        if op.leave == "close":
            await stream.close()
        return seen


async def _aread(op: Op, stream: Any) -> Seen:
    leaves = op.leave in ("close", "with", "drop", "cycle")
    got: list[str] = []
    if not leaves or op.after:
        number = 0
        async for event in stream:
            number += 1
            got.append(_piece(op, event))
            if leaves and number >= op.after:
                break
    return judged(op, "".join(got), whole=not leaves)
