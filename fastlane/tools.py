"""Tool calls while their answer still streams: `tool_calls()` yields them, and `ToolRunner` starts them."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field as dataclass_field, replace
from functools import partial
from typing import Any, overload

import pydantic

from .errors import ConfigurationError, InvalidOutputError
from .protocol.assembly import Assembly, ResponseAssembly, assembly_of, item_key
from .protocol.content import TOOL_INPUTS, Channel
from .protocol.endpoints import CHAT, RESPONSES
from .protocol.fields import field
from .protocol.json_scanner import JsonScanner

Models = Mapping[str, type[pydantic.BaseModel]]
OnEvent = Callable[[Any], object]

# Items of a response that the application runs. Providers run the others themselves.
_RUN_HERE = ("function_call", "custom_tool_call")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call whose arguments are complete."""

    id: str
    """The id that the tool's result must name."""
    name: str
    """The tool's name."""
    arguments: Any = dataclass_field(repr=False)
    """The arguments: an instance of the tool's model if it has one, else the parsed JSON; the text itself for a custom
    tool; None with a `problem`."""
    text: str = dataclass_field(repr=False)
    """The arguments as the model wrote them."""
    index: int
    """Its place in the answer: among the tool calls of a chat message, or the items of a response."""
    choice: int = 0
    """The choice of a chat completion to which the call belongs."""
    problem: str | None = None
    """Why the arguments can't be used: they are cut off, are not JSON, or do not fit the model. Quotes none of them."""


class _Reader:
    """Finds the tool calls in the events of a stream. The iterators below feed it."""

    def __init__(self, models: Models | None, on_event: OnEvent | None) -> None:
        self.assembly: Assembly | None = None
        self._models = _checked_models(models)
        self._on_event = on_event
        self._scanners: dict[Channel, JsonScanner] = {}
        """Of the calls that have begun."""
        self._complete: set[Channel] = set()

    def feed(self, event: Any) -> list[ToolCall]:
        """Return the calls that this event completes."""
        if self._on_event is not None:
            self._on_event(event)
        event = field(event, "chunk") or event  # `chat.completions.stream()` wraps each chunk in an event
        is_chunk = field(event, "choices") is not None
        if self.assembly is None and (is_chunk or str(field(event, "type")).startswith("response.")):
            self.assembly = assembly_of(CHAT if is_chunk else RESPONSES)
        if self.assembly is None or is_chunk == isinstance(self.assembly, ResponseAssembly):
            return []  # another event of that helper
        for delta in self.assembly.take(event):
            if delta.kind == "tool_call":
                self._take(delta.channel, delta.text)
        return [self._tool_call(channel) for channel in self._scanners if self._is_new(channel)]

    def unfinished(self) -> list[ToolCall]:
        """Return the calls that the end of the stream has cut off."""
        left = [channel for channel in self._scanners if channel not in self._complete and self._is_run_here(channel)]
        return [self._tool_call(channel, "the stream ended within them") for channel in left]

    def _take(self, channel: Channel, text: str) -> None:
        if channel in self._complete and text.strip():
            raise InvalidOutputError(
                "The arguments of a tool call went on after their JSON had ended, when the call had been given out as "
                "complete. Start this provider's tools when the answer has ended."
            )
        self._scanners.setdefault(channel, JsonScanner()).feed(text)

    def _is_run_here(self, channel: Channel) -> bool:
        """Whether the application runs the tool. Providers run those of other types themselves."""
        item = self.assembly.items[channel[0]] if isinstance(self.assembly, ResponseAssembly) else None
        return item is None or item.get("type") in _RUN_HERE

    def _is_new(self, channel: Channel) -> bool:
        """Whether a call is complete that was not before."""
        assembly = self.assembly
        if channel in self._complete or not self._is_run_here(channel):
            return False
        if isinstance(assembly, ResponseAssembly):  # its provider says so, of the text or of the item
            return assembly.finished or not assembly.done.isdisjoint((channel, item_key(channel[0])))
        assert assembly is not None
        if assembly.choices[channel[0]].finish_reason is not None:
            return True
        scanner = self._scanners[channel]
        # A custom tool's text may end in any way. Some providers send an empty object before the arguments.
        is_function = scanner.reason == "complete" and "function" in assembly.tool_call(channel)
        return is_function and bool(_parsed(scanner.value, None)[0])

    def _tool_call(self, channel: Channel, problem: str | None = None) -> ToolCall:
        self._complete.add(channel)
        assert self.assembly is not None
        call = self.assembly.tool_call(channel)
        kind = next((kind for kind in TOOL_INPUTS if isinstance(call.get(kind), dict)), None)
        inner = call if kind is None else call[kind]
        is_custom = kind == "custom" or call.get("type") == "custom_tool_call"
        name, text = str(inner.get("name") or ""), str(inner.get("input" if is_custom else "arguments") or "")
        arguments: Any = text
        if problem is None and not is_custom:
            arguments, problem = _parsed(text, self._models.get(name))
        return ToolCall(
            id=str(call.get("call_id") or call.get("id") or ""),
            name=name,
            arguments=None if problem else arguments,
            text=text,
            index=channel[-1],
            choice=0 if isinstance(self.assembly, ResponseAssembly) else channel[0],
            problem=problem and f"The arguments cannot be used: {problem}.",
        )


