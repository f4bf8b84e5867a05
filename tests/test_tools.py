"""`tool_calls()` and `ToolRunner`, with streams that a client reads."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import openai
import pydantic
import pytest
from hypothesis import given, strategies as st

import fastlane
from fastlane import AsyncOpenAI, OpenAI, ToolCall, ToolRunner, ToolTurn, tool_calls
from tests.prepared_server import LIBRARY, Server
from tests.protocol.drawn import merged, split

MESSAGES: Any = [{"role": "user", "content": "Look."}]
FINISH: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}


def began(index: int, name: str, text: str = "") -> dict[str, Any]:
    """A tool call's first piece."""
    function = {"name": name, "arguments": text}
    return choice(tool_calls=[{"index": index, "id": f"call_{index}", "type": "function", "function": function}])


def more(index: int, text: str) -> dict[str, Any]:
    return choice(tool_calls=[{"index": index, "function": {"arguments": text}}])


def choice(**delta: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": None}


def sent(events: Iterable[dict[str, Any]], failure: str | None = None) -> Server:
    """A server that streams these choices of a chat completion, or events of a response."""
    server = Server()
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [event if "type" in event else {**frame, "choices": [event]} for event in events]
    server.reads = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    if failure is None:
        server.reads.append(b"data: [DONE]\n\n")
    server.failure = failure
    return server


def read(server: Server, use: Callable[[Any], Any], *, asynchronous: bool = False) -> Any:
    """What `use` makes of a stream of this server; of an asynchronous one, what it gives is awaited."""
    is_response = b'"type": "response.' in server.reads[0]
    if not asynchronous:
        with OpenAI(api_key="sk-x", max_retries=0, http_client=LIBRARY.Client(transport=server)) as client:
            if is_response:
                return use(client.responses.create(model="m", input="Look.", stream=True))
            return use(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))

    async def read_async() -> Any:
        http_client = LIBRARY.AsyncClient(transport=server)
        async with AsyncOpenAI(api_key="sk-x", max_retries=0, http_client=http_client) as client:
            if is_response:
                return await use(await client.responses.create(model="m", input="Look.", stream=True))
            return await use(await client.chat.completions.create(model="m", messages=MESSAGES, stream=True))

    return asyncio.run(read_async())


def found(server: Server, *, asynchronous: bool = False, **options: Any) -> list[tuple[int, ToolCall]]:
    """The tool calls of a stream, each with the number of events that had come."""
    events: list[Any] = []

    async def listed_async(stream: Any) -> list[tuple[int, ToolCall]]:
        return [(len(events), call) async for call in tool_calls(stream, on_event=events.append, **options)]

    def listed(stream: Any) -> list[tuple[int, ToolCall]]:
        return [(len(events), call) for call in tool_calls(stream, on_event=events.append, **options)]

    found: list[tuple[int, ToolCall]] = read(
        server, listed_async if asynchronous else listed, asynchronous=asynchronous
    )
    return found


both = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@both
def test_call_is_yielded_when_its_json_is_complete(asynchronous: bool) -> None:
    events = [
        choice(role="assistant", content="I look. "),
        began(0, "look"),
        more(0, '{"at": "the '),
        began(1, "count", "{}"),
        more(0, 'sk\\"}y"}'),
        choice(content="Done."),
        FINISH,
    ]
    calls = found(sent(events), asynchronous=asynchronous)
    assert [(at, call.name, call.id, call.index) for at, call in calls] == [
        (5, "look", "call_0", 0),
        (7, "count", "call_1", 1),
    ]
    assert [call.arguments for _, call in calls] == [{"at": 'the sk"}y'}, {}]
    assert {call.problem for _, call in calls} == {None}


RESPONSE: dict[str, Any] = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}


def item(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"item_{index}", "type": kind, "call_id": f"call_{index}", "status": "in_progress", **fields}


def at(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, "item_id": f"item_{index}", **fields}


