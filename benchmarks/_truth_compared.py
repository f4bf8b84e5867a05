"""What telemetry said of a call against what is true of it, number by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from benchmarks._truth_cases import Told
from benchmarks._truth_wire import Delays
from fastlane.emulator import RequestLog

_ALLOWED_MS, _ALLOWED_SHARE = 2.0, 0.03


class Compared(NamedTuple):
    """One duration, in milliseconds."""

    case: str
    what: str
    """The name of a span, without its host; or of an attribute of the call's span."""
    seen_ms: float
    true_ms: float

    @property
    def error_ms(self) -> float:
        """How far from the truth."""
        return abs(self.seen_ms - self.true_ms)

    @property
    def of_allowed(self) -> float:
        """The error as a share of what is allowed: 2 ms and 3 %."""
        return self.error_ms / (_ALLOWED_MS + _ALLOWED_SHARE * self.true_ms)


class Counted(NamedTuple):
    """A number that is right or wrong."""

    case: str
    what: str
    seen: Any
    true: Any


def _ms(start_ns: int | None, end_ns: int | None) -> float:
    if start_ns is None or end_ns is None:
        raise RuntimeError("the provider's log lacks a moment that its answer had")
    return (end_ns - start_ns) / 1e6


def _kind(span: ReadableSpan) -> str:
    for name in ("HTTP wait_for_connection", "HTTP connection_setup", "DNS lookup", "socket connect"):
        if span.name.startswith(f"{name} "):
            return name
    return (
        "TLS client handshake" if span.name.startswith("TLS client handshake") else span.name.partition(" benchmark")[0]
    )


def _duration_ms(span: ReadableSpan) -> float:
    return _ms(span.start_time, span.end_time)


def _children(spans: tuple[ReadableSpan, ...], parent: ReadableSpan) -> list[ReadableSpan]:
    return [one for one in spans if one.parent is not None and one.parent.span_id == parent.context.span_id]


def _on_the_wire(told: Told, request: RequestLog, *, opened_ms: float, delays: Delays) -> Mapping[str, float]:
    """How long each part of a request took on the client's side, which each way away is from the provider's."""
    round_trip_ms = delays.up + delays.down
    true: dict[str, float] = {
        "HTTP connection_setup": opened_ms,
        "DNS lookup": _lookup_ms(told),
        "socket connect": 0.0,
        "TLS client handshake": delays.handshake,
        "HTTP send_request": _ms(request.received_ns, request.body_complete_ns),
    }
    if request.reset_ns is not None:
        true["POST"] = opened_ms + _ms(request.received_ns, request.reset_ns)
        return true
    true["POST"] = opened_ms + _ms(request.received_ns, request.finished_ns) + round_trip_ms
    true["HTTP wait_for_response"] = _ms(request.body_complete_ns, request.headers_sent_ns) + round_trip_ms
    if request.token_ns:
        true["first_token"] = _ms(request.headers_sent_ns, request.first_token_ns)
        true["decode"] = _ms(request.token_ns[0], request.token_ns[-1])
    return true


def _lookup_ms(told: Told) -> float:
    return _ms(*told.lookup) if told.lookup is not None else 0.0


def _opened_ms(told: Told, at: int, delays: Delays) -> float:
    first = told.log[at].connection_request_number == 1
    return _lookup_ms(told) + delays.handshake if first else 0.0


def spans_compared(told: Told, delays: Delays) -> Iterator[Compared]:
    """Every span of a call. Raises RuntimeError where there are others than the provider has seen requests."""
    (chat,) = [span for span in told.spans if span.parent is None]
    yield Compared(told.case, "chat", _duration_ms(chat), _ms(told.issued_ns, told.over_ns))
    yield Compared(told.case, "chat starts", _ms(told.issued_wall_ns, chat.start_time), 0.0)
    below = _children(told.spans, chat)
    posts = sorted([span for span in below if span.name == "POST"], key=lambda span: span.start_time or 0)
    if len(posts) != len(told.log):
        raise RuntimeError(f"{told.case}: {len(posts)} spans of requests for {len(told.log)} that came")
    if len(posts) != (2 if told.case in ("retry", "hedge") else 1):
        raise RuntimeError(f"{told.case}: {len(posts)} requests are no {told.case}")
    waited_ms = [
        sum(_duration_ms(span) for span in _children(told.spans, post) if _kind(span) == "HTTP wait_for_connection")
        for post in posts
    ]
    for span in below:
        if span.name == "prepare":
            until_ms = _ms(told.issued_ns, told.log[0].received_ns) - delays.up
            if waited_ms[0] and told.lookup is not None:
                until_ms = _ms(told.issued_ns, told.lookup[0]) - waited_ms[0]
            yield Compared(told.case, "prepare", _duration_ms(span), until_ms)
    for at, (post, request) in enumerate(zip(posts, told.log, strict=True)):
        true = _on_the_wire(told, request, opened_ms=_opened_ms(told, at, delays), delays=delays)
        yield Compared(told.case, "POST", _duration_ms(post) - waited_ms[at], true["POST"])
        phases = _children(told.spans, post)
        for span in phases + [deeper for phase in phases for deeper in _children(told.spans, phase)]:
            kind = _kind(span)
            if kind == "HTTP wait_for_connection":
                # How long it was depends on the client alone; when it was over, the resolver knows.
                assert told.lookup is not None
                over_ms = _ms(told.issued_ns, told.lookup[0])
                yield Compared(told.case, f"{kind} ends", _ms(told.issued_wall_ns, span.end_time), over_ms)
            else:
                yield Compared(told.case, kind, _duration_ms(span), true[kind])


