"""The base URL that the doctor examines."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from ..providers.origins import Origin, origin_of

_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Origin):
    """A provider's base URL, such as https://api.example.com/v1."""

    base_url: str
    """Without a slash at its end."""
    path: str
    """The base URL's path without a slash at its end; may be empty."""
    authority: str
    """Host and port as a request names them: without the default port."""

    @property
    def is_secure(self) -> bool:
        """Whether the connection is to be encrypted."""
        return self.scheme == "https"


def target_of(url: str) -> Target:
    """Take a base URL apart. Raises ConfigurationError for one that cannot work."""
    expected = "URL must be the base URL of an API, such as https://api.example.com/v1"
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"{expected}, got one that cannot be read ({error})") from error
    origin = origin_of(url)
    if origin is None:
        # Neither a user nor a query is shown.
        shown = url.rpartition("@")[2].partition("?")[0][:80]
        raise ConfigurationError(f"{expected}, and begin with https:// or http://, got {shown!r}")
    if parts.username or parts.password:
        raise ConfigurationError("URL must not hold a name or a password: put the key into --api-key-env's variable")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"{expected}, without what follows a '?' or '#': leave that out")
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        if path.endswith(endpoint):
            raise ConfigurationError(f"{expected}, without {endpoint!r} at its end: leave that out")
    is_default = origin.port == (443 if origin.scheme == "https" else 80)
    host = origin.origin.removeprefix(f"{origin.scheme}://").removesuffix(f":{origin.port}")
    return Target(
        scheme=origin.scheme,
        host=origin.host,
        port=origin.port,
        base_url=f"{origin.scheme}://{host}{'' if port is None else f':{port}'}{path}",
        path=path,
        authority=host if is_default else f"{host}:{origin.port}",
    )
