"""Make clients for other upstreams from a client."""

from __future__ import annotations

import inspect
from typing import Any

from openai import DEFAULT_TIMEOUT

from ..compat.clients import forget_given, http_client_of, pool_settings_of, validates_strictly
from ..compat.requests import Requests
from ..engine.client_state import ClientState
from ..plays import Connection
from .configuration import Obstacle, make_pipeline, pooled_http_client, wanted_settings

# Attributes that identify an account. Not every version of openai has all of them.
_IDENTITY = ("admin_api_key", "organization", "project", "webhook_secret")


def upstream_client(client: Any, kind: type[Any], base_url: str, key: str) -> Any:
    """Return a client of the class `kind` for another upstream, without the original's keys and headers.

    It shares the client's pipeline, and its connections if those are fastlane's.
    """
    asynchronous = client._asynchronous
    http_client = _http_client(client, asynchronous=asynchronous)
    known = inspect.signature(kind).parameters
    # Timeouts and retries are set in each call's options: clients of one pipeline may have different ones.
    made = kind(
        only_plays=(),
        api_key=key,
        base_url=base_url,
        http_client=http_client,
        _strict_response_validation=validates_strictly(client),
        # Empty strings, because openai reads missing ones from the environment.
        **{name: "" for name in _IDENTITY if name in known},
    )
    for name in _IDENTITY:
        if hasattr(made, name):
            setattr(made, name, None)
    # openai always reads OPENAI_CUSTOM_HEADERS.
    forget_given(made)
    transport = "stock" if http_client is None else "fastlane"
    made._fastlane = ClientState(client._fastlane.pipeline, transport, Requests(kind))
    return made


def _http_client(client: Any, *, asynchronous: bool) -> Any:
    """Make an HTTP client on the shared connections; None if openai has to make its own."""
    client_state = client._fastlane
    settings = pool_settings_of(http_client_of(client)) if client_state.transport == "fastlane" else None
    if settings is None:
        pipeline = client_state.pipeline
        if client_state.transport == "caller" and not any(isinstance(play, Connection) for play in pipeline.plays):
            # The application's `http_client` is for its own provider: use the default connections for others.
            pipeline = make_pipeline(None, [Connection()], None, False, asynchronous=asynchronous)
        wanted = wanted_settings(
            pipeline, workload_identity=None, provider=None, asynchronous=asynchronous, proxy=client._proxy
        )
        settings = None if isinstance(wanted, Obstacle) else wanted
    return None if settings is None else pooled_http_client(settings, DEFAULT_TIMEOUT, asynchronous=asynchronous)
