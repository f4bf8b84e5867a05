"""The requests of a run, what its processes send to each other (all of it can be pickled), and how answers are read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from fastlane.errors import FastlaneError

from ..._clock import now_ns
from ...protocol.content import message_kind
from ...records.record import CallRecord
from ..load import Due
from ..recorded import Cell, Sample, SampleKey
from ..workloads import Turn, Workload, salted, salted_tools


class RunFailedError(FastlaneError):
    """A run that gave no usable figures: the message says what happened. It is the last message of a worker."""


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request for a worker to send: at its intended time, or at once if it has none."""

    place: SampleKey
    body: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def arguments(self) -> dict[str, Any]:
        headers = {"extra_headers": self.headers} if self.headers else {}
        return {**self.body, "stream": True, **headers}


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's request has ended; its Sample comes once the worker has time for it."""

    tag: str


@dataclass(frozen=True, slots=True)
class BeginCell:
    """Order a worker to collect garbage and then probe itself. The worker sends it back when it has begun."""


@dataclass(frozen=True, slots=True)
class EndCell:
    """Order a worker to send the samples that it has kept, and its Vitals since BeginCell."""

    cell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The first message of a worker: its client was made; see ArmInfo."""

    client: str
    plays: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMaker:
    model: str
    limit_field: str = "max_completion_tokens"
    embedded: bool = False
    seed: int = 0
    max_output_tokens: int | None = None

    def of_block(self, cell: Cell, due: Due, *, shard: int) -> ScheduledRequest:
        block, turn = due.block, due.block.turn
        replay = f"{cell.name}/{block.replay}"
        if cell.caching_forbidden:
            replay += f"/{turn.number}"
        return self._request(
            turn,
            replay=replay,
            draw=f"{cell.name}/{block.lane}/{block.number}",
            arm=due.arm,
            tag=f"{cell.order}/{due.arm}/{block.lane}/{block.number}",
            cell=cell.name,
            shard=shard,
            lane=block.lane,
            block=block.number,
            position=due.position,
            turn=turn.number,
            intended_ns=due.intended_ns,
        )

    def unmeasured(
        self, workload: Workload, arm: str, *, shard: int, cell: Cell | None = None, number: int = 0
    ) -> ScheduledRequest:
        """Return the first request of an arm's process, or with a cell, a request that warms the cell up."""
        if cell is None:
            name, tag = "cold", f"{arm}/cold" + (f"/{shard}" if shard else "")
        else:
            name = f"warm-up/{shard}/{number}"
            tag = f"{cell.order}/{arm}/{name}"
        replay = f"{cell.name if cell else ''}/{name}"
        return self._request(
            workload.conversations[0].turns[0],
            replay=replay,
            draw=replay,
            arm=arm,
            tag=tag,
            cell=cell.name if cell else "",
            shard=shard,
            block=-1,
            turn=0,
            part="warm-up" if cell else "cold",
        )

    def _request(self, asked: Turn, *, replay: str, draw: str, arm: str, tag: str, **place: Any) -> ScheduledRequest:
        tokens = asked.answer_tokens
        if self.max_output_tokens is not None:
            tokens = min(tokens, self.max_output_tokens)
        line = salt(self.seed, arm, replay)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": salted(asked.messages, line),
            self.limit_field: tokens,
            "stream_options": {"include_usage": True},
            **asked.fields,
        }
        if asked.tools:
            body["tools"] = salted_tools(asked.tools, line)
        least = asked.least_answer_tokens
        key = SampleKey(
            arm=arm,
            tag=tag,
            conversation=asked.conversation,
            asked_output_tokens=tokens,
            least_output_tokens=None if least is None else min(least, tokens),
            meant_input_tokens=asked.input_tokens,
            **place,
        )
        headers: Mapping[str, str] = {}
        if self.embedded:
            # The same draw for all arms of a block: they meet the provider in the same state.
            luck = int.from_bytes(hashlib.blake2b(f"{self.seed}/{draw}".encode(), digest_size=6).digest())
            headers = {
                "x-emulator-tag": tag,
                "x-emulator-output-tokens": str(tokens),
                "x-emulator-draw": str(luck),
            }
        return ScheduledRequest(key, body, headers)


def salt(seed: int, arm: str, replay: str) -> str:
    """Return the first line of an arm's prompts in one conversation: as long for every arm, equal for every turn.

    Without it, the arm that sends a request first would fill the provider's prefix cache for the others.
    """
    digest = hashlib.blake2b(f"{seed}/{arm}/{replay}".encode(), digest_size=8).hexdigest()
    return f"Session {digest}."


_STAMPS: Final = (
    "issued_ns", "response_ns", "first_event_ns", "first_content_ns", "token_ns", "ended_ns", "finish_reason",
)  # fmt: skip
_LONGEST: Final = 400
_QUOTED: Final = 24
_CODES: Final = ("code", "type", "param")
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,47}|[0-9]{3}")


