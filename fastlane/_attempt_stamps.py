"""Collect the stamps of one attempt from the HTTP client's trace events."""

from __future__ import annotations

from typing import Any

from ._call import Attempt
from ._clock import now_ns
from ._timeline import WireStamps

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
        "closed_ns",
        "connect_ended_ns",
        "connect_started_ns",
        "connection_id",
        "ended_ns",
        "error",
        "headers_received_ns",
        "http_version",
        "number",
        "request_body_bytes",
        "response_body_bytes",
        "send_ended_ns",
        "send_started_ns",
        "started_ns",
        "status_code",
        "tls_ended_ns",
        "tls_started_ns",
        "traced",
    )

    def __init__(self, number: int, request_body_bytes: int | None) -> None:
        self.number = number
        self.request_body_bytes = request_body_bytes
        self.connect_started_ns: int | None = None
        self.connect_ended_ns: int | None = None
        self.tls_started_ns: int | None = None
        self.tls_ended_ns: int | None = None
        self.send_started_ns: int | None = None
        self.send_ended_ns: int | None = None
        self.headers_received_ns: int | None = None
        self.ended_ns: int | None = None
        self.closed_ns: int | None = None
        """The answer was closed, read to its end or not."""
        self.status_code: int | None = None
        self.error: str | None = None
        self.http_version: str | None = None
        self.connection_id: str | None = None
        self.response_body_bytes: int | None = None
        self.traced = False
        self.started_ns = now_ns()

    def trace(self, event: str, _info: dict[str, Any]) -> None:
        """The trace extension of a synchronous request."""
        stamp = _STAMPS.get(event)
        if stamp is not None:
            self.traced = True
            setattr(self, stamp, now_ns())

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
        extensions = response.extensions
        version = extensions.get("http_version")
        self.http_version = version.decode("ascii", "replace") if isinstance(version, bytes) else None
        stream = extensions.get("network_stream")
        if stream is not None:
            self.connection_id = _local_address(stream)

    def record(self) -> Attempt:
        """The attempt as it stands: to be called when it is over."""
        return Attempt(
            number=self.number,
            kind="first" if self.number == 1 else "retry",
            wire=WireStamps(
                started_ns=self.started_ns,
                connect_started_ns=self.connect_started_ns,
                connect_ended_ns=self.connect_ended_ns,
                tls_started_ns=self.tls_started_ns,
                tls_ended_ns=self.tls_ended_ns,
                send_started_ns=self.send_started_ns,
                send_ended_ns=self.send_ended_ns,
                headers_received_ns=self.headers_received_ns,
                ended_ns=self.ended_ns if self.ended_ns is not None else self.closed_ns,
            ),
            status_code=self.status_code,
            error=self.error,
            http_version=self.http_version,
            connection_id=self.connection_id,
            connection_reused=self.connect_started_ns is None if self.traced else None,
            request_body_bytes=self.request_body_bytes,
            response_body_bytes=self.response_body_bytes,
        )


def _local_address(stream: Any) -> str | None:
    try:
        address = stream.get_extra_info("client_addr")
    except Exception:  # noqa: BLE001 - the socket may be closed already: the id is then not known
        return None
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return None
