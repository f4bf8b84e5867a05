"""What makes two clients share connections."""

from __future__ import annotations

import importlib
import os
import re
import ssl
from base64 import b64encode
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

from ..protocols.exchange import authority_of

Http2 = Literal["prefer", "require", "never"]

# How often a connection without traffic looks at the time, at most and at least.
LONGEST_TICK_S = 5.0
_SHORTEST_TICK_S = 0.05


class ServerOrigin(NamedTuple):
    """The scheme, host, port and certificate name of a server."""

    scheme: str
    host: str
    port: int
    server_hostname: str
    """The name that the certificate has to carry, and that TLS asks for."""


_PROXY_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_PROXY_URL = "a URL such as http://user:password@proxy.example:3128"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProxyServer:
    """A proxy. Its text has neither username nor password."""

    scheme: str
    """"http", "https", "socks5" or "socks5h"; with both of the last the proxy resolves names."""
    host: str
    port: int
    credentials: tuple[bytes, bytes] | None = None
    """Username and password."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Further ones for an HTTP proxy."""
    verify: bool | ssl.SSLContext = True
    """Whom TLS with an `https://` proxy trusts."""

    def __repr__(self) -> str:
        return f"ProxyServer('{self}')"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}"

    @property
    def address(self) -> str:
        """Host and port."""
        return authority_of(self.host, self.port)

    @property
    def all_headers(self) -> list[tuple[bytes, bytes]]:
        """What an HTTP proxy gets: the credentials, and `headers`."""
        if self.credentials is None:
            return [*self.headers]
        return [(b"Proxy-Authorization", b"Basic " + b64encode(b":".join(self.credentials))), *self.headers]

    def forwards(self, origin: ServerOrigin) -> bool:
        """Whether it gets whole requests for the origin, with absolute URLs, instead of a tunnel."""
        return origin.scheme == "http" and self.scheme in ("http", "https")


def proxy_server(given: Any, library: str = "httpx2") -> ProxyServer:
    """Return the proxy of a URL, or of the library's `Proxy`. Raises ValueError, which quotes the scheme at most."""
    if isinstance(given, ProxyServer):
        return given
    url = getattr(given, "url", given)
    if not isinstance(url, str) and type(url).__name__ != "URL":
        raise ValueError(f"{_PROXY_URL}; got an object of type {type(given).__name__}")
    named = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", str(url))
    scheme = "" if named is None else named[1].lower()
    if scheme not in _PROXY_PORTS:
        got = f"the scheme {scheme!r}" if scheme else "no scheme"
        raise ValueError(f"{_PROXY_URL} (http://, https://, socks5:// or socks5h://); got {got}")
    try:
        parsed = importlib.import_module(library).URL(str(url))
        host, port = parsed.raw_host.decode("ascii"), parsed.port
        credentials = getattr(given, "raw_auth", None)
        if credentials is None and (parsed.username or parsed.password):
            credentials = parsed.username.encode(), parsed.password.encode()
    except UnicodeError:
        raise ValueError(f"{_PROXY_URL}; the given username, password or host cannot be encoded") from None
    except Exception:  # noqa: BLE001 - the library's InvalidURL, whose text quotes the URL
        raise ValueError(f"{_PROXY_URL}; the given one is no valid URL") from None
    port = _PROXY_PORTS[scheme] if port is None else port
    if not host or not 0 < port <= 65_535:
        raise ValueError(f"{_PROXY_URL}, with a host and a port from 1 to 65535")
    if credentials is not None and scheme.startswith("socks") and max(map(len, credentials)) > 255:
        raise ValueError(f"{_PROXY_URL}; for SOCKS 5 with at most 255 bytes of username and of password")
    headers = getattr(given, "headers", None)
    return ProxyServer(
        scheme=scheme,
        host=host,
        port=port,
        credentials=credentials,
        headers=() if headers is None else tuple(headers.raw),
        verify=getattr(given, "ssl_context", None) or True,
    )


class ProxyRule(NamedTuple):
    """The proxy for the URLs of a pattern."""

    pattern: Any
    """Of the HTTP library, with `matches(url)`; None: every URL."""
    proxy: ProxyServer | None
    """None: no proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Settings of a pool of connections, which clients with equal settings share. Raises ValueError."""

    library: str = "httpx2"
    """The HTTP library whose requests and answers are spoken: "httpx2", or "httpx" for openai 2."""
    http2: Http2 = "prefer"
    idle_s: float = 300.0
    max_connections: int = 1_000
    ping_s: float | None = 45.0
    verify: bool | ssl.SSLContext = True
    certificates: tuple[str | None, str | None] = (None, None)
    """SSL_CERT_FILE and SSL_CERT_DIR, as they were when the client was made."""
    proxies: tuple[ProxyRule, ...] = ()
    """The first that is about a server's URL says how the server is reached."""

    def __post_init__(self) -> None:
        if self.http2 not in ("prefer", "require", "never"):
            raise ValueError(f'http2 is "prefer", "require" or "never", not {self.http2!r}')
        if self.max_connections < 1:
            raise ValueError(f"max_connections is at least 1, not {self.max_connections!r}")
        if not self.idle_s >= 0:
            raise ValueError(f"idle_s is a number of seconds from 0, not {self.idle_s!r}")
        if self.ping_s is not None and not self.ping_s > 0:
            raise ValueError(f"ping_s is a number of seconds above 0, or None for no pings, not {self.ping_s!r}")

    def proxy_for(self, scheme: str, host: str, port: int | None) -> ProxyServer | None:
        """Return the proxy through which a server is reached; None for none."""
        if not self.proxies:
            return None
        url = library_of(self).URL(scheme=scheme, host=host, port=port)
        return next((proxy for pattern, proxy in self.proxies if pattern is None or pattern.matches(url)), None)

    def route_to(self, origin: ServerOrigin) -> str:
        """Return a server's host and port and the proxy on the way to it, for messages."""
        proxy, server = self.proxy_for(*origin[:3]), authority_of(origin.host, origin.port)
        return server if proxy is None else f"{server} through the proxy {proxy.address}"


def tick_s(settings: PoolSettings) -> float:
    """Seconds after which a connection without traffic looks at the time."""
    wanted = min(LONGEST_TICK_S, settings.idle_s / 4, (settings.ping_s or LONGEST_TICK_S) / 4)
    return max(_SHORTEST_TICK_S, wanted)


def certificates_now() -> tuple[str | None, str | None]:
    """Return the certificates that the environment names now."""
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


def library_of(settings: PoolSettings) -> ModuleType:
    """Return the HTTP library, such as httpx2."""
    return importlib.import_module(settings.library)  # imported by openai already


def core_name(settings: PoolSettings) -> str:
    """Return the name of the library underneath it, such as httpcore2."""
    return settings.library.replace("httpx", "httpcore")
