"""The record of an attempt: what was sent, where to, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .timeline import WireStamps

Form = Literal["json", "json+gzip", "msgpack", "msgpack+gzip"]
"""The encoding of a request's body: JSON or MessagePack, plain or gzipped."""

AttemptKind = Literal["first", "plain", "retry", "repair", "fallback", "hedge", "resume"]
"""Why an attempt was made.

- first: the first attempt of the call
- plain: the provider refused a change by a play: sent again at once as plain JSON, or without an added field
- retry: the previous attempt failed
- repair: the previous answer was not valid
- fallback: another upstream, because the previous one failed
- hedge: a second attempt while the first one was late; the first one may still win
- resume: the stream of the previous attempt broke: this one goes on where it broke off
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One HTTP request of a call."""

    number: int
    """1 for the first."""
    kind: AttemptKind
    wire: WireStamps
    form: Form = "json"
    """The encoding of the body."""
    status_code: int | None = None
    error: str | None = None
    """Class name of the error that ended the attempt. Never its message, which may quote the prompt."""
    origin: str | None = None
    """scheme://host:port of the provider."""
    path: str | None = None
    """The path of the URL without its query: "/v1/chat/completions"."""
    model: str | None = None
    """The requested model."""
    given_up: Literal["late", "lost"] | None = None
    """"late": its first token had not come in time; "lost": another attempt's first content came before."""
    http_version: str | None = None
    """"HTTP/2" or "HTTP/1.1"."""
    connection_id: str | None = None
    """Local address and port of the connection: tells connections apart while they are open."""
    connection_reused: bool | None = None
    """Whether the connection was open already; None if unknown."""
    alpn: str | None = None
    """The protocol negotiated by ALPN ("h2", "http/1.1")."""
    tls_version: str | None = None
    peer_address: str | None = None
    """Host and port of the remote address: the proxy's if there is one."""
    proxy: str | None = None
    """Host and port of the proxy as it was configured, without username and password; None without a proxy."""
    round_trip_time_s: float | None = None
    """Seconds of round-trip time when the request was sent: the kernel's smoothed value (Linux). With a proxy in
    between, or on other systems, the smallest recent value measured on HTTP."""
    resent: int = 0
    """How often the transport sent the request again, because the server had not processed it: 0 or 1."""
    request_body_bytes: int | None = None
    """Bytes of the request's body as sent; None if unknown."""
    response_body_bytes: int | None = None
    """Bytes of the response's body as received, before decompression; None if unknown."""
