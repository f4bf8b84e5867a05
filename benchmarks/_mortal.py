"""An emulated provider that can be killed, fall silent, and be there again on its port as whom its clients trust."""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import signal
import ssl
import threading
from multiprocessing.connection import Connection
from typing import Self

import trustme

from fastlane.emulator import ProviderModel, RequestLog, Server

_HOST = "127.0.0.1"
_PATIENCE_S = 10.0
_CONTEXT = multiprocessing.get_context("forkserver")


class Mortal:
    """A provider, from the outside. It begins at once, and is gone at the end of the `with` block."""

    def __init__(self, model: ProviderModel) -> None:
        self._model = model
        self._authority = trustme.CA()
        self.authority_pem = self._authority.cert_pem.bytes().decode()
        self._context = ssl.create_default_context(cadata=self.authority_pem)
        self._port = 0
        # A new life is forked from a process that has imported this module: it takes milliseconds.
        _CONTEXT.set_forkserver_preload([__name__])
        self.start_again()

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL, through all its lives."""
        return f"https://{_HOST}:{self._port}/v1"

    def start_again(self) -> None:
        """Begin, on the same port where it was killed. Returns when it listens."""
        heard, said = _CONTEXT.Pipe(duplex=False)
        given = (self._model, self.authority_pem, self._authority.private_key_pem.bytes(), self._port, said)
        self._process = _CONTEXT.Process(target=_live, args=given, daemon=True)
        self._process.start()
        self._port = heard.recv()

    def kill(self) -> None:
        """End it on the spot: the system closes its connections, and refuses new ones."""
        self._process.kill()
        self._process.join()

    def silence(self) -> None:
        """Have it do nothing any more: the system goes on to take connections and what is sent."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """End its silence."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def log(self) -> tuple[RequestLog, ...]:
        """What this life of its has seen."""
        connection = http.client.HTTPSConnection(_HOST, self._port, timeout=_PATIENCE_S, context=self._context)
        try:
            connection.request("GET", "/emulator/log")
            return tuple(RequestLog.from_json(record) for record in json.loads(connection.getresponse().read()))
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _live(model: ProviderModel, authority_pem: str, key_pem: bytes, port: int, said: Connection) -> None:
    """Serve until it is killed, or the process that has started it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA.from_pem(authority_pem.encode(), key_pem)
    authority.issue_cert("localhost", _HOST).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    asyncio.run(_serve(model, context, port, said))


async def _serve(model: ProviderModel, context: ssl.SSLContext, port: int, said: Connection) -> None:
    server = Server(model=model, port=port, tls=False)
    server._context = context  # of the same authority in every life
    async with server:
        said.send(server.port)
        await asyncio.Event().wait()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)
