"""What fastlane keeps of one openai client: its plays, its transport, and what builds its requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from ..compat.requests import Requests
from ..records import listeners
from .caller import Accounts
from .pipeline import Pipeline

_PORTS = {"http": 80, "https": 443}


class ClientState:
    """The state that fastlane adds to one openai client."""

    __slots__ = ("_origin", "accounts", "arms", "data", "pipeline", "requests", "transport")

    def __init__(self, pipeline: Pipeline, transport: str, requests: Requests) -> None:
        self.pipeline = pipeline
        self.transport = transport
        self.requests = requests
        self.accounts = Accounts()
        """Who calls with this client, without its key."""
        self.arms: Any = None
        """Those of the client's experiment; None if it takes part in none."""
        self.data: Mapping[type, Any] = {}
        """What is attached to its calls, by its class; it counts more than what a block attaches."""
        self._origin: tuple[Any, str] = (None, "")
        if pipeline.needs_facts:
            # With the client and not with its first call, which may be made on an event loop: 30 ms of CPU.
            from .. import providers  # noqa: F401
        listeners.listener.prepare()

    def origin(self, base_url: Any) -> str:
        """scheme://host:port of a base URL, remembered while it stays the same."""
        known = self._origin  # replaced as a whole: threads share it
        if known[0] is not base_url:
            port = base_url.port or _PORTS.get(base_url.scheme, 0)
            known = self._origin = (base_url, f"{base_url.scheme}://{_bracketed(base_url.host)}:{port}")
        return known[1]


@lru_cache(maxsize=256)
def origin_of(url: str) -> str:
    """scheme://host:port of an absolute URL."""
    parsed = urlsplit(url)
    return f"{parsed.scheme}://{_bracketed(parsed.hostname or '')}:{parsed.port or _PORTS.get(parsed.scheme, 0)}"


@lru_cache(maxsize=256)
def endpoint_of(url: str) -> str:
    """The path of a request without its query, as openai's resources give it."""
    path = url.partition("?")[0]
    if "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return path if path.startswith("/") else "/" + path


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
