"""How an answer comes in pieces: how often, how much at a time, and what stands at its end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ._asking import Streamed, StreamRead
from ._findings import Group, MeasuredFact, ProviderFinding, in_ms, milliseconds
from ._session import DoctorSession

_GROUP: Group = "streaming"
TOKENS = 64
PROMPT = "Count from 1 to 40 in words, one number after the other, separated by commas. Nothing else."

# A stream of bundles: so many events at once, over a time in which somebody sees them come.
_EVENTS_PER_BUNDLE = 3
_NOTICED_NS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSentEvent:
    """One server-sent event."""

    at_ns: int
    size: int
    """Bytes, the blank line at its end included."""
    data: str

    @property
    def document(self) -> Mapping[str, Any]:
        """The JSON object that it carries; empty where it carries none."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def has_output(self) -> bool:
        """Whether it carries text, reasoning or a tool's arguments."""
        choices = self.document.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict) and any(
                value for name, value in delta.items() if name not in ("role", "refusal")
            ):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How the output of a stream came."""

    events: int
    """Events with output."""
    reads: int
    """Pieces in which those arrived."""
    first_ns: int
    """From sending the request to the first output."""
    span_ns: int
    """From the first output to the last."""
    gaps_ns: tuple[int, ...]
    """Between neighbouring events with output, in order of size."""
    bytes_per_event: float

    def gap_ns(self, share: float) -> int | None:
        """The gap that this share of all gaps does not exceed; None without a gap."""
        if not self.gaps_ns:
            return None
        return self.gaps_ns[min(len(self.gaps_ns) - 1, int(share * len(self.gaps_ns)))]


def events_in(pieces: Sequence[StreamRead]) -> Iterator[ServerSentEvent]:
    """The events of a stream, each with the moment at which its last byte came. Comments are no events."""
    buffer = b""
    for piece in pieces:
        buffer = (buffer + piece.data).replace(b"\r\n", b"\n")
        while b"\n\n" in buffer:
            block, buffer = buffer.split(b"\n\n", 1)
            lines = block.decode("utf-8", "replace").split("\n")
            data = [line.removeprefix("data:").removeprefix(" ") for line in lines if line.startswith("data:")]
            if data:
                yield ServerSentEvent(at_ns=piece.at_ns, size=len(block) + 2, data="\n".join(data))


def cadence_of(events: Sequence[ServerSentEvent], sent_ns: int) -> Cadence | None:
    """How the output came; None where there was none."""
    output = [event for event in events if event.has_output]
    if not output:
        return None
    moments = [event.at_ns for event in output]
    return Cadence(
        events=len(output),
        reads=len(set(moments)),
        first_ns=moments[0] - sent_ns,
        span_ns=moments[-1] - moments[0],
        gaps_ns=tuple(sorted(later - earlier for earlier, later in pairwise(moments))),
        bytes_per_event=sum(event.size for event in output) / len(output),
    )


def usage_in(events: Sequence[ServerSentEvent]) -> Mapping[str, Any] | None:
    """The last event that brings token counts; None where none does."""
    for event in reversed(events):
        document = event.document
        if isinstance(document.get("usage"), dict):
            return document
    return None


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Have the model count, and watch the answer come."""
    assert session.asking is not None
    streamed = session.asking.stream(PROMPT, TOKENS)
    session.headers_seen.update(streamed.headers)
    events = tuple(events_in(streamed.pieces))
    last = usage_in(events)
    if last is not None:
        session.last_chunk = last
    yield from judge(streamed, events)


def judge(streamed: Streamed, events: Sequence[ServerSentEvent]) -> Iterator[ProviderFinding]:
    """What a stream shows."""
    if streamed.broke_off is not None:
        yield _finding("the stream", f"broken off ({streamed.broke_off})", "failed")
    cadence = cadence_of(events, streamed.sent_ns)
    last = usage_in(events)
    output = (last or {}).get("usage", {}).get("completion_tokens")
    if cadence is None:
        yield _finding("the stream", "no output came", "failed", "The model said nothing within the limit of tokens.")
    else:
        yield _first(cadence, streamed)
        yield _chunks(cadence, output if isinstance(output, int) else None)
    yield _usage(last is not None)
    if streamed.broke_off is None:
        yield _end(any(event.data.strip() == "[DONE]" for event in events))


def _first(cadence: Cadence, streamed: Streamed) -> ProviderFinding:
    ahead = cadence.first_ns - (streamed.headers_ns - streamed.sent_ns)
    seen = milliseconds(cadence.first_ns)
    if ahead > 5_000_000:
        seen += f"; the answer's head came {milliseconds(ahead)} earlier"
    return _finding("first token", seen, value={"ms": in_ms(cadence.first_ns), "head_earlier_ms": in_ms(ahead)})


def _chunks(cadence: Cadence, output_tokens: int | None) -> ProviderFinding:
    p50, p90 = cadence.gap_ns(0.5), cadence.gap_ns(0.9)
    per_event = output_tokens / cadence.events if output_tokens else None
    seen = f"{cadence.events} with output, {cadence.bytes_per_event:.0f} bytes each"
    if per_event is not None:
        seen += f", {per_event:.1f} tokens each"
    if p50 is not None and p90 is not None:
        seen += f"; gaps p50 {milliseconds(p50)}, p90 {milliseconds(p90)}"
    bundled = cadence.events >= _EVENTS_PER_BUNDLE * cadence.reads and cadence.span_ns > _NOTICED_NS
    return _finding(
        "chunks",
        seen,
        "notable" if bundled else "seen",
        "They come in bundles: what is shown stutters, whatever the client does." if bundled else "",
        {
            "events": cadence.events,
            "reads": cadence.reads,
            "gap_p50_ms": in_ms(p50),
            "gap_p90_ms": in_ms(p90),
            "tokens_per_event": None if per_event is None else round(per_event, 3),
            "bytes_per_event": round(cadence.bytes_per_event, 1),
        },
    )


def _usage(came: bool) -> ProviderFinding:
    path = ("parameters", "stream_options.include_usage")
    if came:
        return _finding(
            "token counts", "at the end of the stream, when asked for", facts=(MeasuredFact(path=path, value=True),)
        )
    return _finding(
        "token counts",
        "none, although asked for",
        "notable",
        "Tokens of streams are not known here: rates and costs can only be estimated.",
    )


def _end(done: bool) -> ProviderFinding:
    if done:
        return _finding("end", "marked by [DONE]")
    return _finding(
        "end", "not marked by [DONE]", "notable", "A stream that broke off can look like one that has ended."
    )


def _finding(
    looked_at: str,
    seen: str,
    state: Any = "seen",
    advice: str = "",
    value: Any = None,
    facts: tuple[MeasuredFact, ...] = (),
) -> ProviderFinding:
    return ProviderFinding(
        group=_GROUP, looked_at=looked_at, seen=seen, state=state, advice=advice, value=value, facts=facts
    )
