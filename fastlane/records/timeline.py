"""The timestamps of one call and of its attempts."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

TokenKind = Literal["content", "reasoning", "tool_call", "refusal", "audio"]
"""The kind of output of a token. Roles, usage reports and keep-alive comments are not tokens."""


def seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    """Return the seconds between two monotonic timestamps; None if either is unknown."""
    if start_ns is None or end_ns is None:
        return None
    return (end_ns - start_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class WireStamps:
    """The timestamps of one attempt in monotonic nanoseconds; None for what did not happen or was not observed."""

    started_ns: int
    """The attempt was handed to the HTTP client."""
    connection_wait_started_ns: int | None = None
    """The attempt began to wait for a connection; None if one was free."""
    dns_started_ns: int | None = None
    """Name resolution began; None if the host is an address, and if it is not measured apart from connecting."""
    dns_ended_ns: int | None = None
    connect_started_ns: int | None = None
    """TCP connect began, name resolution included if `dns_s` is unknown; None on a reused connection."""
    connect_ended_ns: int | None = None
    """TCP was connected, to the winning address if several were tried."""
    proxy_started_ns: int | None = None
    """TCP connect to the proxy began; then `connect_started_ns` and `connect_ended_ns` are None."""
    proxy_ended_ns: int | None = None
    """The proxy passes bytes on: TCP, TLS with an `https://` proxy, and its tunnel are open."""
    tls_started_ns: int | None = None
    tls_ended_ns: int | None = None
    send_started_ns: int | None = None
    """The first byte of the request was handed to the socket."""
    send_ended_ns: int | None = None
    """The last byte of the request was handed to the socket."""
    headers_received_ns: int | None = None
    """The head of the response had arrived; with fastlane's transport, its first byte."""
    data_ns: Sequence[int] = field(default_factory=lambda: array("q"))
    """Arrival of each piece of the response's body: an HTTP/2 frame, or a read of HTTP/1.1. Empty if not observed."""
    ended_ns: int | None = None
    """The last byte of the response had arrived, or the attempt failed or was given up."""

    @property
    def first_data_ns(self) -> int | None:
        """Arrival of the first piece of the response's body."""
        return self.data_ns[0] if len(self.data_ns) else None

    @property
    def queue_s(self) -> float | None:
        """Seconds until the attempt began to open a connection, or to send on an existing one."""
        return seconds(self.started_ns, self._connected_from_ns)

    @property
    def connection_wait_s(self) -> float | None:
        """The part of `queue_s` spent waiting for a connection; None if there was no wait."""
        return seconds(self.connection_wait_started_ns, self._connected_from_ns)

    @property
    def _connected_from_ns(self) -> int | None:
        for moment in (self.dns_started_ns, self.connect_started_ns, self.proxy_started_ns):
            if moment is not None:
                return moment
        return self.send_started_ns

    @property
    def dns_s(self) -> float | None:
        """Seconds of name resolution; None if the host is an address, or if it is not measured apart."""
        return seconds(self.dns_started_ns, self.dns_ended_ns)

    @property
    def connect_s(self) -> float | None:
        """Seconds of TCP connect, name resolution included if `dns_s` is unknown; None on a reused connection."""
        return seconds(self.connect_started_ns, self.connect_ended_ns)

    @property
    def proxy_s(self) -> float | None:
        """Seconds until the proxy passed bytes on: TCP, TLS with it, its tunnel; None on a reused connection."""
        return seconds(self.proxy_started_ns, self.proxy_ended_ns)

    @property
    def tls_s(self) -> float | None:
        """Seconds of the TLS handshake; None on a reused or a plain connection."""
        return seconds(self.tls_started_ns, self.tls_ended_ns)

    @property
    def send_s(self) -> float | None:
        """Seconds from the first to the last byte of the request handed to the socket."""
        return seconds(self.send_started_ns, self.send_ended_ns)

    @property
    def wait_s(self) -> float | None:
        """Seconds from the last byte of the request to the head of the response; 0 if the head arrived first."""
        wait_s = seconds(self.send_ended_ns, self.headers_received_ns)
        return wait_s if wait_s is None else max(0.0, wait_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The timestamps of one call in monotonic nanoseconds, retries included; None for what was not observed."""

    started_wall_ns: int
    """When the call was issued, in nanoseconds since the epoch: anchors the monotonic timestamps."""
    started_ns: int
    """The call was issued: the application entered the client's method."""
    ended_ns: int
    """The call ended for the application: answer returned, stream ended or closed, error raised."""
    answer_ended_ns: int | None = None
    """The last byte of the whole answer had arrived; None if it did not."""
    first_event_ns: int | None = None
    """The first server-sent event of a stream had arrived, whatever it carried."""
    first_token_ns: int | None = None
    """The first event that carries output (content, reasoning, tool call) had arrived."""
    first_token_kind: TokenKind | None = None
    first_content_token_ns: int | None = None
    """The first event that carries visible content had arrived."""
    token_ns: Sequence[int] = field(default_factory=lambda: array("q"))
    """Arrival of each event that carries output. Events that came in one read share one stamp."""
    validate_started_ns: int | None = None
    """The last check of a structured answer began; None without a check."""
    validate_ended_ns: int | None = None

    @property
    def last_token_ns(self) -> int | None:
        """Arrival of the last event that carries output; None before the first and without a stream."""
        return self.token_ns[-1] if len(self.token_ns) else None
