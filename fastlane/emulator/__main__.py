"""The process that `Emulator` starts: settings in on stdin, ports out on stdout, gone when stdin closes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastlane.emulator._server import Server
from fastlane.emulator.settings import ProviderModel, Wire
from fastlane.errors import MissingExtraError


def run_child() -> None:
    """Serve until stdin closes, which it also does when the parent dies."""
    # Ctrl-C reaches the whole process group; the parent decides when the provider stops.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(sys.stdin.readline())
    try:
        asyncio.run(_serve(**settings))
    except OSError as error:  # mostly a port that is taken
        port = settings["port"]
        _tell({"failed": f"cannot listen on port {port} ({error.strerror}): choose another port, or 0 for a free one"})
    except MissingExtraError as error:  # TLS
        _tell({"failed": f"cannot serve TLS: {error}; or do without it, by tls=False or --no-tls"})


def _tell(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def _serve(*, model: Mapping[str, Any], wire: Mapping[str, Any] | None, port: int, **settings: Any) -> None:
    # Clients use the requested port: with a wire that is the wire's.
    server = Server(model=ProviderModel.from_json(model), port=0 if wire else port, **settings)
    async with server, contextlib.AsyncExitStack() as stack:
        ready: dict[str, Any] = {"port": server.port, "wire_port": None, "authority": None}
        if server.authority_pem:
            # Made and removed here, because this process outlives a parent that is killed.
            with tempfile.NamedTemporaryFile(prefix="fastlane-ca-", suffix=".pem", delete=False) as file:
                stack.callback(Path(file.name).unlink, missing_ok=True)
                file.write(server.authority_pem)
            ready["authority"] = file.name
        if wire:
            from fastlane.emulator.wire import serve

            running = await serve(Wire.from_json(wire), server.host, server.port, server.host, port)
            ready["wire_port"] = (await stack.enter_async_context(running)).port
        stop = asyncio.Event()
        threading.Thread(target=_wait_for_stdin, args=(asyncio.get_running_loop(), stop), daemon=True).start()
        # A full collection of what was imported would delay every token; what lives now lives for good.
        gc.collect()
        gc.freeze()
        _tell(ready)
        await stop.wait()


def _wait_for_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # Unbuffered: a buffered reader that waits for input cannot be torn down at the end of the process.
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    run_child()
