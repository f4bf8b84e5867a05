"""What a transport says of its phases is on the record, as it stood when the call was over."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from time import perf_counter_ns as now_ns
from typing import Any

import httpx2
import pytest

import fastlane
from fastlane.records import Attempt
from fastlane.transport import PHASES, Opening, Phases
from tests.attempts.events import DONE, STOP, choice_event
from tests.call_peer import ANSWER
from tests.transport.callers import CALLERS, request

STREAM = (choice_event(content="a"), choice_event(content="b") + choice_event(content="c"), STOP, DONE)
WHOLE = (json.dumps(ANSWER).encode(),)


class Scripted(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport that stamps as ours does: everything of an answer has come before its head is handed over."""

    def __init__(
        self,
        *,
        opened_before: bool = False,
        fills_in: bool = True,
        statuses: tuple[int, ...] = (),
    ) -> None:
        self.opened_before = opened_before
        self.fills_in = fills_in
        self.statuses = list(statuses)
        self.phases: list[Phases] = []
        self.began_ns: list[int] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        streamed = b'"stream":true' in request.content
        status = self.statuses.pop(0) if self.statuses else 200
        extensions: dict[str, Any] = {}
        phases = Phases()
        if self.fills_in:
            phases = extensions[PHASES] = request.extensions[PHASES]
            self.fill_in(phases, pieces=4 if streamed else 1)
        kind = "text/event-stream" if streamed and status == 200 else "application/json"
        pieces = (STREAM if streamed else WHOLE) if status == 200 else (b"{}",)
        return httpx2.Response(
            status, headers={"content-type": kind}, extensions=extensions, stream=Pieces(pieces, phases)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)

    def fill_in(self, phases: Phases, *, pieces: int) -> None:
        began_ns = now_ns()
        opened_ns = began_ns - 500 if self.opened_before else began_ns + 100
        phases.started_ns = began_ns
        phases.connection_wait_started_ns = began_ns + 50
        phases.opening = Opening(
            dns_started_ns=opened_ns,
            dns_ended_ns=opened_ns + 10,
            connect_started_ns=opened_ns + 10,
            connect_ended_ns=opened_ns + 30,
            tls_started_ns=opened_ns + 30,
            tls_ended_ns=opened_ns + 60,
            local_address="127.0.0.1:40000",
            peer_address="127.0.0.1:443",
            alpn="h2",
            tls_version="TLSv1.3",
        )
        phases.reused = False
        phases.http_version = "HTTP/2"
        phases.round_trip_time_ns = 40_000_000
        phases.send_started_ns = began_ns + 200
        phases.send_ended_ns = began_ns + 250
        phases.first_byte_ns = began_ns + 300
        phases.data_ns.extend(began_ns + 400 + 100 * number for number in range(pieces))
        phases.answer_ended_ns = began_ns + 400 + 100 * pieces
        while now_ns() <= phases.answer_ended_ns:
            pass
        self.phases.append(phases)
        self.began_ns.append(began_ns)


class Pieces(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, pieces: tuple[bytes, ...], phases: Phases) -> None:
        self.pieces = pieces
        self.phases = phases

    def __iter__(self) -> Iterator[bytes]:
        for number, piece in enumerate(self.pieces):
            self.phases.chunk_ns = self.phases.data_ns[number] if len(self.phases.data_ns) else 0
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Any:
    """A caller on a transport."""
    kind: Any = httpx2.Client if request.param == "sync" else httpx2.AsyncClient

    def on(transport: Scripted, **options: Any) -> Any:
        client = kind(transport=transport)
        return CALLERS[request.param](base_url="http://provider.invalid/v1", api_key="k", http_client=client, **options)

    return on


def attempt_of(caller: Any) -> Attempt:
    (attempt,) = caller.last_call.attempts
    assert isinstance(attempt, Attempt)
    return attempt


def test_attempt_with_new_connection_has_its_details(make: Any) -> None:
    transport = Scripted()
    with make(transport) as caller:
        caller.ask()
        attempt, timeline = attempt_of(caller), caller.last_call.timeline
    (began_ns,) = transport.began_ns
    wire = attempt.wire

    assert wire.connection_wait_started_ns == began_ns + 50
    assert (wire.dns_started_ns, wire.dns_ended_ns) == (began_ns + 100, began_ns + 110)
    assert (wire.dns_s, wire.connect_s, wire.tls_s) == (10e-9, 20e-9, 30e-9)
    assert (wire.send_s, wire.wait_s, wire.connection_wait_s) == (50e-9, 50e-9, 50e-9)
    assert wire.queue_s == (began_ns + 100 - wire.started_ns) / 1e9
    assert wire.headers_received_ns == began_ns + 300
    assert list(wire.data_ns) == [wire.first_data_ns] == [began_ns + 400]
    assert wire.ended_ns == timeline.answer_ended_ns == began_ns + 500
    assert timeline.ended_ns > began_ns + 500
    assert attempt.connection_reused is False
    assert (attempt.http_version, attempt.alpn, attempt.tls_version) == ("HTTP/2", "h2", "TLSv1.3")
    assert (attempt.connection_id, attempt.peer_address) == ("127.0.0.1:40000", "127.0.0.1:443")
    assert (attempt.round_trip_time_s, attempt.resent) == (0.04, 0)
    assert caller.last_call.transport == "caller"


def test_attempt_that_waited_for_anothers_opening_queued(make: Any) -> None:
    transport = Scripted(opened_before=True)
    with make(transport) as caller:
        caller.ask()
        attempt = attempt_of(caller)
    (began_ns,) = transport.began_ns
    wire = attempt.wire

    assert (wire.dns_s, wire.connect_s, wire.tls_s) == (None, None, None)
    assert wire.queue_s == (began_ns + 200 - wire.started_ns) / 1e9
    assert wire.connection_wait_s == 150e-9
    assert attempt.connection_reused is True
    assert attempt.connection_id == "127.0.0.1:40000"


