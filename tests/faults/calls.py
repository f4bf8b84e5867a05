"""The calls of the fault matrix: one with the stock client and one with ours, and what came of each."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns as now_ns
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
    Unbroken,
    Urgency,
)
from fastlane.catalog import Catalog, CatalogModel
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.providers import ProviderFacts, load
from tests.faults.scripts import CONTENT
from tests.faults.table import Cell, Fault
from tests.waiting import Form

KEY = "sk-nobody-may-see-this-key"
PROMPT = "nobody-may-read-this-prompt"
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


@dataclass
class Outcome:
    """What came of one call."""

    error: BaseException | None = None
    result: Any = None
    """A whole answer, or the events of a stream, as plain data."""
    seconds: float = 0.0
    retries: int = 0

    def __str__(self) -> str:
        if self.error is None:
            return "answer"
        status = getattr(self.error, "status_code", None)
        return type(self.error).__name__ + ("" if status is None else f" {status}")


@dataclass
class OurCall(Outcome):
    """What our client leaves behind, too."""

    hedges: int = 0
    calls: tuple[CallRecord, ...] = ()
    hooked: list[CallRecord] = field(default_factory=list)
    opened: list[Session] = field(default_factory=list)
    closed: list[Session] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Unwanted complaints, and what was left behind."""
    logged: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CountsSessions(Play):
    """Counts the sessions that are opened and closed."""

    stage: ClassVar[Stage] = Stage.SHAPE
    call: OurCall = field(repr=False, compare=False)

    def open(self, call: Call) -> Session:
        class Counted(Session):
            def close(_, outcome: Any) -> None:  # noqa: N805 - the play is self
                self.call.closed.append(_)

        self.call.opened.append(Counted())
        return self.call.opened[-1]


@functools.cache
def _takes_gzip() -> ProviderFacts:
    fact = '{value = ["json", "json+gzip"], source = "https://a.test", checked = 2026-11-22, evidence = "measured"}'
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "takes_gzip.toml")
        path.write_text(f'name = "Takes gzip"\n[encodings]\n"/chat/completions" = {fact}\n')
        return load(path)


def _all_plays(fault: Fault, base_url: str) -> list[Play]:
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
        RequestEncoding(facts=_takes_gzip(), min_bytes=2_000),
        PromptCache(),
        ContextTrimming(high_water_tokens=1_500),
        BoundedOutput(),
        Urgency(),
    ]


def _plain(result: Any) -> Any:
    """Return an answer as data, without its ids and what the prompt took."""
    if not isinstance(result, openai.BaseModel):
        return repr(result)
    data = result.model_dump(exclude={"id", "created", "system_fingerprint"})
    if usage := data.get("usage"):
        data["usage"] = None if usage.get("estimated") else usage["completion_tokens"]
    return [type(result).__name__, data]


def _ask(client: Any, cell: Cell, fault: Fault, tag: str, model: str, outcome: Outcome) -> None:
    headers = {"x-emulator-tag": tag, "x-emulator-output-text": CONTENT, "x-emulator-token-ms": "1"}
    if fault.emulator:
        headers["x-emulator-fault"] = fault.emulator
    schema = {"name": "river", "schema": _SCHEMA, "strict": True}
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if cell.stream else {}
    began = now_ns()
    try:
        result = client.chat.completions.create(
            model=model,
            messages=MESSAGES,
            response_format={"type": "json_schema", "json_schema": schema},
            extra_headers=headers,
            **options,
        )
        if cell.stream:
            outcome.result = []
            for each in result:
                outcome.result.append(_plain(each))
        else:
            outcome.result = _plain(result)
    except Exception as error:  # noqa: BLE001 - what is raised is what is looked at
        outcome.error = error
    finally:
        outcome.seconds = (now_ns() - began) / 1e9


def _options(fault: Fault, base_url: str, retries: int) -> dict[str, Any]:
    timeout = openai.Timeout(20.0, connect=fault.read_s if fault.waits else 20.0, read=fault.read_s)
    return {"api_key": KEY, "base_url": base_url, "timeout": timeout, "max_retries": retries}


def _library(form: Form, protocol: str) -> Any:
    library = openai.DefaultAsyncHttpxClient if form.asynchronous else openai.DefaultHttpxClient
    return library(http2=protocol == "HTTP/2")


def stock_call(cell: Cell, fault: Fault, base_url: str, tag: str, retries: int) -> Outcome:
    """Call with openai's own client."""
    outcome, form = Outcome(), Form(cell.form)
    http_client = _library(form, cell.protocol)
    sent: list[None] = []
    send = http_client.send

    def counting(*args: Any, **options: Any) -> Any:
        sent.append(None)
        return send(*args, **options)

    http_client.send = counting
    with form.make(openai, **_options(fault, base_url, retries), http_client=http_client) as client:
        _ask(client, cell, fault, tag, "m", outcome)
    form.close()
    outcome.retries = max(len(sent) - 1, 0)
    return outcome


def our_call(cell: Cell, fault: Fault, base_url: str, tag: str, retries: int) -> OurCall:
    """Call with our client."""
    ours, form = OurCall(), Form(cell.form)
    plays: list[Play] = [CountsSessions(ours)]
    options = {**_options(fault, base_url, retries), "on_call_end": [ours.hooked.append], "raise_play_errors": True}
    if cell.plays == "off":  # Without plays the HTTP library's own transport carries the call.
        options["http_client"] = _library(form, cell.protocol)
    else:
        plays.append(Connection(http2="require" if cell.protocol == "HTTP/2" else "never"))
        if cell.plays == "unbroken":
            plays.append(Unbroken(min_stall_s=0.5, max_stall_s=0.5))
        else:
            plays += _all_plays(fault, base_url) if cell.plays == "all" else [PromptCache()]

    async def listen() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: ours.complaints.append(f"event loop: {context['message']}"))

    async def look_for_tasks() -> None:
        for _ in range(200):
            if len(asyncio.all_tasks()) == 1:
                return
            await asyncio.sleep(0.05)
        ours.complaints.append("tasks are left")

    if form.asynchronous:
        form.run(listen())
    made_of: Any = fastlane
    if cell.plays == "installed":
        made_of, settings = openai, {name: options.pop(name) for name in ("on_call_end", "raise_play_errors")}
        fastlane.install(only_plays=plays, **settings)
    else:
        options["only_plays"] = plays
    with form.make(made_of, **options) as client:
        fastlane.uninstall()
        _ask(client, cell, fault, tag, "fastlane/auto" if cell.plays == "all" else "m", ours)
    ours.calls = client.calls
    if form.asynchronous:
        form.run(look_for_tasks())
    form.close()
    attempts = [each.kind for record in ours.calls for each in record.attempts]
    ours.retries = sum(kind in ("first", "retry", "fallback") for kind in attempts) - 1
    ours.hedges = attempts.count("hedge")
    return ours
