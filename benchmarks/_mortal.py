"""An emulated provider that can be killed, fall silent, and be there again on its port as whom its clients trust.

`python -m benchmarks._mortal` is what starts it: a process that makes the certificate, and forks a provider as often as
it is told to.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import ssl
import tempfile
import threading
from pathlib import Path

from benchmarks._child import Child, questions, say
from fastlane.emulator import ProviderModel, RequestLog, Server
from fastlane.emulator._server import ServerTls, make_tls

_HOST = "127.0.0.1"
_PATIENCE_S = 10.0


class Mortal(Child):
    """A provider, from the outside. It begins at once, and is gone at the end of the `with` block."""

    def __init__(self, model: ProviderModel) -> None:
        super().__init__("benchmarks._mortal")
        told = self.ask(model.to_json())
        self.certificate_authority = Path(told["authority"])
        self._context = ssl.create_default_context(cafile=told["authority"])
        self._port: int = told["port"]
        self._provider: int = told["pid"]

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL, through all its lives."""
        return f"https://{_HOST}:{self._port}/v1"

    def kill(self) -> None:
        """End it on the spot: the system closes its connections, and refuses new ones."""
        os.kill(self._provider, signal.SIGKILL)

    def start_again(self) -> None:
        """Begin anew, on the same port, after it was killed. Returns when it listens."""
        self._provider = self.ask("again")["pid"]

    def silence(self) -> None:
        """Have it do nothing any more: the system goes on to take connections and what is sent."""
        os.kill(self._provider, signal.SIGSTOP)

    def wake(self) -> None:
        """End its silence."""
        os.kill(self._provider, signal.SIGCONT)

    def log(self) -> tuple[RequestLog, ...]:
        """What this life of its has seen."""
        connection = http.client.HTTPSConnection(_HOST, self._port, timeout=_PATIENCE_S, context=self._context)
        try:
            connection.request("GET", "/emulator/log")
            return tuple(RequestLog.from_json(record) for record in json.loads(connection.getresponse().read()))
        finally:
            connection.close()


# In the other process


async def _serve(model: ProviderModel, tls: ServerTls, port: int, said: int) -> None:
    server = Server(model=model, port=port, tls=False)
    server._tls = tls  # the same in every life
    async with server:
        os.write(said, f"{server.port}\n".encode())
        await asyncio.Event().wait()


def _born(model: ProviderModel, tls: ServerTls, port: int) -> tuple[int, int]:
    """Fork a provider; its process, and its port."""
    heard, said = os.pipe()
    still_there, held = os.pipe()
    process = os.fork()
    if not process:
        os.close(held)
        # The other end is held by whom it belongs to: at its end, this one ends.
        threading.Thread(target=lambda: (os.read(still_there, 1), os._exit(0)), daemon=True).start()
        try:
            asyncio.run(_serve(model, tls, port, said))
        finally:
            os._exit(1)
    os.close(said)
    os.close(still_there)
    with os.fdopen(heard) as answer:
        return process, int(answer.readline())


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked_for = questions()
    model = ProviderModel.from_json(next(asked_for))
    tls = make_tls(_HOST, http2=True)
    with tempfile.TemporaryDirectory() as directory:
        authority = Path(directory) / "authority.pem"
        authority.write_bytes(tls.authority_pem)
        process, port = _born(model, tls, 0)
        say({"port": port, "pid": process, "authority": str(authority)})
        for _ in asked_for:
            os.waitpid(process, 0)
            process, _ = _born(model, tls, port)
            say({"pid": process})
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


if __name__ == "__main__":
    _main()