def test_token_timestamps_are_arrival_times(make: Any) -> None:
    transport = Scripted()
    with make(transport) as caller:
        stream = caller.start(1)
        read_on_ns = now_ns()
        list(stream)
        record = caller.last_call
    (began_ns,) = transport.began_ns

    assert list(record.timeline.token_ns) == [began_ns + 400, began_ns + 500, began_ns + 500]
    assert record.timeline.first_event_ns == record.timeline.first_token_ns == began_ns + 400
    assert record.timeline.answer_ended_ns == record.attempts[0].wire.ended_ns == began_ns + 800
    assert list(record.attempts[0].wire.data_ns) == [began_ns + 400 + 100 * number for number in range(4)]
    assert record.timeline.answer_ended_ns < read_on_ns < record.timeline.ended_ns


def test_raw_stream_of_custom_client_has_arrival_timestamps() -> None:
    transport = Scripted()
    with fastlane.OpenAI(
        base_url="http://provider.invalid/v1", api_key="k", http_client=httpx2.Client(transport=transport)
    ) as client:
        with client.chat.completions.with_streaming_response.create(**request(), stream=True) as answer:
            assert list(answer.iter_lines())
        (record,) = client.calls
    (began_ns,) = transport.began_ns

    assert list(record.timeline.token_ns) == [began_ns + 400, began_ns + 500, began_ns + 500]
    assert (record.transport, record.attempts[0].alpn) == ("caller", "h2")


def test_data_after_close_is_not_recorded(make: Any) -> None:
    transport = Scripted()
    with make(transport) as caller:
        stream = caller.start(1)
        (phases,) = transport.phases
        phases.answer_ended_ns = None
        stream.close()
        later_ns = now_ns()
        phases.data_ns.append(later_ns)
        phases.answer_ended_ns = later_ns
        record = caller.last_call
        phases.data_ns.append(later_ns)

    assert record.outcome == "closed"
    assert record.timeline.answer_ended_ns is None
    assert len(record.attempts[0].wire.data_ns) == 4
    assert record.attempts[0].wire.ended_ns is not None
    assert record.attempts[0].wire.ended_ns <= record.timeline.ended_ns < later_ns


@pytest.mark.parametrize("streamed", [False, True])
def test_every_attempt_has_its_own_phases(make: Any, streamed: bool) -> None:
    transport = Scripted(statuses=(500,))
    with make(transport, max_retries=1) as caller:
        if streamed:
            caller.read()
        else:
            caller.ask()
        refused, answered = caller.last_call.attempts
    first_ns, second_ns = transport.began_ns

    assert (refused.status_code, answered.status_code) == (500, 200)
    assert (refused.wire.headers_received_ns, answered.wire.headers_received_ns) == (first_ns + 300, second_ns + 300)
    assert refused.wire.ended_ns < answered.wire.started_ns
    assert transport.phases[0] is not transport.phases[1]


def test_abandoned_attempt_ends_at_its_last_received_data(make: Any) -> None:
    class Unending(Scripted):
        def fill_in(self, phases: Phases, *, pieces: int) -> None:
            super().fill_in(phases, pieces=pieces)
            if self.statuses:
                phases.answer_ended_ns = None

    transport = Unending(statuses=(500, 200))
    with make(transport, max_retries=1) as caller:
        caller.read()
        refused, _ = caller.last_call.attempts

    assert refused.wire.ended_ns == transport.began_ns[0] + 700


# Which transport it was


def test_transport_without_timestamps_uses_reader_times(make: Any) -> None:
    with make(Scripted(fills_in=False)) as caller:
        caller.read()
        record = caller.last_call
    (attempt,) = record.attempts

    assert list(attempt.wire.data_ns) == []
    assert attempt.wire.first_data_ns is None
    assert (attempt.peer_address, attempt.round_trip_time_s) == (None, None)
    assert record.transport == "caller"
    assert len(record.timeline.token_ns) == 3
    assert record.timeline.token_ns[0] >= attempt.wire.started_ns


# The real one


def test_phases_of_a_real_call_follow_each_other(caller: Any, protocol: str) -> None:
    caller.read(output_tokens=5, token_ms=2)
    record = caller.last_call
    (attempt,) = record.attempts
    wire, timeline = attempt.wire, record.timeline
    moments = [
        timeline.started_ns,
        wire.started_ns,
        wire.connect_started_ns,
        wire.connect_ended_ns,
        wire.tls_started_ns,
        wire.tls_ended_ns,
        wire.send_started_ns,
        wire.headers_received_ns,
        wire.first_data_ns,
        timeline.first_event_ns,
        timeline.first_token_ns,
        timeline.last_token_ns,
        wire.data_ns[-1],
        wire.ended_ns,
        timeline.ended_ns,
    ]

    assert None not in moments
    assert moments == sorted(moments)
    assert wire.send_ended_ns is not None  # noted by the sender, when the answer may have come to another thread
    assert wire.send_started_ns is not None
    assert wire.send_started_ns <= wire.send_ended_ns
    assert (record.transport, attempt.http_version) == ("fastlane", protocol)
    assert attempt.alpn == {"HTTP/2": "h2", "HTTP/1.1": "http/1.1"}[protocol]
    assert (wire.dns_s, attempt.connection_reused) == (None, False)


@pytest.mark.kernel
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for TCP_INFO")
def test_tcp_info_gives_the_round_trip_time(caller: Any) -> None:
    caller.ask(output_tokens=1)
    attempt = attempt_of(caller)

    assert attempt.round_trip_time_s is not None
    assert attempt.round_trip_time_s > 0