@both
def test_call_of_a_response_is_yielded_when_it_is_done(asynchronous: bool) -> None:
    events = [
        {"type": "response.created", "response": RESPONSE},
        at("output_item.added", 0, item=item(0, "function_call", name="look", arguments="")),
        at("output_item.added", 1, item=item(1, "custom_tool_call", name="run", input="")),
        at("function_call_arguments.delta", 0, delta='{"at"'),
        at("custom_tool_call_input.delta", 1, delta="{}"),
        at("function_call_arguments.delta", 0, delta=': "sky"}'),
        at("function_call_arguments.done", 0, arguments='{"at": "sky"}'),
        at("custom_tool_call_input.delta", 1, delta=" ls"),
        at("output_item.added", 2, item=item(2, "mcp_call", name="theirs", arguments="")),
        at("mcp_call_arguments.done", 2, arguments="{}"),
        at("output_item.done", 1, item=item(1, "custom_tool_call", name="run", input="{} ls")),
        {"type": "response.completed", "response": RESPONSE},
    ]
    calls = found(sent(events), asynchronous=asynchronous)
    assert [(at, call.name, call.id, call.arguments) for at, call in calls] == [
        (7, "look", "call_0", {"at": "sky"}),
        (11, "run", "call_1", "{} ls"),
    ]


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[str]]:
    """The choices of a stream whose calls' arguments interleave, and the arguments."""
    values = st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3))
    objects = st.dictionaries(st.text(max_size=5), values, max_size=3)
    texts = [json.dumps(draw(objects), indent=draw(st.sampled_from((None, 1)))) for _ in range(draw(st.integers(1, 4)))]
    streams = [
        [began(index, "look"), *(more(index, piece) for piece in split(draw, text))] for index, text in enumerate(texts)
    ]
    said = [choice(content=piece) for piece in split(draw, draw(st.text(max_size=9)))]
    return [*merged(draw, [*streams, said]), FINISH], texts


@given(interleaved())
def test_yielded_arguments_never_change(drawn: tuple[list[dict[str, Any]], list[str]]) -> None:
    events, texts = drawn
    calls = found(sent(events))
    assert sorted((call.index, call.text) for _, call in calls) == list(enumerate(texts))
    for at, call in calls:
        left = [each for event in events[at:] for each in event["delta"].get("tool_calls", ())]
        assert not "".join(each["function"]["arguments"] for each in left if each["index"] == call.index).strip()


class Look(pydantic.BaseModel):
    at: str


@pytest.mark.parametrize(
    ("text", "finish", "problem"),
    [
        ('{"at": "secret', {**FINISH, "finish_reason": "length"}, "they do not fit Look (the whole)"),
        ('{"at": ["secret"]}', FINISH, "they do not fit Look (at)"),
        ('{"at": "secret', None, "the stream ended within them"),
    ],
)
def test_unusable_arguments_have_a_problem(text: str, finish: Any, problem: str) -> None:
    ((_, call),) = found(sent([began(0, "look"), more(0, text), *([finish] if finish else ())]), models={"look": Look})
    assert (call.arguments, call.problem) == (None, f"The arguments cannot be used: {problem}.")
    assert "secret" not in repr(call)


@pytest.mark.parametrize("text", ['"text"', "[1]", "{]", "[" * 100_000])
def test_arguments_that_are_no_object_have_a_problem(text: str) -> None:
    ((_, call),) = found(sent([began(0, "look", text), FINISH]))
    assert call.arguments is None
    assert call.problem is not None


def test_model_makes_typed_arguments() -> None:
    ((_, call),) = found(sent([began(0, "look", '{"at": "sky"}'), FINISH]), models={"look": Look})
    assert call.arguments == Look(at="sky")


def test_arguments_that_go_on_behind_their_end_are_an_error() -> None:
    with pytest.raises(fastlane.InvalidOutputError, match="went on"):
        found(sent([began(0, "look", '{"at": "sky"}'), more(0, '{"at": "sea"}'), FINISH]))


