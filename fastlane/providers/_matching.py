"""Which origins a pattern such as `*.example.com` stands for."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ..errors import ConfigurationError

_PORTS = {"https": 443, "http": 80}
_ORIGIN = re.compile(
    r"""(?:(?P<scheme>https?)://)?
        (?:[^/?#@]*@)?
        (?P<host>\[[0-9a-f:.]+(?:%[^\]]*)?\]|[^\s/?#@:\[\]]+)
        (?::(?P<port>[0-9]{1,5}))?
        (?:[/?#].*)?""",
    re.VERBOSE | re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where requests go: what a URL says before its path."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The origins that something holds for; what is None may be anything.

    Without a port, only the usual one of a scheme is meant: what listens elsewhere on a provider's host is not its API.
    """

    scheme: str | None
    host: str
    port: int | None
    below: bool
    """Whether it means the names below `host` ("*.example.com"), and not `host` itself."""

    def matches(self, origin: Origin) -> bool:
        """Whether `origin` is one of them."""
        if self.scheme not in (None, origin.scheme) or (self.port or _PORTS[origin.scheme]) != origin.port:
            return False
        return origin.host.endswith(f".{self.host}") if self.below else origin.host == self.host

    @property
    def precision(self) -> tuple[bool, int, bool, bool]:
        """The larger, the fewer origins it means: of two that match, the larger one counts."""
        return not self.below, len(self.host), self.port is not None, self.scheme is not None


def origin_of(url: str) -> Origin | None:
    """Return the origin of a URL, whatever its path; None where it has none, or one that is not http."""
    found = _ORIGIN.fullmatch(url.strip())
    if found is None or found["scheme"] is None:
        return None
    scheme, host = found["scheme"].lower(), _normal(found["host"])
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    return None if host is None or port > 65_535 else Origin(scheme, host, port)


def pattern_of(text: str) -> Pattern:
    """Return the pattern that a text describes. Raises ConfigurationError where it describes none."""
    found = _ORIGIN.fullmatch(text.strip().replace("://*.", "://", 1).removeprefix("*."))
    below = text.strip().partition("://")[2].startswith("*.") or text.strip().startswith("*.")
    host = _normal(found["host"]) if found is not None else None
    port = int(found["port"]) if found is not None and found["port"] else None
    if found is None or host is None or (port is not None and not 0 < port <= 65_535) or (below and ":" in host):
        raise ConfigurationError(
            f'an origin must be like "https://api.example.com", "https://*.example.com" or "http://localhost:8000", '
            f"got {text!r}"
        )
    scheme = found["scheme"].lower() if found["scheme"] else None
    return Pattern(scheme=scheme, host=host, port=port, below=below)


def _normal(host: str) -> str | None:
    """A host as it is compared; None where it is none."""
    host = host.lower()
    if host.startswith("["):
        try:
            return ipaddress.IPv6Address(host[1:-1]).compressed
        except ValueError:
            return None
    host = host.removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    return host if all(_LABEL.fullmatch(label) for label in host.split(".")) else None