def attributes_compared(told: Told, delays: Delays) -> Iterator[Compared]:
    """Every duration that the call's span carries as an attribute."""
    (chat,) = [span for span in told.spans if span.parent is None]
    seen = chat.attributes or {}
    answer, opened_ms = told.log[-1], _opened_ms(told, -1, delays)
    wire = _on_the_wire(told, answer, opened_ms=opened_ms, delays=delays)
    first_ms = _ms(told.issued_ns, answer.first_token_ns) + delays.down
    true = {
        "gen_ai.response.time_to_first_chunk": _ms(told.issued_ns, answer.headers_sent_ns) + delays.down,
        "fastlane.time_to_first_token": first_ms,
        "fastlane.time_to_first_content_token": first_ms,
        "fastlane.api_end_to_end.duration": first_ms + wire["decode"],
        "fastlane.server.wait.duration": _ms(answer.body_complete_ns, answer.first_token_ns) + delays.up + delays.down,
        "fastlane.decode.duration": wire["decode"],
        "fastlane.stream.max_chunk_gap": max(_ms(one, other) for one, other in pairwise(answer.token_ns)),
        "fastlane.wire.send.duration": wire["HTTP send_request"],
        "fastlane.wire.duration": opened_ms + wire["HTTP send_request"],
    }
    if opened_ms:
        true |= {
            "fastlane.wire.dns.duration": wire["DNS lookup"],
            "fastlane.wire.connect.duration": 0.0,
            "fastlane.wire.tls.duration": delays.handshake,
        }
    if told.case == "retry":
        between = _ms(told.log[0].finished_ns, answer.received_ns)
        true["fastlane.retry.wait.duration"] = between - delays.up - delays.down
    for name, true_ms in true.items():
        yield Compared(told.case, name, 1e3 * _number(seen, name), true_ms)
    yield Compared(
        told.case,
        "fastlane.decode.tokens_per_second",
        1e3 * (answer.output_tokens - 1) / _number(seen, "fastlane.decode.tokens_per_second"),
        wire["decode"],
    )


def _number(attributes: Mapping[str, Any], name: str) -> float:
    value = attributes.get(name)
    if not isinstance(value, int | float):
        raise TypeError(f"a call's span has to have {name}, and has {value!r}")
    return float(value)


def counts(told: Told) -> Iterator[Counted]:
    """Every count that the spans carry, against the provider's."""
    (chat,) = [span for span in told.spans if span.parent is None]
    posts = sorted([span for span in told.spans if span.name == "POST"], key=lambda span: span.start_time or 0)
    answer = told.log[-1]
    true = {
        "gen_ai.usage.input_tokens": answer.prompt_tokens,
        "gen_ai.usage.output_tokens": answer.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": answer.cached_tokens,
        "fastlane.attempt.count": len(told.log),
        "fastlane.connection.reused": answer.connection_request_number > 1,
    }
    for name, number in true.items():
        yield Counted(told.case, name, (chat.attributes or {}).get(name), number)
    for post, request in zip(posts, told.log, strict=True):
        seen = post.attributes or {}
        yield Counted(told.case, "http.request.body.size", seen.get("http.request.body.size"), request.bytes_in)
        yield Counted(told.case, "http.response.status_code", seen.get("http.response.status_code"), request.status)
        if request is answer:
            yield Counted(told.case, "http.response.body.size", seen.get("http.response.body.size"), request.bytes_out)