@dataclass(slots=True)
class StreamReader:
    """The stamps and the answer's own words of one request; `take` is all that is done per chunk."""

    issued_ns: int = 0
    response_ns: int | None = None
    first_event_ns: int | None = None
    first_content_ns: int | None = None
    token_ns: array[int] = field(default_factory=partial(array, "q"))
    ended_ns: int = 0
    usage: Any = None
    finish_reason: str | None = None
    error: BaseException | None = None
    request_id: str | None = None
    answer_id: str | None = None

    def opened(self, stream: Any, stamp: int) -> None:
        """Note when the caller got the stream, and the provider's id of the request."""
        self.response_ns = stamp
        headers = getattr(getattr(stream, "response", None), "headers", None)
        self.request_id = headers.get("x-request-id") if headers is not None else None

    def take(self, chunk: Any, stamp: int) -> None:
        choices = chunk.choices
        # Nearly every chunk is one like this, and each costs its stream's neighbours what it costs here.
        if self.first_content_ns is not None and len(choices or ()) == 1:
            (choice,) = choices
            if choice.finish_reason is None and choice.delta is not None and choice.delta.content:
                self.token_ns.append(stamp)
                if (usage := getattr(chunk, "usage", None)) is not None:
                    self.usage = usage
                return
        if self.first_event_ns is None:
            self.first_event_ns = stamp
            self.answer_id = getattr(chunk, "id", None)
        carries = False
        for choice in choices or ():
            kind = message_kind(choice.delta)
            carries = carries or kind is not None
            if kind not in (None, "reasoning") and self.first_content_ns is None:
                self.first_content_ns = stamp
            self.finish_reason = choice.finish_reason or self.finish_reason
        if carries:
            self.token_ns.append(stamp)
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self.usage = usage


def sample_of(client: Any, place: SampleKey, reading: StreamReader, body: Any = None) -> Sample:
    """Return the record of a request that is over, with the client's own one; no text of `body` gets into it."""
    usage, error = reading.usage, reading.error
    own = _own_record(client, reading)
    status = getattr(error, "status_code", None)
    return Sample(
        **asdict(place),
        **{name: getattr(reading, name) for name in _STAMPS},
        delivery_gap_ms=None if own is None else delivery_gap_ms(reading.token_ns, own.timeline.token_ns),
        input_tokens=getattr(usage, "prompt_tokens", None),
        cached_tokens=getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None),
        output_tokens=getattr(usage, "completion_tokens", None),
        reasoning_tokens=getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None),
        error=f"{type(error).__name__} {status or ''}".rstrip() if error else None,
        error_message=error_text(error, getattr(client, "api_key", None), body) if error else None,
        record=own,
    )


def _own_record(client: Any, reading: StreamReader) -> CallRecord | None:
    """Return the client's record of the call that gave this answer; None if it keeps none."""
    # Requests share a client: its last call may be another request's.
    name = "request_id" if reading.request_id else "response_id"
    wanted = reading.request_id or reading.answer_id
    calls: Sequence[CallRecord] = getattr(client, "calls", ()) if wanted else ()
    return next((call for call in reversed(calls) if getattr(call, name) == wanted), None)


def delivery_gap_ms(delivered_ns: Sequence[int], arrived_ns: Sequence[int]) -> float | None:
    """Return the longest time from a chunk's arrival to its delivery, in ms; None if the two do not match."""
    if not delivered_ns or len(delivered_ns) != len(arrived_ns):
        return None
    return max(there - here for there, here in zip(delivered_ns, arrived_ns, strict=True)) / 1e6


def error_text(error: BaseException, key: object = None, body: Any = None) -> str:
    """Return the messages of an error and of its causes, without the key, and without words that repeat the `body`.

    openai's own is often no more than the last of these.
    """
    lines: list[str] = []
    cause: BaseException | None = error
    seen = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        words = _words(cause, body)
        line = f"{type(cause).__name__}: {words}".removesuffix(": ") if lines else words
        # Each layer of an HTTP client wraps the error of the one below, often under the same name.
        if [line] != lines[-1:]:
            lines.append(line)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    text = " <- ".join(lines)
    return (text.replace(key, "…") if isinstance(key, str) and key else text)[:_LONGEST]


def _words(error: BaseException, sent: Any) -> str:
    body = getattr(error, "body", None)
    if body is None and not hasattr(error, "response") and not type(error).__module__.startswith("pydantic"):
        try:
            return str(error)
        except Exception:  # noqa: BLE001 - an error class of the user's, whose `str()` fails
            return ""
    fields = body if isinstance(body, Mapping) else {}
    codes = [f"{name} {fields[name]}" for name in _CODES if _CODE.fullmatch(str(fields.get(name, "")))]
    message, text = fields.get("message"), json.dumps(sent, ensure_ascii=False, default=str)
    message = message if isinstance(message, str) else ""
    # One of these pieces is in every text that the message repeats.
    starts = range(0, max(1, len(message) - _QUOTED + 1), _QUOTED // 3)
    if sent is None or not message or any(message[at : at + _QUOTED] in text for at in starts):
        message = "the provider's own words are not kept"
    return message + (f" ({', '.join(codes)})" if codes else "")


@contextlib.contextmanager
def _timed(reading: StreamReader) -> Iterator[None]:
    """Stamp both ends, and keep what a client raises as its arm's result: the coordinator waits for every request."""
    reading.issued_ns = now_ns()
    try:
        yield
    except BaseException as raised:  # noqa: BLE001
        reading.error = raised
    reading.ended_ns = now_ns()


def read(client: Any, job: ScheduledRequest) -> StreamReader:
    """Send one streamed chat request, and read its answer. An error becomes part of it; nothing is raised."""
    reading, arguments = StreamReader(), job.arguments
    stream: Any = None
    with _timed(reading):
        stream = client.chat.completions.create(**arguments)
        reading.opened(stream, now_ns())
        for chunk in stream:
            reading.take(chunk, now_ns())
    with contextlib.suppress(BaseException):
        stream.close()
    return reading


async def read_async(client: Any, job: ScheduledRequest) -> StreamReader:
    """Do what `read` does with an asynchronous client: the same stamps, taken in the event loop."""
    reading, arguments = StreamReader(), job.arguments
    stream: Any = None
    with _timed(reading):
        stream = await client.chat.completions.create(**arguments)
        reading.opened(stream, now_ns())
        async for chunk in stream:
            reading.take(chunk, now_ns())
    with contextlib.suppress(BaseException):
        await (getattr(stream, "close", None) or stream.aclose)()
    return reading
