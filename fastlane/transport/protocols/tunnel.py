"""Request a tunnel to a server from a proxy, without I/O: HTTP's CONNECT, and SOCKS 5 (RFC 1928, RFC 1929)."""

from __future__ import annotations

import ipaddress
from collections.abc import Generator, Sequence
from http import HTTPStatus

import h11

from .exchange import TransportError, authority_of
from .h1 import h11_error

Tunnel = Generator[bytes, bytes, bytes]
"""Yields what to send, is sent what has come, and returns what came behind the proxy's answer.

Raises TransportError without the proxy's name, which the caller adds.
"""

# Of the head of an answer to CONNECT: far more than any proxy sends.
_MAX_HEAD_BYTES = 16_384

_NO_AUTHENTICATION, _USERNAME_PASSWORD = 0, 2
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REFUSALS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
    7: "command not supported",
    8: "address type not supported",
}


def merged_headers(
    defaults: Sequence[tuple[bytes, bytes]], given: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return the given headers, after the defaults that they do not replace."""
    names = {name.lower() for name, _ in given}
    return [*(pair for pair in defaults if pair[0].lower() not in names), *given]


def http_tunnel(host: str, port: int, headers: Sequence[tuple[bytes, bytes]]) -> Tunnel:
    """Ask an HTTP proxy for a tunnel. `headers`: for the proxy, with its credentials."""
    target = authority_of(host, port)
    defaults = [(b"Host", target.encode()), (b"Accept", b"*/*")]
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
    try:
        request = h11.Request(method=b"CONNECT", target=target, headers=merged_headers(defaults, headers))
        outgoing = (connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b"")
        event: object = h11.NEED_DATA
        while not isinstance(event, h11.Response):
            if event is h11.NEED_DATA:
                connection.receive_data((yield outgoing))
                outgoing = b""
            event = connection.next_event()
    except h11.ProtocolError as error:
        raise TransportError("ProxyError", f"invalid answer to CONNECT {target}: {h11_error(error)}") from None
    status = event.status_code
    if status >= 300:
        # The reason in the proxy's own words may quote what it was sent.
        known = f" ({HTTPStatus(status).phrase})" if status in set(HTTPStatus) else ""
        raise TransportError("ProxyError", f"CONNECT {target} was answered with status {status}{known}")
    return connection.trailing_data[0]


def socks5_tunnel(host: str, port: int, credentials: tuple[bytes, bytes] | None) -> Tunnel:
    """Ask a SOCKS 5 proxy for a tunnel. The proxy resolves a name. `credentials`: username and password."""
    received = bytearray()

    def reply(count: int, outgoing: bytes = b"") -> Tunnel:
        while outgoing or len(received) < count:
            received.extend((yield outgoing))
            outgoing = b""
        taken = bytes(received[:count])
        del received[:count]
        return taken

    methods = bytes([_NO_AUTHENTICATION] if credentials is None else [_NO_AUTHENTICATION, _USERNAME_PASSWORD])
    version, method = yield from reply(2, bytes([5, len(methods)]) + methods)
    if version != 5:
        raise TransportError("ProxyError", "it does not speak SOCKS 5")
    if method == _USERNAME_PASSWORD and credentials is not None:
        username, password = credentials
        login = bytes([1, len(username)]) + username + bytes([len(password)]) + password
        _, failed = yield from reply(2, login)
        if failed:
            raise TransportError("ProxyError", "it refuses the username and password")
    elif method != _NO_AUTHENTICATION:
        wants = (
            "it asks for a username and a password"
            if credentials is None
            else "it takes no username and password, and asks for something else"
        )
        raise TransportError("ProxyError", wants)
    request = b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2, "big")
    version, code = yield from reply(2, request)
    if version != 5 or code:
        why = _REFUSALS.get(code, f"code {code}") if version == 5 else "invalid answer"
        raise TransportError("ProxyError", f"no connection to {authority_of(host, port)}: {why}")
    _, kind = yield from reply(2)
    if kind not in (_IPV4, _NAME, _IPV6):
        raise TransportError("ProxyError", f"invalid answer: address type {kind}")
    size = 4 if kind == _IPV4 else 16 if kind == _IPV6 else (yield from reply(1))[0]
    yield from reply(size + 2)
    return bytes(received)


def _socks_address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        if len(name) > 255:
            raise TransportError("ProxyError", "the server's name is too long for SOCKS 5") from None
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed
