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

    @property
    def is_secure(self) -> bool:
        """Whether the connection is to be encrypted."""
        return self.scheme == "https"


def target_of(url: str) -> Target:
    """Take a base URL apart. Raises ConfigurationError for one that cannot work."""
    expected = "URL must be the base URL of an API, such as https://api.example.com/v1"
    origin = origin_of(url)
    if origin is None:
        # Neither a user nor a query is shown.
        raise ConfigurationError(f"{expected}, got {url.rpartition('@')[2].partition('?')[0]!r:.80}")
    parts = urlsplit(url.strip())
    if parts.username or parts.password:
        raise ConfigurationError("URL must not hold a name or a password: put the key into --api-key-env's variable")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"{expected}, without what follows a '?' or '#': leave that out")
    path = parts.path.rstrip("/")
    endpoint = next((each for each in _ENDPOINTS if path.endswith(each)), None)
    if endpoint is not None:
        raise ConfigurationError(f"{expected}, without {endpoint!r} at its end: leave that out")
    base_url = parts._replace(netloc=parts.netloc.lower(), path=path).geturl()
    return Target(scheme=origin.scheme, host=origin.host, port=origin.port, base_url=base_url)