def test_broken_stream_raises_its_error() -> None:
    with pytest.raises((openai.APIConnectionError, LIBRARY.ReadError)):
        found(sent([began(0, "look", "{")], failure="ReadError"))


def turn(runner: ToolRunner, server: Server, *, asynchronous: bool) -> ToolTurn:
    run = runner.run_async if asynchronous else runner.run
    made: ToolTurn = read(server, run, asynchronous=asynchronous)
    return made


TWO = [began(0, "look", '{"at": "sky"}'), began(1, "book", '{"at": "sea"}'), more(1, " "), FINISH]


@both
def test_results_and_messages_are_in_the_order_of_the_calls(asynchronous: bool) -> None:
    def look(at: str) -> Any:
        looked.wait(30)
        return {"seen": at}

    def book(at: str) -> Any:
        looked.set()
        raise LookupError(at)

    looked = threading.Event()
    runner = ToolRunner({"look": look, "book": book}, early=["look"])
    made = turn(runner, sent([*TWO[:2], began(2, "fly", "{}"), FINISH]), asynchronous=asynchronous)
    assert [(one.call.name, one.started_early) for one in made.results] == [
        ("look", True),
        ("book", False),
        ("fly", False),
    ]
    assert [type(one.error) for one in made.results] == [type(None), LookupError, ValueError]
    answer, *said = made.messages
    assert [one["id"] for one in answer["tool_calls"]] == ["call_0", "call_1", "call_2"]
    assert said == [
        {"role": "tool", "tool_call_id": "call_0", "content": '{"seen": "sky"}'},
        {"role": "tool", "tool_call_id": "call_1", "content": "LookupError: sea"},
        {"role": "tool", "tool_call_id": "call_2", "content": "ValueError: There is no tool 'fly', only look, book."},
    ]


@both
def test_result_that_json_cannot_hold_is_an_error(asynchronous: bool) -> None:
    made = turn(
        ToolRunner({"look": lambda at: {(1, 2): at}, "book": lambda at: at}), sent(TWO), asynchronous=asynchronous
    )
    assert [type(one.error) for one in made.results] == [TypeError, type(None)]
    assert [said["content"].partition(":")[0] for said in made.messages[1:]] == ["TypeError", "sea"]


def test_function_that_returns_a_coroutine_is_awaited() -> None:
    async def look(at: str) -> str:
        return at.upper()

    tool = lambda at: look(at)  # noqa: E731, PLW0108
    made = turn(ToolRunner({"look": tool, "book": tool}, early=["look"]), sent(TWO), asynchronous=True)
    assert [one.output for one in made.results] == ["SKY", "SEA"]


def test_messages_of_a_response_are_items_of_its_input() -> None:
    done = item(0, "function_call", name="look", arguments='{"at": "sky"}')
    events = [
        {"type": "response.created", "response": RESPONSE},
        at("output_item.added", 0, item={**done, "arguments": ""}),
        at("output_item.done", 0, item=done),
        {"type": "response.completed", "response": {**RESPONSE, "output": [done]}},
    ]
    made = turn(ToolRunner({"look": lambda at: at}, early=["look"]), sent(events), asynchronous=False)
    assert made.messages == [done, {"type": "function_call_output", "call_id": "call_0", "output": "sky"}]


def test_only_early_tools_start_before_the_answer_has_ended() -> None:
    started: list[str] = []

    async def look(at: str) -> None:
        started.append(at)

    async def use(stream: Any) -> None:
        async def until_finished() -> Any:
            async for event in stream:
                if event.choices[0].finish_reason:
                    await asyncio.sleep(0)  # the tool's turn, if it has started
                    assert started == ["sky"]
                yield event

        await ToolRunner({"look": look, "book": look}, early=["look"]).run_async(until_finished())

    read(sent(TWO), use, asynchronous=True)
    assert started == ["sky", "sea"]


