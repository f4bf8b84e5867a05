"""Load what a first call needs before a server takes its first request, and before a process forks."""

from __future__ import annotations

import os
import platform
import sys
import weakref
from contextlib import suppress
from typing import Any

from ..compat.clients import http_client_of, pool_settings_of
from ..decode import answer_decoder, event_decoder

# A process that has one of these imported serves requests: it is the first one that must not wait.
_SERVERS = frozenset({"celery", "granian", "gunicorn", "hypercorn", "uvicorn", "uwsgi"})

_latest: dict[bool, weakref.ref[Any]] = {}
"""The sync and the async client that were made last."""


def register(client: Any) -> None:
    """Prepare a new client now in a server, and before the first fork elsewhere."""
    _latest[client._asynchronous] = weakref.ref(client)
    if not _SERVERS.isdisjoint(sys.modules):
        prepare(client)


def prepare(client: Any) -> None:
    """Import modules, make decoders of chat answers, read certificates and facts. Fast once that is done; never raises.

    What cannot be loaded raises its error where it is used: when a connection is opened, or at the call.
    """
    with suppress(Exception):
        client.chat.completions  # noqa: B018 - imports openai's module
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        answer_decoder(ChatCompletion)
        event_decoder(ChatCompletionChunk)
        platform.platform()  # openai sends it
        pipeline = client._fastlane.pipeline
        if pipeline.needs_facts:
            pipeline.providers.facts_of(client._fastlane.origin(client.base_url))
        settings = pool_settings_of(http_client_of(client))
        if settings is not None:
            import encodings.idna  # noqa: F401 - for the names of hosts

            from ..transport.drivers.connect import ssl_context

            ssl_context(settings.verify, settings.certificates, settings.http2, library=settings.library)


def _prepare_before_fork() -> None:
    # Each once: what is done for the first fork lasts, and under gevent `prepare` forks by itself.
    with suppress(KeyError):
        while True:
            client = _latest.popitem()[1]()
            if client is not None:
                prepare(client)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_prepare_before_fork)
