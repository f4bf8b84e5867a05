"""Blocks of streamed calls on several sides in turn, and what each takes of the caller's thread and of the process."""

from __future__ import annotations

import gc
import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple

import httpx2
import openai

from benchmarks._prepared import MODEL, event_of, stream_of
from benchmarks._transport import wishes
from fastlane._clock import cpu_ns, now_ns, thread_cpu_ns
from fastlane.transport.protocols.exchange import PHASES, Opening, Phases

MESSAGES: list[Any] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Is water wet?"},
]
CONNECTION: dict[str, Any] = {"base_url": "http://prepared.invalid/v1", "api_key": "none", "max_retries": 0}


_USAGE: dict[str, Any] = {
    "prompt_tokens": 2_048,
    "completion_tokens": 200,
    "total_tokens": 2_248,
    "prompt_tokens_details": {"cached_tokens": 1_920},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def _reads(chunks: int) -> tuple[bytes, ...]:
    """A streamed answer, one event in each read, that ends with its usage."""
    *content, _ = stream_of(chunks)
    usage = event_of({}).replace(b'"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":null}]', _TOLD)
    return (*content, event_of({}, "stop"), usage, b"data: [DONE]\n\n")


_TOLD = f'"choices":[],"usage":{json.dumps(_USAGE)}'.encode()


_OPENING = Opening(
    dns_started_ns=None,
    dns_ended_ns=None,
    connect_started_ns=0,
    connect_ended_ns=1,
    tls_started_ns=1,
    tls_ended_ns=2,
    local_address="127.0.0.1:50000",
    peer_address="127.0.0.1:443",
    alpn="h2",
    tls_version="TLSv1.3",
)


class _Reads(httpx2.SyncByteStream):
    def __init__(self, reads: tuple[bytes, ...], phases: Phases | None) -> None:
        self._reads = reads
        self._phases = phases

    def __iter__(self) -> Iterator[bytes]:
        if self._phases is None:
            return iter(self._reads)
        return self._stamped(self._phases)

    def _stamped(self, phases: Phases) -> Iterator[bytes]:
        stamps = phases.data_ns = array("q")
        for read in self._reads:
            phases.chunk_ns = now_ns()
            stamps.append(phases.chunk_ns)
            yield read
        phases.answer_ended_ns = now_ns()


class StampedTransport(httpx2.BaseTransport):
    """Answers every request at once with the same reads, and stamps them as fastlane's own warm transport does."""

    def __init__(self, chunks: int) -> None:
        self._reads = _reads(chunks)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a synchronous client."""
        phases: Phases | None = request.extensions.get(PHASES)
        if phases is not None:
            phases.begin(now_ns())
            phases.opening = _OPENING
            phases.reused = True
            phases.http_version = "HTTP/2"
            phases.round_trip_time_ns = 40_000_000
            phases.send_started_ns = now_ns()
            phases.send_ended_ns = now_ns()
            phases.first_byte_ns = now_ns()
        headers = {"content-type": "text/event-stream", "x-request-id": "req_1"}
        return httpx2.Response(200, headers=headers, stream=_Reads(self._reads, phases))


def streamed_call(client: openai.OpenAI) -> None:
    """Read one streamed answer to its end."""
    options: dict[str, Any] = {"stream_options": {"include_usage": True}, "temperature": 0.2, "max_tokens": 400}
    for _chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, **options):
        pass


def connected_call(chunks: int) -> Callable[[openai.OpenAI], None]:
    """Make a call of a client that asks the embedded provider for so many chunks, each as soon as it can be sent."""
    headers = wishes(output_tokens=chunks)

    def call(client: openai.OpenAI) -> None:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}, "extra_headers": headers}
        for _chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, **options):
            pass

    return call


@dataclass(frozen=True, slots=True)
class Side:
    """One way to make the same calls."""

    client: openai.OpenAI
    begin: Callable[[], object]
    """Called before each block, outside of what is measured."""
    flush: Callable[[], object]
    """Has everything exported that the block left behind: inside of what the process takes, not the thread."""
    around: Callable[[Callable[[], None]], None] | None = None
    """Makes the call where it is not made as it is."""


class Block(NamedTuple):
    """Microseconds that a call took in one block."""

    thread: float
    process: float


class Taken(NamedTuple):
    """What calls of one side took more than calls of the base, once for each block."""

    thread: list[float]
    process: list[float]
    base_thread: list[float]
    """What the base's own took."""


def take(
    base: Side,
    sides: Mapping[str, Side],
    *,
    calls: int,
    rounds: int,
    call: Callable[[openai.OpenAI], None] = streamed_call,
) -> dict[str, Taken]:
    """Run blocks of calls on each side, between two of the base, and in another order in every round.

    A block is compared with the mean of its neighbours, so that what drifts drifts out.
    """
    taken = {name: Taken([], [], []) for name in sides}
    order = list(sides)
    random = Random(0)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(-_WARM_UPS, rounds):
            random.shuffle(order)
            before = _block(base, calls, call)
            for name in order:
                one = _block(sides[name], calls, call)
                after = _block(base, calls, call)
                if number >= 0:
                    taken[name].thread.append(one.thread - (before.thread + after.thread) / 2)
                    taken[name].process.append(one.process - (before.process + after.process) / 2)
                    taken[name].base_thread.append(before.thread)
                before = after
            gc.collect(0 if number % 10 else 2)
            _block(base, calls, call)
    finally:
        gc.enable()
        gc.unfreeze()
    return taken


_WARM_UPS = 2


def _block(side: Side, calls: int, call: Callable[[openai.OpenAI], None]) -> Block:
    around = side.around

    def one() -> None:
        call(side.client)

    each = one if around is None else partial(around, one)
    side.begin()
    each()  # which makes whatever is made with the first call after a change
    side.flush()
    process = cpu_ns()
    each()  # what a flush has put into the processor's caches is no part of a call
    thread = thread_cpu_ns()
    for _ in range(calls):
        each()
    thread = thread_cpu_ns() - thread
    side.flush()
    return Block(thread / 1e3 / calls, (cpu_ns() - process) / 1e3 / (calls + 1))


@contextmanager
def stamped_client(kind: type[openai.OpenAI], chunks: int) -> Iterator[openai.OpenAI]:
    """Make a client whose answers are there at once."""
    with kind(**CONNECTION, http_client=httpx2.Client(transport=StampedTransport(chunks))) as client:
        yield client