@both
def test_no_more_tools_run_at_once_than_allowed(asynchronous: bool) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def look(at: str) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    events = [*(began(index, "look", '{"at": "sky"}') for index in range(9)), FINISH]
    turn(ToolRunner({"look": look}, early=["look"], limit=2), sent(events), asynchronous=asynchronous)
    assert most == 2


def test_broken_stream_cancels_its_tools() -> None:
    ended: list[str] = []

    async def look(at: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(at)

    async def use(stream: Any) -> None:
        async def slow() -> Any:
            async for event in stream:
                yield event
                await asyncio.sleep(0)

        with pytest.raises((openai.APIConnectionError, LIBRARY.ReadError)):
            await ToolRunner({"look": look}, early=["look"]).run_async(slow())
        assert ended == ["sky"]

    read(sent([TWO[0], choice(content="x")], failure="ReadError"), use, asynchronous=True)


def test_broken_stream_leaves_waiting_functions_unstarted() -> None:
    begun, may_end = threading.Event(), threading.Event()
    started: list[str] = []

    def look(at: str) -> None:
        started.append(at)
        begun.set()
        may_end.wait(30)

    def wait_for_the_first(event: Any) -> None:
        if event.choices[0].delta.content:
            assert begun.wait(30)

    events = [began(0, "look", '{"at": "sky"}'), began(1, "look", '{"at": "sea"}'), choice(content="x")]
    runner = ToolRunner({"look": look}, early=["look"], limit=1)
    with pytest.raises((openai.APIConnectionError, LIBRARY.ReadError)):
        read(sent(events, failure="ReadError"), lambda stream: runner.run(stream, on_event=wait_for_the_first))
    may_end.set()
    for thread in threading.enumerate():
        if thread.name.startswith("fastlane tool"):
            thread.join(30)
    assert started == ["sky"]


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_results_go_back_to_the_provider(arguments: dict[str, Any], endpoint: str) -> None:
    schema = {"type": "object", "properties": {"at": {"enum": ["sky", "sea"]}}, "required": ["at"]}
    functions: list[Any] = [{"name": name, "parameters": schema} for name in ("look", "book")]
    runner = ToolRunner(
        {"look": lambda look: look.at, "book": lambda look: look.at}, models={"look": Look, "book": Look}
    )
    conversation: list[Any] = list(MESSAGES)
    with OpenAI(**arguments, default_headers={"x-emulator-tool-call": "look&book"}) as client:
        for _ in range(2):
            if endpoint == "chat":
                tools: Any = [{"type": "function", "function": function} for function in functions]
                stream: Any = client.chat.completions.create(model="m", messages=conversation, tools=tools, stream=True)
            else:
                tools = [{"type": "function", **function} for function in functions]
                stream = client.responses.create(model="m", input=conversation, tools=tools, stream=True)
            made = runner.run(stream)
            assert [one.output in ("sky", "sea") for one in made.results] == [True, True]
            conversation += made.messages


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool_calls(3), "expected a stream"),  # type: ignore[call-overload]
        (lambda: tool_calls([], {"look": dict}), "expected a pydantic model"),  # type: ignore[dict-item]
        (lambda: tool_calls([], on_event=3), "on_event"),  # type: ignore[call-overload]
        (lambda: ToolRunner({"look": 3}), "expected a function"),  # type: ignore[dict-item]
        (lambda: ToolRunner({"look": print}, early=["lok"]), "lok"),
        (lambda: ToolRunner({"look": print}, early="look"), "collection"),
        (lambda: ToolRunner({"look": print}, models={"book": Look}), "book"),
        (lambda: ToolRunner({"look": print}, limit=0), "limit"),
        (lambda: ToolRunner({"look": coroutine}).run([]), "run_async"),
    ],
)
def test_invalid_arguments_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(fastlane.ConfigurationError, match=message):
        make()
