"""What the record of a call says of each attempt: what was sent, where to, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..transport.protocols.exchange import Loser
from .timeline import WireStamps

Form = Literal["json", "json+gzip", "msgpack", "msgpack+gzip"]
"""How a request's body is written: JSON or MessagePack, as it is or gzipped."""

AttemptKind = Literal["first", "plain", "retry", "repair", "fallback", "hedge"]
"""Why an attempt was made.

- first: the call's first one
- plain: once more at once, because the provider had refused what a play made of it: as JSON where it was encoded,
  without a field that was added
- retry: the one before had failed
- repair: the answer before was not valid
- fallback: another upstream, because the one before had failed
- hedge: the one before was late, and may still have won
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a call on the wire."""

    number: int
    """1 for the first."""
    kind: AttemptKind
    wire: WireStamps
    form: Form = "json"
    """In which form the body was sent."""
    status_code: int | None = None
    error: str | None = None
    """Class name of the error that ended the attempt. Never its message, which may quote the prompt."""
    origin: str | None = None
    """Where it went: scheme://host:port."""
    path: str | None = None
    """What it asked for there, without a query: "/v1/chat/completions"."""
    model: str | None = None
    """The model that it asked for."""
    given_up: Literal["late", "lost"] | None = None
    """"late": its first token had not come in time; "lost": another attempt's first content came before."""
    http_version: str | None = None
    """"HTTP/2" or "HTTP/1.1"."""
    connection_id: str | None = None
    """Local address and port of the connection: tells connections apart while they are open."""
    connection_reused: bool | None = None
    """False where this attempt had the connection opened; None where the HTTP client did not say."""
    alpn: str | None = None
    """The protocol that TLS agreed on ("h2", "http/1.1")."""
    tls_version: str | None = None
    peer_address: str | None = None
    """Host and port of the address that the connection goes to."""
    connect_losers: tuple[Loser, ...] = ()
    """Addresses that were tried for the connection and not taken, each with its outcome."""
    peer_stream_window: int | None = None
    """Body bytes that the peer took at once for this request, when it was sent (HTTP/2)."""
    peer_connection_window: int | None = None
    """Body bytes that the peer took at once for the whole connection, when the request was sent (HTTP/2)."""
    round_trip_time_s: float | None = None
    """Round-trip time to the server's end of HTTP when the request was sent: the kernel's smoothed one (Linux). Where a
    proxy stands in between or the kernel does not say, the smallest that HTTP itself has seen of late."""
    congestion_window: int | None = None
    """Segments that TCP let be on their way at once when the request was sent, after what silence had taken: the
    kernel's (Linux). Where a proxy stands in between or the kernel does not say, what slow start leads to."""
    resent: int = 0
    """How often the request was sent again, because the server had certainly not processed it: 0 or 1."""
    request_body_bytes: int | None = None
    """Bytes of the request's body as sent."""
    response_body_bytes: int | None = None
    """Bytes of the answer's body as received, before decompression."""
