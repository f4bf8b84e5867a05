"""The calls of the matrix: clients of both makes, one call with each, and what came of it."""

from __future__ import annotations

import asyncio
import functools
import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import openai

import fastlane
from fastlane import (
    BoundedOutput,
    Call,
    CallRecord,
    Connection,
    ContextTrimming,
    Hedging,
    Play,
    PromptCache,
    RequestEncoding,
    Routing,
    Session,
    Stage,
    Urgency,
)
from fastlane._clock import now_ns
from fastlane.catalog import Catalog, CatalogModel
from fastlane.engine.session import CallOutcome
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.providers import ProviderFacts, load
from tests.faults.scripts import CONTENT
from tests.faults.table import Cell, Fault
from tests.waiting import Form

KEY = "sk-nobody-may-see-this-key"
PROMPT = "nobody-may-read-this-prompt"


@dataclass
class _Allowed:
    """How the clients of this process try again."""

    retries: int = 2


ALLOWED = _Allowed()
_SCHEMA = {
    "type": "object",
    "properties": {"river": {"type": "string"}},
    "required": ["river"],
    "additionalProperties": False,
}
# Above the water mark of `ContextTrimming`, and still above what `RequestEncoding` sends as it is when it is cut.
_TURNS = [
    {"role": role, "content": f"{PROMPT} turn {turn}. " + f"The river of line {turn} flows on and on. " * 45}
    for turn in range(6)
    for role in ("user", "assistant")
]
MESSAGES: list[Any] = [
    {"role": "system", "content": f"{PROMPT}. Answer with an object."},
    *_TURNS,
    {"role": "user", "content": f"{PROMPT}: name a river."},
]


@dataclass(frozen=True, slots=True)
class CountsSessions(Play):
    """Counts the sessions that are opened and closed."""

    stage: ClassVar[Stage] = Stage.SHAPE
    opened: list[Session] = field(default_factory=list, repr=False, compare=False)
    closed: list[Session] = field(default_factory=list, repr=False, compare=False)

    def open(self, call: Call) -> Session:
        self.opened.append(CountedSession(self.closed))
        return self.opened[-1]


class CountedSession(Session):
    """One that notes when it is closed."""

    def __init__(self, closed: list[Session]) -> None:
        self._closed = closed

    def close(self, outcome: CallOutcome) -> None:
        """Note it."""
        self._closed.append(self)


@dataclass
class Came:
    """What came of one call."""

    error: BaseException | None = None
    result: Any = None
    """Of a whole answer the object, of a stream its events: as plain data."""
    events: int = 0
    seconds: float = 0.0
    sent: int = 0
    """Attempts of the stock client."""


def request_of(cell: Cell, fault: Fault, tag: str, *, model: str) -> dict[str, Any]:
    """What is asked."""
    headers = {"x-emulator-tag": tag, "x-emulator-output-text": CONTENT, "x-emulator-token-ms": "1"}
    if fault.emulator:
        headers["x-emulator-fault"] = fault.emulator
    schema = {"name": "river", "schema": _SCHEMA, "strict": True}
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if cell.stream else {}
    return {
        "model": model,
        "messages": MESSAGES,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "extra_headers": headers,
        **options,
    }


def options_of(fault: Fault, base_url: str) -> dict[str, Any]:
    """What both clients are made with."""
    connect = fault.read_s if fault.waits else 20.0
    timeout = openai.Timeout(20.0, connect=connect, read=fault.read_s)
    return {"api_key": KEY, "base_url": base_url, "timeout": timeout, "max_retries": ALLOWED.retries}


@functools.cache
def _takes_all() -> ProviderFacts:
    """Facts of a provider that takes gzip."""
    fact = (
        '{value = ["json", "json+gzip"], source = "https://example.com", checked = 2026-11-22, evidence = "measured"}'
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "takes_gzip.toml")
        path.write_text(f'name = "Takes gzip"\n[encodings]\n"/chat/completions" = {fact}\n')
        return load(path)


def plays_of(cell: Cell, fault: Fault, base_url: str) -> tuple[list[Play], CountsSessions]:
    """The plays of a cell's client, and the one among them that counts."""
    counts = CountsSessions()
    if cell.plays == "off":
        return [counts], counts
    connection = Connection(http2="require" if cell.protocol == "HTTP/2" else "never")
    if cell.plays == "default":
        return [connection, PromptCache(), counts], counts
    model = CatalogModel(
        name="m",
        model="m",
        first_token_s=((1_000, 0.05),),
        tokens_per_s=100.0,
        endpoints=("/chat/completions",),
        capabilities=frozenset({"json", "json_strict", "tools"}),
    )
    # A second attempt for answers that do not come, and for none that a busy machine makes late.
    hedging = Hedging(budget=1.0, minimum_delay_s=fault.read_s / 2)
    hedging.memory.budget.earn(100_000)
    at = Upstream("m", base_url.removesuffix("/v1"))
    for _ in range(20):
        seen = Sighting(model=at.model, origin=at.origin, uncached_tokens=10.0, first_token_s=0.005)
        hedging.memory.lateness(at).note(seen, now_ns())
    return [
        Routing(Catalog(models=(model,)), exploration=0.0),
        hedging,
        connection,
        RequestEncoding(facts=_takes_all(), min_bytes=2_000),
        PromptCache(),
        ContextTrimming(high_water_tokens=1_500),
        BoundedOutput(),
        Urgency(),
        counts,
    ], counts


