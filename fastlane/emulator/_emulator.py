"""The provider in a child process, as a context manager."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Self, cast

import httpx2

from fastlane.emulator._faults import Fault, read_faults
from fastlane.emulator._log import Offline, RequestLog
from fastlane.emulator._server import base_url
from fastlane.emulator.settings import ProviderModel, Wire, as_json

from ..errors import FastlaneError

_STOP_TIMEOUT_S = 5.0
_CONTROL_TIMEOUT_S = 30.0


class EmulatorError(FastlaneError):
    """The emulator's process could not start or has ended."""


class Emulator:
    """A provider on loopback in its own process, so that its work never delays the client that is measured.

    Starts at once, or raises EmulatorError; `close()`, the end of a `with` block or of its parent stops it.
    """

    def __init__(
        self,
        *,
        model: ProviderModel,
        seed: int = 0,
        wire: Wire | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool = True,
        http2: bool = True,
        faults: Iterable[Fault | str] = (),
    ) -> None:
        if host not in ("localhost", "::1") and not host.startswith("127."):
            exposed = "where other machines can reach it, and takes any API key"
            warnings.warn(f"the emulator listens on {host!r}, {exposed}", stacklevel=2)
        self.model = self._first_model = model
        self.seed = seed
        self.wire = wire
        settings = {
            "model": model.to_json(),
            "wire": wire.to_json() if wire else None,
            "seed": seed,
            "host": host,
            "port": port,
            "tls": tls,
            "http2": http2,
            # Read here, so that faults that cannot work start no process.
            "faults": [str(fault) for fault in read_faults(faults)],
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fastlane.emulator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C in a terminal reaches a whole session; it is the owner who decides when the provider goes.
            start_new_session=True,
        )
        self._files: list[Path] = []
        # Also when the owner forgets to close: neither a process nor a file may stay behind.
        self._finalizer = weakref.finalize(self, _stop, self._process, self._files)
        stdin, stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        line = ""
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(settings) + "\n")
            stdin.flush()
            line = stdout.readline()
        ready: dict[str, Any] = json.loads(line or "{}")
        if "port" not in ready:
            self._finalizer()
            code = self._process.returncode
            ended = f"ended with exit code {code} before it was ready: its stderr says why"
            raise EmulatorError(f"the emulator {ready.get('failed', ended)}")
        self._host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
        self._tls = tls
        self._port: int = ready["port"]
        self._wire_port: int | None = ready["wire_port"]
        if ready["authority"]:
            self._files.append(Path(ready["authority"]))
            self._context = ssl.create_default_context(cafile=ready["authority"])

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL; leads through the wire if there is one."""
        return base_url(self._host, self._wire_port or self._port, tls=self._tls)

    @property
    def api_key(self) -> str:
        """An API key for clients; the emulator takes any."""
        return "any"

    @property
    def direct_base_url(self) -> str:
        return base_url(self._host, self._port, tls=self._tls)

    @property
    def certificate_authority(self) -> Path:
        """The PEM file by which a client trusts the server; removed by `close`. Raises EmulatorError without TLS."""
        if not self._files:
            raise EmulatorError("there is no certificate authority: the emulator was started with tls=False")
        return self._files[0]

    @property
    def environment(self) -> Mapping[str, str]:
        """What a stock client needs in `os.environ` to trust the server."""
        return MappingProxyType({"SSL_CERT_FILE": str(self._files[0])} if self._files else {})

    def log(self) -> tuple[RequestLog, ...]:
        """Return the record of every request so far, unfinished ones included."""
        return tuple(RequestLog.from_json(record) for record in self._control("GET", "log"))

    def clear(self) -> None:
        """Forget the records so far."""
        self._control("POST", "clear")

    def offline(self) -> Offline:
        """Return what was done with files and batches: every file, batch and line that was carried out."""
        return Offline.from_json(self._control("GET", "offline"))

    def reset(self) -> None:
        """Return to the settings and faults of the start; forget records, prompts, answers, files and batches."""
        self._control("POST", "reset")
        self.model = self._first_model

    def forget_prompts(self) -> None:
        """Empty the prompt cache."""
        self._control("POST", "forget")

    def set_faults(self, *faults: Fault | str) -> None:
        """Replace the server's own faults; none at all removes them."""
        self._control("PUT", "faults", json.dumps([str(fault) for fault in read_faults(faults)]))

    def set_answers(self, *texts: str) -> None:
        """Answer the next requests with these texts, one each; after that answers are generated again."""
        self._control("PUT", "answers", json.dumps(texts))

    def change(self, **settings: Any) -> None:
        """Change settings of its `ProviderModel` while it serves; of a mapping only the named entries change.

        For example `change(concurrency=8)` or `change(service_tiers={"flex": {"exhausted": 1.0}})`. Rate limits that
        differ begin anew. Raises ConfigurationError.
        """
        model = self.model.changed(settings)
        self._control("PUT", "settings", as_json(settings))
        self.model = model

    def _control(self, method: str, action: str, body: str | None = None) -> Any:
        url = f"{self.direct_base_url.removesuffix('/v1')}/emulator/{action}"
        verify = self._context if self._tls else False
        try:
            response = httpx2.request(
                method, url, content=body, verify=verify, timeout=_CONTROL_TIMEOUT_S, trust_env=False
            )
        except httpx2.HTTPError as error:
            raise EmulatorError(f"the emulator does not answer ({error}): has it been closed?") from error
        if response.status_code != 200:
            raise EmulatorError(f"the emulator refused {action!r}: {response.json()['error']['message']}")
        return response.json()

    def close(self) -> None:
        """Stop the process and remove the certificate; more than once does no harm."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(process: subprocess.Popen[str], files: Iterable[Path]) -> None:
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()
    # The process removes its files itself, unless it was killed.
    for file in files:
        file.unlink(missing_ok=True)
