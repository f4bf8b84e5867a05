"""Processes that may be killed at any moment and be born again within milliseconds: providers, workers of a queue."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import multiprocessing
import os
import resource
import signal
import ssl
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Self

import trustme

import fastlane
from fastlane import RateLimits, Urgency
from fastlane.batch.queue import open_storage
from fastlane.batch.settings import WorkerSettings
from fastlane.batch.worker import QueueWorker
from fastlane.emulator import ProviderModel, RequestLog, Server

_HOST = "127.0.0.1"
_CONTEXT = multiprocessing.get_context("forkserver")
# What a client with these plays imports only then is imported before the first fork: a life is to be spent with work.
with fastlane.OpenAI(base_url="http://localhost/v1", api_key="none", plays=[RateLimits(), Urgency()]) as _client:
    _client.files, _client.batches  # noqa: B018


class _Life:
    """One process at a time. Ends with the `with` block, and the process that lives then with it."""

    def __init__(self) -> None:
        self._process: ForkServerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The process that lives."""
        return None if self._process is None else self._process.pid

    def _begin(self, live: Callable[..., None], *arguments: Any) -> None:
        # Lives are forked from a process that has imported this module, and nothing else.
        _CONTEXT.set_forkserver_preload([__name__])
        self._process = _CONTEXT.Process(target=live, args=arguments, daemon=True)
        self._process.start()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP, after which the system goes on to take connections."""
        assert self.pid is not None
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it on the spot: kill -9. The system closes its connections, and refuses new ones."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def wait(self) -> int:
        """Wait for its end, and return its exit code, below 0 for a signal."""
        process, self._process = self._process, None
        assert process is not None
        process.join()
        assert process.exitcode is not None
        return process.exitcode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class MortalProvider(_Life):
    """An emulated provider, which begins at once, and has its port and its authority through all its lives."""

    def __init__(self, model: ProviderModel) -> None:
        super().__init__()
        self._model, self._port = model, 0
        self._authority = trustme.CA()
        self.authority_pem = self._authority.cert_pem.bytes().decode()
        self.start()

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return f"https://{_HOST}:{self._port}/v1"

    def start(self) -> None:
        """Begin, on the port that it had before. Returns when it listens."""
        receiving, sending = _CONTEXT.Pipe(duplex=False)
        key = self._authority.private_key_pem.bytes()
        self._begin(_provide, self._model, self.authority_pem.encode(), key, self._port, sending)
        self._port = receiving.recv()

    def log(self) -> tuple[RequestLog, ...]:
        """Return what this life has seen."""
        context = ssl.create_default_context(cadata=self.authority_pem)
        connection = http.client.HTTPSConnection(_HOST, self._port, timeout=10.0, context=context)
        try:
            connection.request("GET", "/emulator/log")
            return tuple(map(RequestLog.from_json, json.loads(connection.getresponse().read())))
        finally:
            connection.close()


def _provide(model: ProviderModel, authority: bytes, key: bytes, port: int, sending: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA.from_pem(authority, key).issue_cert("localhost", _HOST).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def serve() -> None:
        server = Server(model=model, port=port, tls=False)
        server._context = context  # of the same authority in every life
        async with server:
            sending.send(server.port)
            await asyncio.Event().wait()

    asyncio.run(serve())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


class Lives(_Life):
    """Workers on one queue, one at a time."""

    def __init__(self, where: str, base_url: str, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._where, self._base_url, self._settings = where, base_url, dict(settings)

    def begin(self, owner: str, *, where: str | None = None, most_file_bytes: int | None = None) -> None:
        """Begin a life, on another queue if `where` names one.

        With `most_file_bytes` no file may grow beyond that: a disk that is full for it.
        """
        self._begin(_work, where or self._where, self._base_url, self._settings, owner, most_file_bytes)


def _work(where: str, base_url: str, settings: dict[str, Any], owner: str, most_file_bytes: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if most_file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_file_bytes, most_file_bytes))
    logging.getLogger("fastlane.batch").setLevel(logging.CRITICAL)
    client = fastlane.OpenAI(base_url=base_url, api_key="sk-benchmark")
    QueueWorker(open_storage(where), client, WorkerSettings(**settings), owner=owner).work(until_empty=True)
