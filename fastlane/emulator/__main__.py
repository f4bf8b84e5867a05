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
    # Ctrl-C reaches the whole process group; it is the parent who decides when the provider goes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(sys.stdin.readline())
    try:
        asyncio.run(_serve(settings))
    except OSError as error:  # mostly a port that is taken
        _fail(f"cannot listen on port {settings['port']} ({error.strerror}): choose another port, or 0 for a free one")
    except MissingExtraError as error:  # TLS
        _fail(f"cannot serve TLS: {error}; or do without it, by tls=False or --no-tls")


def _fail(why: str) -> None:
    sys.stdout.write(json.dumps({"failed": why}) + "\n")
    sys.exit(1)


async def _serve(settings: Mapping[str, Any]) -> None:
    values = dict(settings)
    model = ProviderModel.from_json(values.pop("model"))
    wire = values.pop("wire")
    # The port that was asked for is the one that clients use: with a wire, that is the wire's.
    wire_port = 0 if wire is None else values.pop("port")
    async with Server(model=model, **values) as server, contextlib.AsyncExitStack() as stack:
        ready: dict[str, Any] = {"port": server.port, "wire_port": None, "authority": None}
        if server.authority_pem:
            # Made and removed here, because this process outlives a parent that is killed.
            with tempfile.NamedTemporaryFile(prefix="fastlane-ca-", suffix=".pem", delete=False) as file:
                stack.callback(Path(file.name).unlink, missing_ok=True)
                file.write(server.authority_pem)
            ready["authority"] = file.name
        if wire is not None:
            from fastlane.emulator.wire import serve

            far = Wire.from_json(wire)
            running = await stack.enter_async_context(
                await serve(far, server.host, server.port, server.host, wire_port)
            )
            ready["wire_port"] = running.port
        await _until_stdin_closes(ready)


async def _until_stdin_closes(ready: Mapping[str, Any]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        # Unbuffered: a buffered reader that waits for input cannot be torn down at the end of the process.
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, daemon=True).start()
    # A full collection of what was imported would hold every token up; what lives now lives for good.
    gc.collect()
    gc.freeze()
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    await stop.wait()


if __name__ == "__main__":
    run_child()
