"""Collect the stamps of one attempt: from our own transport, or from the trace events of another."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Literal

from .._clock import now_ns
from ..records.attempts import Attempt, AttemptKind, Form
from ..records.timeline import WireStamps
from ..transport.protocols.exchange import Opening, Phases

# Trace events of httpcore and httpcore2, both protocols: which stamp each one sets. A redirected attempt sets its
# stamps again, so that they describe the exchange that gave the answer.
_STAMPS = {
    "connection.connect_tcp.started": "connect_started_ns",
    "connection.connect_tcp.complete": "connect_ended_ns",
    "connection.connect_unix_socket.started": "connect_started_ns",
    "connection.connect_unix_socket.complete": "connect_ended_ns",
    "connection.start_tls.started": "tls_started_ns",
    "connection.start_tls.complete": "tls_ended_ns",
    "http11.send_request_headers.started": "send_started_ns",
    "http2.send_request_headers.started": "send_started_ns",
    "http11.send_request_body.complete": "send_ended_ns",
    "http2.send_request_body.complete": "send_ended_ns",
    "http11.receive_response_headers.complete": "headers_received_ns",
    "http2.receive_response_headers.complete": "headers_received_ns",
    "http11.receive_response_body.complete": "ended_ns",
    "http2.receive_response_body.complete": "ended_ns",
    "http11.response_closed.started": "closed_ns",
    "http2.response_closed.started": "closed_ns",
}


class AttemptStamps:
    """One attempt while it is on the wire."""

    __slots__ = (
        "_connection_id",
        "_http_version",
        "_traced",
        "ended_ns",
        "error",
        "form",
        "given_up",
        "kind",
        "model",
        "number",
        "origin",
        "phases",
        "request_body_bytes",
        "response_body_bytes",
        "started_ns",
        "status_code",
        "url",
    )

    def __init__(
        self,
        number: int,
        request_body_bytes: int | None,
        *,
        kind: AttemptKind = "first",
        form: Form = "json",
        origin: str | None = None,
        model: str | None = None,
    ) -> None:
        self.number = number
        self.kind: AttemptKind = kind
        self.origin = origin
        self.model = model
        self.given_up: Literal["late", "lost"] | None = None
        self.form: Form = form
        self.request_body_bytes = request_body_bytes
        self.phases = Phases()
        """Filled in by our own transport, if that is what carries the attempt."""
        self._traced: dict[str, int] = {}
        self.ended_ns: int | None = None
        """The attempt failed or was given up, or its answer ended, as far as the call's own side can see."""
        self.status_code: int | None = None
        self.error: str | None = None
        self._http_version: str | None = None
        self._connection_id: str | None = None
        self.response_body_bytes: int | None = None
        self.url: Any = None
        """The request's URL, of which the record has the path alone: the rest may hold credentials."""
        self.started_ns = now_ns()

    @property
    def opened(self) -> Opening | None:
        """How the connection was opened, where this attempt waited for all of it."""
        return _opened_by(self.phases)

    @property
    def fell_back(self) -> bool:
        """Whether another transport than our own gave the answer."""
        carried = self.phases.started_ns is not None
        return not carried and (self.status_code is not None or bool(self._traced))

    def trace(self, event: str, _info: dict[str, Any]) -> None:
        """The trace extension of a synchronous request."""
        stamp = _STAMPS.get(event)
        if stamp is not None:
            self._traced[stamp] = now_ns()

    async def atrace(self, event: str, _info: dict[str, Any]) -> None:
        """The trace extension of an asynchronous request, which has to be a coroutine function."""
        self.trace(event, _info)

    def tracing(self, given: Any, *, asynchronous: bool) -> Any:
        """The trace extension of the request, with the caller's own called as well where there is one."""
        if given is None:
            return self.atrace if asynchronous else self.trace

        def both(event: str, info: dict[str, Any]) -> Any:
            self.trace(event, info)
            return given(event, info)

        async def aboth(event: str, info: dict[str, Any]) -> Any:
            self.trace(event, info)
            return await given(event, info)

        return aboth if asynchronous else both

    def answered(self, response: Any) -> None:
        """Take note of the head of the answer (an httpx or httpx2 response)."""
        self.status_code = response.status_code
        if self.phases.opening is not None:
            return  # our own transport has said more than the answer does
        extensions = response.extensions
        version = extensions.get("http_version")
        self._http_version = version.decode("ascii", "replace") if isinstance(version, bytes) else None
        stream = extensions.get("network_stream")
        if stream is not None:
            self._connection_id = _local_address(stream)

    def record(self, over_ns: int) -> Attempt:
        """The attempt as it stood at `over_ns`, when it was over."""
        phases = self.phases
        if phases.started_ns is None:
            return self._traced_record(over_ns)
        opening, rtt_ns = phases.opening, phases.round_trip_time_ns
        opened = _opened_by(phases)
        return self._record(
            self._phases_wire(opened, over_ns),
            http_version=phases.http_version or self._http_version,
            connection_id=opening.local_address if opening is not None else self._connection_id,
            connection_reused=opened is None if opening is not None else phases.reused,
            alpn=opening.alpn if opening is not None else None,
            tls_version=opening.tls_version if opening is not None else None,
            peer_address=opening.peer_address if opening is not None else None,
            connect_losers=opened.losers if opened is not None else (),
            peer_stream_window=phases.peer_stream_window,
            peer_connection_window=phases.peer_connection_window,
            round_trip_time_s=rtt_ns / 1e9 if rtt_ns is not None else None,
            congestion_window=phases.congestion_window,
            resent=phases.resent,
        )

    def answer_ended_ns(self, over_ns: int) -> int | None:
        """When the end of the answer had arrived, where a transport saw that before `over_ns`."""
        if self.phases.started_ns is None:
            return _until(over_ns, self._traced.get("ended_ns"))
        return _until(over_ns, self.phases.answer_ended_ns)

    def _record(self, wire: WireStamps, **known: Any) -> Attempt:
        return Attempt(
            number=self.number,
            kind=self.kind,
            wire=wire,
            form=self.form,
            status_code=self.status_code,
            error=self.error,
            origin=self.origin,
            path=_path_of(self.url),
            model=self.model,
            given_up=self.given_up,
            request_body_bytes=self.request_body_bytes,
            response_body_bytes=self.response_body_bytes,
            **known,
        )

    # A transport goes on for a while with what was given up: a cancelled stream's bytes still come. What came after
    # the end is no part of the attempt, so that its record is the same whenever it is made.

    def _traced_record(self, over_ns: int) -> Attempt:
        traced: Any = {name: stamp for name, stamp in dict(self._traced).items() if stamp <= over_ns}
        closed_ns, ended_ns = traced.pop("closed_ns", None), traced.pop("ended_ns", None)
        if ended_ns is None:
            ended_ns = self.ended_ns if self.ended_ns is not None else closed_ns
        return self._record(
            WireStamps(started_ns=self.started_ns, ended_ns=ended_ns, **traced),
            http_version=self._http_version,
            connection_id=self._connection_id,
            connection_reused="connect_started_ns" not in traced if traced else None,
        )

    def _phases_wire(self, opened: Opening | None, over_ns: int) -> WireStamps:
        phases = self.phases
        first_byte_ns = _until(over_ns, phases.first_byte_ns)
        data_ns = phases.data_ns[: bisect_right(phases.data_ns, over_ns)]
        ended_ns = _until(over_ns, phases.answer_ended_ns)
        if ended_ns is None:
            ended_ns = self.ended_ns
        if ended_ns is None:  # an answer that was left unread for another attempt: the last that came of it
            ended_ns = data_ns[-1] if len(data_ns) else first_byte_ns
        return WireStamps(
            started_ns=self.started_ns,
            connection_wait_started_ns=phases.connection_wait_started_ns,
            dns_started_ns=opened.dns_started_ns if opened is not None else None,
            dns_ended_ns=opened.dns_ended_ns if opened is not None else None,
            connect_started_ns=opened.connect_started_ns if opened is not None else None,
            connect_ended_ns=opened.connect_ended_ns if opened is not None else None,
            tls_started_ns=opened.tls_started_ns if opened is not None else None,
            tls_ended_ns=opened.tls_ended_ns if opened is not None else None,
            send_started_ns=_until(over_ns, phases.send_started_ns),
            send_ended_ns=_until(over_ns, phases.send_ended_ns),
            headers_received_ns=first_byte_ns,
            data_ns=data_ns,
            ended_ns=ended_ns,
        )


def _until(over_ns: int, stamp: int | None) -> int | None:
    return stamp if stamp is not None and stamp <= over_ns else None


def _opened_by(phases: Phases) -> Opening | None:
    """How the connection was opened, where the attempt waited for all of it; None where it came to it later."""
    opening = phases.opening
    if opening is None or phases.reused is not False or phases.started_ns is None:
        return None
    began_ns = opening.connect_started_ns if opening.dns_started_ns is None else opening.dns_started_ns
    return opening if began_ns >= phases.started_ns else None


def _path_of(url: Any) -> str | None:
    """The path of a URL of the HTTP library's, without its query."""
    raw = getattr(url, "raw_path", None)
    return raw.partition(b"?")[0].decode("ascii", "replace") if isinstance(raw, bytes) else None


def _local_address(stream: Any) -> str | None:
    try:
        address = stream.get_extra_info("client_addr")
    except Exception:  # noqa: BLE001 - the socket may be closed already: the id is then not known
        return None
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return None
