"""A certificate authority made at start, and the server's certificate by it."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from dataclasses import dataclass

from fastlane.errors import MissingExtraError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """The server's TLS context, and the authority (PEM) by which a client can trust it."""

    context: ssl.SSLContext
    authority_pem: bytes


def make_tls(host: str, *, http2: bool) -> ServerTls:
    """Make an authority that lives as long as this process, and a certificate for loopback and `host`.

    Raises MissingExtraError.
    """
    try:
        import trustme
    except ModuleNotFoundError as error:
        raise MissingExtraError("bench", "trustme") from error
    authority = trustme.CA(organization_name="fastlane emulator")
    names = ["localhost", "127.0.0.1", "::1"]
    unspecified = False
    with contextlib.suppress(ValueError):
        unspecified = ipaddress.ip_address(host).is_unspecified
    if host not in names and not unspecified:
        names.append(host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return ServerTls(context=context, authority_pem=authority.cert_pem.bytes())