def _checked_models(models: Models | None) -> Models:
    for name, model in (models or {}).items():
        if not (isinstance(model, type) and issubclass(model, pydantic.BaseModel)):
            raise ConfigurationError(f"models: expected a pydantic model for the tool {name!r}, not {model!r}")
    return models or {}


def _parsed(text: str, model: type[pydantic.BaseModel] | None) -> tuple[Any, str | None]:
    """Return a call's arguments, or None and what is wrong with them."""
    if model is not None:
        try:
            return model.model_validate_json(text), None
        except pydantic.ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)
            places = (".".join(map(str, one["loc"])) or "the whole" for one in wrong)
            return None, f"they do not fit {model.__name__} ({', '.join(dict.fromkeys(places))})"
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return None, "they are not JSON"
    except RecursionError:
        return None, "they are nested too deeply"
    return (arguments, None) if isinstance(arguments, dict) else (None, "they are not a JSON object")


class ToolCallStream(Iterator[ToolCall]):
    """What `tool_calls()` returns for a synchronous stream."""

    def __init__(self, stream: Iterable[Any], models: Models | None, on_event: OnEvent | None) -> None:
        self._reader = _Reader(models, on_event)
        self._calls = self._read(stream)

    def _read(self, stream: Iterable[Any]) -> Iterator[ToolCall]:
        for event in stream:
            yield from self._reader.feed(event)
        yield from self._reader.unfinished()

    def __next__(self) -> ToolCall:
        return next(self._calls)

    def messages(self) -> list[dict[str, Any]]:
        """Return what the answer adds to the conversation, as far as it has come: `messages`, or items of `input`."""
        return _messages(self._reader.assembly)


class AsyncToolCallStream(AsyncIterator[ToolCall]):
    """What `tool_calls()` returns for an asynchronous stream."""

    def __init__(self, stream: AsyncIterable[Any], models: Models | None, on_event: OnEvent | None) -> None:
        self._reader = _Reader(models, on_event)
        self._calls = self._read(stream)

    async def _read(self, stream: AsyncIterable[Any]) -> AsyncIterator[ToolCall]:
        async for event in stream:
            for call in self._reader.feed(event):
                yield call
        for call in self._reader.unfinished():
            yield call

    async def __anext__(self) -> ToolCall:
        return await anext(self._calls)

    def messages(self) -> list[dict[str, Any]]:
        """Return what the answer adds to the conversation, as far as it has come: `messages`, or items of `input`."""
        return _messages(self._reader.assembly)


def _messages(assembly: Assembly | None) -> list[dict[str, Any]]:
    if assembly is None:
        return []
    body = assembly.body()
    found = (
        body["output"] if isinstance(assembly, ResponseAssembly) else [one["message"] for one in body["choices"][:1]]
    )
    return [{name: value for name, value in one.items() if value is not None} for one in found]


@overload
def tool_calls(
    stream: AsyncIterable[Any], models: Models | None = None, *, on_event: OnEvent | None = None
) -> AsyncToolCallStream: ...
@overload
def tool_calls(
    stream: Iterable[Any], models: Models | None = None, *, on_event: OnEvent | None = None
) -> ToolCallStream: ...
def tool_calls(
    stream: Iterable[Any] | AsyncIterable[Any], models: Models | None = None, *, on_event: OnEvent | None = None
) -> ToolCallStream | AsyncToolCallStream:
    """Yield each tool call of a streamed answer as soon as its arguments are complete.

    `stream`: what `chat.completions.create(stream=True)`, `responses.create(stream=True)` or the event stream of their
    `stream()` helpers gives, sync or async. It is read to its end.

    `models`: the pydantic model of a tool's arguments, by the tool's name. Arguments of other tools are parsed JSON.

    `on_event` is called with every event before its tool calls are yielded, for example to show the text.

    Arguments are complete when the provider says so (Responses), or when their JSON object has ended (chat). An empty
    object, and the text of a custom tool, are complete with their answer. Calls come in the order of their completion.

    Raises ConfigurationError for invalid arguments; while it is read, the errors of the stream, and InvalidOutputError
    if arguments go on behind their end.
    """
    if on_event is not None and not callable(on_event):
        raise ConfigurationError(f"on_event: expected a function that takes an event, not {on_event!r}")
    if isinstance(stream, AsyncIterable):
        return AsyncToolCallStream(stream, models, on_event)
    if isinstance(stream, Iterable):
        return ToolCallStream(stream, models, on_event)
    raise ConfigurationError(
        f"tool_calls: expected a stream of openai's events, not {type(stream).__name__}: pass stream=True to create(), "
        "await an async create(), and enter a stream() helper with `with`"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """How one tool call has ended."""

    call: ToolCall
    output: Any = dataclass_field(default=None, repr=False)
    """What the tool returned."""
    error: Exception | None = dataclass_field(default=None, repr=False)
    """What it raised, or what JSON raised for its output; ValueError for a call that was not started: unknown tool, or
    arguments that cannot be used."""
    started_early: bool = False
    """Whether it was started while the answer still streamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTurn:
    """The tool calls of one answer, with their results."""

    results: Sequence[ToolResult]
    """In the order of the calls in the answer."""
    messages: list[dict[str, Any]] = dataclass_field(repr=False)
    """What to add to the conversation for the next call: the answer, and the tools' results. For chat completions
    entries of `messages`, for Responses items of `input`."""


class ToolRunner:
    """Runs the tools of an answer, those that are safe before it has ended.

    `tools`: the function of each tool by name. It gets the arguments by keyword, or the instance of its model, or the
    text of a custom tool. `run()` takes functions, `run_async()` coroutine functions too; functions run in threads.

    `early`: names of the tools that may start while the answer still streams. An answer can still break off, so name
    only tools that change nothing or may run in vain. All others start when the answer has ended.

    `limit`: how many tools run at once.

    If the stream breaks, or its reading is cancelled, tools that wait are not started, coroutines are cancelled, and
    the error goes to the caller. A function that runs in a thread cannot be stopped; its result is dropped.

    Raises ConfigurationError for invalid arguments. A tool's error is kept in its result.
    """

    def __init__(
        self,
        tools: Mapping[str, Callable[..., Any]],
        *,
        early: Collection[str] = (),
        models: Models | None = None,
        limit: int = 8,
    ) -> None:
        for name, tool in tools.items():
            if not callable(tool):
                raise ConfigurationError(f"tools: expected a function for the tool {name!r}, not {tool!r}")
        for what, names in (("early", [early] if isinstance(early, str) else early), ("models", models or {})):
            if unknown := [name for name in names if name not in tools]:
                raise ConfigurationError(f"{what}: expected names of `tools` ({', '.join(tools)}), not {unknown!r}")
        if isinstance(early, str):
            raise ConfigurationError(f"early: expected a collection of names, such as {{{early!r}}}, not {early!r}")
        if not isinstance(limit, int) or limit < 1:
            raise ConfigurationError(f"limit: expected a whole number of 1 or more, not {limit!r}")
        self._tools = dict(tools)
        self._early = frozenset(early)
        self._models = _checked_models(models)
        self._limit = limit

    def run(self, stream: Iterable[Any], *, on_event: OnEvent | None = None) -> ToolTurn:
        """Read a stream to its end, and run its tools. `on_event`: as for `tool_calls()`.

        Raises the errors of the stream, and ConfigurationError for a tool that is a coroutine function.
        """
        if coroutines := [name for name, tool in self._tools.items() if _is_coroutine(tool)]:
            raise ConfigurationError(f"run: the tools {coroutines!r} are coroutine functions: await run_async()")
        calls = ToolCallStream(stream, self._models, on_event)
        pool = ThreadPoolExecutor(self._limit, thread_name_prefix="fastlane tool")
        try:
            late, running = [], []
            for call in calls:
                if self._is_early(call):
                    running.append(pool.submit(copy_context().run, self._run, call, early=True))
                else:
                    late.append(call)
            running += [pool.submit(copy_context().run, self._run, call, early=False) for call in late]
            return _turn(calls.messages(), [one.result() for one in running])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    async def run_async(self, stream: AsyncIterable[Any], *, on_event: OnEvent | None = None) -> ToolTurn:
        """Do as `run()` with an asynchronous stream, and with tools that may be coroutine functions."""
        calls = AsyncToolCallStream(stream, self._models, on_event)
        free = asyncio.Semaphore(self._limit)
        running: list[asyncio.Task[ToolResult]] = []
        try:
            late = []
            async for call in calls:
                if self._is_early(call):
                    running.append(asyncio.create_task(self._run_async(call, free, early=True)))
                else:
                    late.append(call)
            running += [asyncio.create_task(self._run_async(call, free, early=False)) for call in late]
            return _turn(calls.messages(), await asyncio.gather(*running))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _is_early(self, call: ToolCall) -> bool:
        return call.name in self._early and call.problem is None

    def _run(self, call: ToolCall, *, early: bool) -> ToolResult:
        try:
            output = self._tool(call)()
        except Exception as error:  # noqa: BLE001 - it is the tool's result
            return ToolResult(call=call, error=error, started_early=early)
        return ToolResult(call=call, output=output, started_early=early)

    async def _run_async(self, call: ToolCall, free: asyncio.Semaphore, *, early: bool) -> ToolResult:
        async with free:
            is_coroutine = _is_coroutine(self._tools.get(call.name))
            result = None if is_coroutine else await asyncio.to_thread(self._run, call, early=early)
            if result is not None and not inspect.isawaitable(result.output):
                return result
            try:
                output = await (self._tool(call)() if result is None else result.output)
            except Exception as error:  # noqa: BLE001 - it is the tool's result
                return ToolResult(call=call, error=error, started_early=early)
            return ToolResult(call=call, output=output, started_early=early)

    def _tool(self, call: ToolCall) -> Callable[[], Any]:
        """Return the function of a call with its arguments. Raises ValueError for a call that cannot be run."""
        if call.problem is not None:
            raise ValueError(call.problem)
        if call.name not in self._tools:
            raise ValueError(f"There is no tool {call.name!r}, only {', '.join(self._tools)}.")
        given = call.arguments
        return (
            partial(self._tools[call.name], **given)
            if isinstance(given, dict)
            else partial(self._tools[call.name], given)
        )


def _is_coroutine(tool: Any) -> bool:
    called = getattr(tool, "__call__", None)  # noqa: B004 - of an object whose call is a coroutine function
    return inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(called)


def _turn(answer: list[dict[str, Any]], results: list[ToolResult]) -> ToolTurn:
    ordered: list[ToolResult] = []
    messages = []
    for result in sorted(results, key=lambda one: (one.call.choice, one.call.index)):
        try:
            text = _text_of(result)
        except Exception as error:  # noqa: BLE001 - the tool returned what JSON cannot hold
            result = replace(result, error=error)
            text = _text_of(result)
        ordered.append(result)
        if result.call.choice == 0:
            messages.append(_message(result.call.id, text, answer))
    return ToolTurn(results=ordered, messages=answer + messages)


def _text_of(result: ToolResult) -> str:
    output = result.output
    if result.error is not None:
        return f"{type(result.error).__name__}: {result.error}"
    if isinstance(output, pydantic.BaseModel):
        return output.model_dump_json()
    return output if isinstance(output, str) else json.dumps(output, default=str, ensure_ascii=False)


def _message(id_: str, text: str, answer: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what tells the model how a call has ended."""
    kind = next((one["type"] for one in answer if one.get("call_id") == id_), None)
    if kind is None:
        return {"role": "tool", "tool_call_id": id_, "content": text}
    return {"type": f"{kind}_output", "call_id": id_, "output": text}
