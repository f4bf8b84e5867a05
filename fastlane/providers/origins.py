"""Origins: read from URLs, and matched by patterns such as `https://*.example.com`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from ..errors import ConfigurationError

_PORTS = {"https": 443, "http": 80}
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The part of a URL before its path."""

    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> str:
        """Return `scheme://host:port`."""
        return f"{self.scheme}://{_in_url(self.host)}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine by its name or address."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginPattern:
    """The origins that facts hold for. None matches anything, but without a port only the scheme's default matches."""

    scheme: str | None
    host: str
    port: int | None
    below: bool
    """Whether it matches the names below `host` ("*.example.com"), and not `host` itself."""

    def matches(self, origin: Origin) -> bool:
        """Return whether an origin matches."""
        if self.scheme not in (None, origin.scheme) or (self.port or _PORTS[origin.scheme]) != origin.port:
            return False
        return origin.host.endswith(f".{self.host}") if self.below else origin.host == self.host

    @property
    def precision(self) -> tuple[bool, int, bool, bool]:
        """Of two patterns that match, the one with the higher precision counts."""
        return not self.below, len(self.host), self.port is not None, self.scheme is not None


def origin_of(url: str) -> Origin | None:
    """Return the origin of a URL, or None for a URL without one, or with another scheme than http and https."""
    parts, host, port = _parts(url)
    if parts is None or host is None or parts.scheme not in _PORTS:
        return None
    return Origin(scheme=parts.scheme, host=host, port=_PORTS[parts.scheme] if port is None else port)


def pattern_of(text: str) -> OriginPattern:
    """Return the pattern of a text. Raises ConfigurationError."""
    scheme, mark, rest = text.strip().rpartition("://")
    below = rest.startswith("*.")
    parts, host, port = _parts(f"//{rest.removeprefix('*.')}")
    if parts is None or host is None or port == 0 or (below and ":" in host) or scheme.lower() not in ("", *_PORTS):
        raise ConfigurationError(
            f'an origin must be like "https://api.example.com", "https://*.example.com" or "http://localhost:8000", '
            f"got {text!r}"
        )
    return OriginPattern(scheme=scheme.lower() if mark else None, host=host, port=port, below=below)


def _parts(url: str) -> tuple[SplitResult | None, str | None, int | None]:
    """Return the parts of a URL, its host in normal form, and its port; None for what cannot be read."""
    try:
        parts = urlsplit(url.strip())
        return parts, _normal(parts.hostname or ""), parts.port
    except ValueError:
        return None, None, None


def _normal(host: str) -> str | None:
    if ":" in host:
        return ipaddress.IPv6Address(host).compressed
    host = host.removesuffix(".")
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    return host if all(_LABEL.fullmatch(label) for label in host.split(".")) else None


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
