"""One request as its caller saw it: the raw record from which every figure is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastlane.records.record import CallRecord
from fastlane.records.timeline import seconds

Part = Literal["cold", "warm-up", "measured"]
"""What a request is good for: an arm process's very first one, one that was sent to warm up, or one that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKey:
    """Where a request belongs: what is known of it before it is sent."""

    arm: str
    tag: str
    """Unique within a run; the embedded provider's log names the request by it."""
    cell: str = ""
    """Name of the Cell that it belongs to."""
    shard: int = 0
    lane: int = 0
    block: int
    """Position of the block in its lane, from 0; -1 for an arm process's first request."""
    position: int = 0
    """Position of the arm in the block's random order, from 0."""
    conversation: str
    turn: int
    part: Part = "measured"
    intended_ns: int | None = None
    """When an open load's schedule wanted it sent, whatever the client was busy with; None under a closed load."""
    asked_output_tokens: int | None = None
    """The most output tokens that the request allowed."""
    least_output_tokens: int | None = None
    """The fewest that the workload meant to get; None where it means none."""
    meant_input_tokens: int | None = None
    """The input tokens that the workload meant to send, by its own count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(SampleKey):
    """What one arm's client did for one request.

    Every `_ns` is of the monotonic clock of the shard's machine: comparable within a shard, and on one machine with
    the provider's log; never between machines.
    """

    issued_ns: int
    """Just before `create()`."""
    response_ns: int | None = None
    """`create()` returned: the caller has the stream."""
    first_event_ns: int | None = None
    """The caller got the first chunk of any kind, one with only a role included."""
    first_content_ns: int | None = None
    """The caller got the first chunk with output that is no reasoning."""
    token_ns: Sequence[int] = ()
    """When the caller got each chunk with output. A chunk with only a role or a usage report is none."""
    ended_ns: int
    """The stream was exhausted, or the error raised."""
    delivery_gap_ms: float | None = None
    """Longest time between a chunk's arrival and its delivery, by the client's own record; None where it keeps none."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    """Class and status of the error that the caller got; None for a success."""
    error_message: str | None = None
    price: float | None = None
    """US dollars by the catalog; None for a model that it does not hold."""
    call: Mapping[str, Any] | None = field(default=None, repr=False)
    """The client's own record of the call, as plain data; None for a client that keeps none."""
    record: CallRecord | None = field(default=None, repr=False, compare=False)
    """The same as it is; not written to files."""

    @property
    def key(self) -> tuple[str, int, int, int]:
        """The block of which this request was one arm's part."""
        return (self.cell, self.shard, self.lane, self.block)

    @property
    def cold(self) -> bool:
        """Whether this was the very first request of its arm's process."""
        return self.part == "cold"

    @property
    def started_ns(self) -> int:
        """What durations count from: the schedule's moment under an open load, else the issue.

        Counting an open load's requests from their issue would leave out the time that they waited for a slow client
        or server (coordinated omission).
        """
        return self.issued_ns if self.intended_ns is None else self.intended_ns

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from start to the first output, reasoning included; None where none came."""
        return seconds(self.started_ns, self.token_ns[0] if self.token_ns else None)

    @property
    def time_to_first_content_token_s(self) -> float | None:
        """Seconds from start to the first output that is no reasoning; None where none came."""
        return seconds(self.started_ns, self.first_content_ns)

    @property
    def api_end_to_end_s(self) -> float | None:
        """Seconds from start to the last output; None where none came."""
        return seconds(self.started_ns, self.token_ns[-1] if self.token_ns else None)

    @property
    def generation_time_s(self) -> float | None:
        """Seconds from the first output to the last; None where none came."""
        return seconds(self.token_ns[0], self.token_ns[-1]) if self.token_ns else None

    @property
    def time_per_output_token_s(self) -> float | None:
        """Generation time over output tokens - 1, tokens by the provider's usage; None without usage or below 2."""
        if self.generation_time_s is None or self.output_tokens is None or self.output_tokens < 2:
            return None
        return self.generation_time_s / (self.output_tokens - 1)

    @property
    def inter_token_latency_s(self) -> float | None:
        """Mean seconds between chunks with output, which are no tokens; None below two chunks."""
        if self.generation_time_s is None or len(self.token_ns) < 2:
            return None
        return self.generation_time_s / (len(self.token_ns) - 1)

    @property
    def decode_speed(self) -> float | None:
        """Tokens per second after the first one: 1 / time per output token."""
        each = self.time_per_output_token_s
        return 1 / each if each else None

    @property
    def output_throughput(self) -> float | None:
        """Output tokens over API end-to-end, per second; None without usage."""
        whole = self.api_end_to_end_s
        return self.output_tokens / whole if whole and self.output_tokens else None

    @property
    def dispatch_delay_s(self) -> float | None:
        """Seconds by which an open load's request was issued late; None under a closed load."""
        return None if self.intended_ns is None else (self.issued_ns - self.intended_ns) / 1e9

    @property
    def request_bytes(self) -> int | None:
        """Bytes of the request's body as sent, by the client's own record; None where it keeps none."""
        attempts = self.call["attempts"] if self.call is not None else ()
        return attempts[-1].get("request_body_bytes") if attempts else None
