"""One request as its caller sees it: the same stamps, taken at the same places, for every arm."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai

from .._call import CallRecord
from .._clock import now_ns
from .._timeline import seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one arm's client did for one request. Every `_ns` is monotonic and comparable with the provider's log."""

    arm: str
    tag: str
    lane: int
    block: int
    """Position of the block in its lane, from 0; -1 for the arm's first request of all."""
    conversation: str
    turn: int
    cold: bool
    """Whether this was the arm's first request in the process, which no percentile includes."""
    issued_ns: int
    """Just before `create()`."""
    ended_ns: int
    """The stream was exhausted, or the error raised."""
    token_ns: Sequence[int] = ()
    """When the caller got each chunk with output. A chunk with only a role or a usage report is none."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    """Class and status of the error that the caller got; None for a success."""
    error_message: str | None = None
    call: Mapping[str, Any] | None = field(default=None, repr=False)
    """The client's own record of the call, as plain data; None for a client that keeps none."""
    record: CallRecord | None = field(default=None, repr=False)
    """The same as it is."""

    @property
    def key(self) -> tuple[int, int]:
        """The block of which this request was one arm's part."""
        return (self.lane, self.block)

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from issue to the first output; None where none came."""
        return seconds(self.issued_ns, self.token_ns[0] if self.token_ns else None)

    @property
    def api_end_to_end_s(self) -> float | None:
        """Seconds from issue to the last output; None where none came."""
        return seconds(self.issued_ns, self.token_ns[-1] if self.token_ns else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a request belongs: the fields of its Sample that are known before it is sent."""

    arm: str
    tag: str
    lane: int
    block: int
    conversation: str
    turn: int
    cold: bool = False


def record(client: openai.OpenAI, place: Place, body: Mapping[str, Any], headers: Mapping[str, str]) -> Sample:
    """Send one streamed chat request and record it. An error becomes part of the sample; nothing is raised."""
    stamps = array("q")
    usage: Any = None
    finish_reason: str | None = None
    error: Exception | None = None
    request_id: str | None = None
    issued = now_ns()
    try:
        with client.chat.completions.create(**body, stream=True, extra_headers=headers) as stream:
            request_id = stream.response.headers.get("x-request-id")
            for chunk in stream:
                stamp = now_ns()
                for choice in chunk.choices or ():
                    if _carries_output(choice.delta):
                        stamps.append(stamp)
                    finish_reason = choice.finish_reason or finish_reason
                usage = chunk.usage or usage
    # Whatever a client raises is its arm's result: it must neither end the run nor vanish from it.
    except Exception as raised:  # noqa: BLE001
        error = raised
    ended = now_ns()
    own = _own_record(client, request_id)
    return Sample(
        arm=place.arm,
        tag=place.tag,
        lane=place.lane,
        block=place.block,
        conversation=place.conversation,
        turn=place.turn,
        cold=place.cold,
        issued_ns=issued,
        ended_ns=ended,
        token_ns=stamps,
        input_tokens=getattr(usage, "prompt_tokens", None),
        cached_tokens=getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None),
        output_tokens=getattr(usage, "completion_tokens", None),
        finish_reason=finish_reason,
        error=_named(error) if error else None,
        error_message=_told(error).replace(client.api_key or "…", "…")[:400] if error else None,
        call=None if own is None else own.to_dict(),
        record=own,
    )


def _carries_output(delta: Any) -> bool:
    if delta is None:
        return False
    return bool(
        delta.content
        or delta.tool_calls
        or delta.refusal
        # Fields that OpenAI's own types do not have; providers of open models stream their reasoning in them.
        or getattr(delta, "reasoning_content", None)
        or getattr(delta, "reasoning", None)
    )


def _named(error: Exception) -> str:
    status = getattr(error, "status_code", None)
    return type(error).__name__ + (f" {status}" if status else "")


def _told(error: BaseException) -> str:
    """Return what an error says, and what the errors say that it came from: openai's own is often no more than that."""
    told, seen = [str(error)], {id(error)}
    cause = _cause(error)
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        line = type(cause).__name__ + (f": {cause}" if str(cause) else "")
        # Each layer of an HTTP client wraps the error of the one below, often under the same name.
        if line != told[-1]:
            told.append(line)
        cause = _cause(cause)
    return " <- ".join(told)


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _own_record(client: openai.OpenAI, request_id: str | None) -> CallRecord | None:
    """Return the client's record of the call that the provider gave this id; None where there is none."""
    # Lanes share a client, so that its last call may be another lane's.
    calls: Sequence[CallRecord] = getattr(client, "calls", ())
    return next((call for call in reversed(calls) if request_id and call.request_id == request_id), None)
