"""What fastlane adds to one openai client: its pipeline, transport, request builder and account."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..compat.clients import http_client_of, key_provider_of, status_error_of
from ..compat.requests import Requests
from ..records import listeners
from .pipeline import Pipeline

_PORTS = {"http": 80, "https": 443}


class ClientState:
    """The state that fastlane adds to one openai client. Threads share it."""

    __slots__ = ("_origin", "accounts", "arms", "pipeline", "requests", "transport")

    def __init__(self, pipeline: Pipeline, transport: str, requests: Requests) -> None:
        self.pipeline = pipeline
        self.transport = transport
        self.requests = requests
        self.accounts = Accounts()
        """Digests of the client's credentials."""
        self.arms: Any = None
        """The arms of the client's experiment; None without an experiment."""
        self._origin: tuple[Any, str] = (None, "")
        listeners.listener.prepare()

    def origin(self, base_url: Any) -> str:
        """Return scheme://host:port of a base URL. The last result is cached."""
        known = self._origin  # replaced as a whole: threads share it
        if known[0] is not base_url:
            port = base_url.port or _PORTS.get(base_url.scheme, 0)
            known = self._origin = (base_url, f"{base_url.scheme}://{_bracketed(base_url.host)}:{port}")
        return known[1]


@lru_cache(maxsize=256)
def origin_of(url: str) -> str:
    """Return scheme://host:port of an absolute URL."""
    parsed = urlsplit(url)
    return f"{parsed.scheme}://{_bracketed(parsed.hostname or '')}:{parsed.port or _PORTS.get(parsed.scheme, 0)}"


@lru_cache(maxsize=256)
def endpoint_of(url: str) -> str:
    """Return the path of a request's URL without its query."""
    path = url.partition("?")[0]
    if "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return path if path.startswith("/") else "/" + path


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# The account that makes a call, as digests. The key itself is never stored.

# Digests with this key mean nothing outside of this process.
_SECRET = os.urandom(32)
# Replicas must compute the same name. An API key has more than 100 random bits, so its digest cannot be searched.
_SHARED = b"fastlane pacing"
_CREDENTIALS = frozenset({"authorization", "api-key", "openai-organization", "openai-project"})


class Account(NamedTuple):
    """Digests of the credentials of a call."""

    here: bytes
    """Keyed with a random key of this process."""
    anywhere: str
    """The same in every process."""


class Accounts:
    """Computes the account of one client, and caches it while the credentials stay the same."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[tuple[Any, ...], Account] | None = None

    def of(self, client: Any, options: Any) -> Account:
        """Return the account of a call with this client and these options."""
        given = options.headers
        own: tuple[str, ...] = ()
        if given and isinstance(given, Mapping):
            own = tuple(str(value) for name, value in given.items() if name.lower() in _CREDENTIALS)
        # A provider of keys may return a new key for each call: identify the account by the provider.
        asked = key_provider_of(client)
        key = client.api_key if asked is None else id(asked)
        of = (key, client.organization, client.project, *own)
        known = self._known
        if known is not None and known[0] == of:
            return known[1]
        account = _account(of if asked is None else ("provider", *of[1:]), of)
        if not own:
            self._known = of, account
        return account


def _account(anywhere: tuple[Any, ...], here: tuple[Any, ...]) -> Account:
    return Account(
        blake2b(repr(here).encode(), key=_SECRET, digest_size=16).digest(),
        blake2b(repr(anywhere).encode(), key=_SHARED, digest_size=16).hexdigest(),
    )


class Caller:
    """What plays may use of the client that makes a call, at one upstream."""

    __slots__ = ("_options", "_pipeline", "client")

    def __init__(self, client: Any, options: Any) -> None:
        self.client = client
        self._options = options
        self._pipeline = client._fastlane.pipeline

    @property
    def http_client(self) -> Any:
        """The HTTP client that sends the requests."""
        return http_client_of(self.client)

    @property
    def max_retries(self) -> int:
        """How often openai's rules may retry an attempt, by the setting of the application."""
        retries: int = self._options.get_max_retries(self.client.max_retries)
        return retries

    @property
    def account(self) -> Account:
        """Digests of key, organisation and project. Calls of one account share the provider's limits."""
        account: Account = self.client._fastlane.accounts.of(self.client, self._options)
        return account

    def error_of(self, response: Any) -> Exception:
        """Return openai's error for a response whose status is not a success."""
        return status_error_of(response, self.client)

    def report_error(self, play: str, step: str, error: Exception) -> None:
        """Log an error of a play once; with `raise_play_errors`, raise PlayError."""
        self._pipeline.report_error(play, step, error)

    def later(self, function: Callable[[], object]) -> None:
        """Call a function soon, after the finalizer that may be running. Takes no lock."""
        self._pipeline.report_later(function)