def _plain(result: Any) -> Any:
    """An answer as data, without what each answer of the embedded provider has of its own, and what the prompt took."""
    if not isinstance(result, openai.BaseModel):
        return repr(result)
    data = result.model_dump()
    for name in ("id", "created", "system_fingerprint"):
        data.pop(name, None)
    if data.get("usage"):
        usage = data["usage"]
        data["usage"] = None if usage.get("estimated") else usage["completion_tokens"]
    return [type(result).__name__, data]


def ask(client: Any, request: dict[str, Any], came: Came) -> None:
    """One call of a client, which waits for it."""
    began = now_ns()
    try:
        result = client.chat.completions.create(**request)
        if request.get("stream"):
            came.result = []
            for each in result:
                came.result.append(_plain(each))
                came.events += 1
        else:
            came.result = _plain(result)
    except Exception as error:  # noqa: BLE001 - what is raised is what is looked at
        came.error = error
    finally:
        came.seconds = (now_ns() - began) / 1e9


class _CountingClient(openai.DefaultHttpxClient):
    sent = 0

    def send(self, *args: Any, **options: Any) -> Any:
        self.sent += 1
        return super().send(*args, **options)


class _AsyncCountingClient(openai.DefaultAsyncHttpxClient):
    sent = 0

    async def send(self, *args: Any, **options: Any) -> Any:
        self.sent += 1
        return await super().send(*args, **options)


def stock_call(cell: Cell, fault: Fault, base_url: str, tag: str) -> Came:
    """The call with openai's own client."""
    came, form = Came(), Form(cell.form)
    counting = (_AsyncCountingClient if form.asynchronous else _CountingClient)(http2=cell.protocol == "HTTP/2")
    with form.make(openai, **options_of(fault, base_url), http_client=counting) as client:
        ask(client, request_of(cell, fault, tag, model="m"), came)
    form.close()
    came.sent = counting.sent
    return came


@dataclass
class Ours:
    """What our client leaves behind of one call."""

    came: Came = field(default_factory=Came)
    calls: tuple[CallRecord, ...] = ()
    hooked: list[CallRecord] = field(default_factory=list)
    opened: list[Session] = field(default_factory=list)
    closed: list[Session] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)
    """What an event loop complained about, and tasks that were left."""


def our_call(cell: Cell, fault: Fault, base_url: str, tag: str) -> Ours:
    """The call with ours."""
    ours = Ours()
    model = "fastlane/auto" if cell.plays == "all" else "m"
    plays, counts = plays_of(cell, fault, base_url)
    ours.opened, ours.closed = counts.opened, counts.closed
    request = request_of(cell, fault, tag, model=model)
    options = options_of(fault, base_url) | {
        "only_plays": plays,
        "on_call_end": [ours.hooked.append],
        "raise_play_errors": True,
    }
    form = Form(cell.form)
    # Without plays the HTTP library's own transport carries the call.
    if cell.plays == "off":
        library = openai.DefaultAsyncHttpxClient if form.asynchronous else openai.DefaultHttpxClient
        options["http_client"] = library(http2=cell.protocol == "HTTP/2")
    if form.asynchronous:
        form.run(_listen(ours))
    with form.make(fastlane, **options) as client:
        ask(client, request, ours.came)
    ours.calls = client.calls
    if form.asynchronous:
        form.run(_look_for_tasks(ours))
    form.close()
    return ours


async def _listen(ours: Ours) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: ours.noise.append(f"event loop: {context['message']}"))


async def _look_for_tasks(ours: Ours) -> None:
    for _ in range(200):
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0.05)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    ours.noise += [f"task left: {getattr(task.get_coro(), '__qualname__', '?')}" for task in left]


@contextmanager
def retrying(*, quickly: bool) -> Iterator[None]:
    """For the short form: one retry, after a tenth of the pause; what `retry-after` says stays."""
    base: Any = importlib.import_module("openai._base_client")
    before = base.INITIAL_RETRY_DELAY, ALLOWED.retries
    if quickly:
        base.INITIAL_RETRY_DELAY, ALLOWED.retries = before[0] / 10, 1
    try:
        yield
    finally:
        base.INITIAL_RETRY_DELAY, ALLOWED.retries = before
