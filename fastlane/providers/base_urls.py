"""The URL that is looked at, taken apart."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import ConfigurationError

_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A provider's base URL, such as https://api.example.com/v1."""

    base_url: str
    """Without a slash at its end."""
    scheme: str
    host: str
    port: int
    path: str
    """The base URL's path without a slash at its end; may be empty."""

    @property
    def is_secure(self) -> bool:
        """Whether the connection is to be encrypted."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port as a request names them: without the port where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """scheme://host:port, as facts are found by."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine by its name or address."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def target_of(url: str) -> Target:
    """Take a base URL apart. Raises ConfigurationError for one that cannot work."""
    wanted = "the base URL of an API, such as https://api.example.com/v1"
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"URL must be {wanted}, got one that cannot be read ({error})") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigurationError(
            f"URL must be {wanted}, and begin with https:// or http://, got {_without_secrets(url)!r}"
        )
    if parts.username or parts.password:
        raise ConfigurationError("URL must not hold a name or a password: put the key into --api-key-env's variable")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"URL must be {wanted}, without what follows a '?' or '#': leave that out")
    path = parts.path.rstrip("/")
    for endpoint in ("/chat/completions", "/completions", "/responses", "/models"):
        if path.endswith(endpoint):
            raise ConfigurationError(f"URL must be {wanted}, without {endpoint!r} at its end: leave that out")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    given = f":{parts.port}" if parts.port is not None else ""
    return Target(
        base_url=f"{parts.scheme}://{host}{given}{path}",
        scheme=parts.scheme,
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path=path,
    )


def _without_secrets(url: str) -> str:
    """As much of a URL as can be shown: nothing before an @ and nothing after a question mark."""
    return url.rpartition("@")[2].partition("?")[0][:80]
