"""The provider in a child process, as a context manager."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import ssl
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, TYPE_CHECKING, Any, Self, cast

from fastlane.emulator._batch_log import Offline
from fastlane.emulator._bodies import ALL_ENCODINGS, checked_encodings, checked_refusal
from fastlane.emulator._child import describe
from fastlane.emulator._connection import WINDOW_BYTES, ConnectionSettings
from fastlane.emulator._faults import Fault
from fastlane.emulator._log import RequestLog
from fastlane.emulator._server import base_url, checked_late_ms
from fastlane.emulator.settings import BatchSettings, Dialect, ProviderModel, with_tier

from ..errors import FastlaneError

if TYPE_CHECKING:
    from fastlane.emulator.wire import Wire

_STOP_TIMEOUT_S = 5.0
_CONTROL_TIMEOUT_S = 30.0


class EmulatorError(FastlaneError):
    """The emulator's process could not start or has ended."""


class Emulator:
    """A provider on loopback in its own process, so that its work never delays the client that is measured.

    Starts at once; `close()` or the end of a `with` block stops it. It ends with its parent in any case.
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
        max_concurrent_streams: int = 100,
        initial_window_bytes: int = WINDOW_BYTES,
        connection_window_bytes: int | None = None,
        faults: Iterable[Fault | str] = (),
        accepted_encodings: Iterable[str] = ALL_ENCODINGS,
        encoding_refusal_status: int = 415,
        dialect: Dialect | None = None,
        batches: BatchSettings | None = None,
        late_ms: float = 0.0,
    ) -> None:
        warn_if_exposed(host)
        # Checked here, so that settings that cannot work start no process.
        ConnectionSettings(
            http2=http2,
            max_concurrent_streams=max_concurrent_streams,
            window_bytes=initial_window_bytes,
            connection_window_bytes=connection_window_bytes,
        )
        self.model = model
        self.seed = seed
        self.wire = wire
        settings = describe(
            model=model,
            wire=wire,
            seed=seed,
            host=host,
            port=port,
            tls=tls,
            http2=http2,
            max_concurrent_streams=max_concurrent_streams,
            initial_window_bytes=initial_window_bytes,
            connection_window_bytes=connection_window_bytes,
            faults=[str(_checked(fault)) for fault in faults],
            accepted_encodings=list(checked_encodings(accepted_encodings)),
            encoding_refusal_status=checked_refusal(encoding_refusal_status),
            dialect=(dialect or Dialect()).to_json(),
            batches=(batches or BatchSettings()).to_json(),
            late_ms=checked_late_ms(late_ms),
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fastlane.emulator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C in a terminal reaches a whole session; it is the owner who decides when the provider goes.
            start_new_session=True,
        )
        self._authority: Path | None = None
        # Also when the owner forgets to close: neither a process nor a file may stay behind.
        self._finalizer = weakref.finalize(self, _stop, self._process)
        ready = self._begin(settings)
        self._host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
        self._tls = tls
        self._port: int = ready["port"]
        self._wire_port: int | None = ready["wire_port"]
        if ready["authority"]:
            self._authority = Path(ready["authority"])
            self._context = ssl.create_default_context(cafile=ready["authority"])
            self._finalizer.detach()
            self._finalizer = weakref.finalize(self, _stop, self._process, self._authority)

    def _begin(self, settings: str) -> dict[str, Any]:
        stdin, stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        line = ""
        with contextlib.suppress(BrokenPipeError):
            stdin.write(settings + "\n")
            stdin.flush()
            line = stdout.readline()
        if not line:
            self._finalizer()
            raise EmulatorError(
                f"the emulator's process ended with exit code {self._process.returncode} before it was ready: "
                "its stderr says why"
            )
        ready = cast(dict[str, Any], json.loads(line))
        if "failed" in ready:
            self._finalizer()
            raise EmulatorError(f"the emulator {ready['failed']}: choose another port, or 0 for a free one")
        return ready

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL; leads through the wire if there is one."""
        return self._url(self._wire_port or self._port)

    @property
    def direct_base_url(self) -> str:
        """The base URL past the wire."""
        return self._url(self._port)

    def _url(self, port: int) -> str:
        return base_url(self._host, port, tls=self._tls)

    @property
    def certificate_authority(self) -> Path:
        """The PEM file by which a client trusts the server; removed by `close`. Raises EmulatorError without TLS."""
        if self._authority is None:
            raise EmulatorError("there is no certificate authority: the emulator was started with tls=False")
        return self._authority

    @property
    def environment(self) -> Mapping[str, str]:
        """What a stock client needs in `os.environ` to trust the server."""
        return MappingProxyType({"SSL_CERT_FILE": str(self._authority)} if self._authority else {})

    def log(self) -> tuple[RequestLog, ...]:
        """Return the record of every request so far, unfinished ones included."""
        return tuple(RequestLog.from_json(record) for record in self._control("GET", "log"))

    def clear(self) -> None:
        """Forget the records so far."""
        self._control("POST", "clear")

    def offline(self) -> Offline:
        """Return what was done with files and batches: every file, batch and line that was carried out."""
        return Offline.from_json(self._control("GET", "offline"))

    def forget_offline(self) -> None:
        """Stop and forget all batches and files."""
        self._control("DELETE", "offline")

    def change_batches(self, **settings: Any) -> None:
        """Change some `BatchSettings` while the provider runs. Raises ConfigurationError."""
        BatchSettings().changed(settings)
        self._control("PUT", "batches", json.dumps(settings))

    def forget_prompts(self) -> None:
        """Empty the prompt cache."""
        self._control("POST", "forget")

    def set_faults(self, *faults: Fault | str | Iterable[Fault | str]) -> None:
        """Replace the server's own faults; none at all removes them. Takes faults, or tuples of them."""
        flat: list[str] = []
        for fault in faults:
            several = (fault,) if isinstance(fault, Fault | str) else fault
            flat += [str(_checked(each)) for each in several]
        self._control("PUT", "faults", json.dumps(flat))

    def change(self, **settings: Any) -> None:
        """Change settings of its `ProviderModel` while it serves, e.g. `rate_limits`, `service_tiers` or `concurrency`.

        Limits that differ begin anew. Raises ConfigurationError.
        """
        model = self.model.changed(settings)
        described = model.to_json()
        self._control("PUT", "settings", json.dumps({name: described[name] for name in settings}))
        self.model = model

    def change_tier(self, name: str, **settings: Any) -> None:
        """Change one service tier while it serves, e.g. `change_tier("flex", exhausted=1.0)`; an unknown one is new."""
        self.change(service_tiers=with_tier(self.model.service_tiers, {"name": name, **settings}))

    def _control(self, method: str, action: str, body: str | None = None) -> Any:
        connection: http.client.HTTPConnection
        if self._tls:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_CONTROL_TIMEOUT_S, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_CONTROL_TIMEOUT_S)
        try:
            connection.request(method, f"/emulator/{action}", body=body)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except OSError as error:
            raise EmulatorError(f"the emulator does not answer ({error}): has it been closed?") from error
        finally:
            connection.close()
        if response.status != 200:
            raise EmulatorError(f"the emulator refused {action!r}: {answer['error']['message']}")
        return answer

    def close(self) -> None:
        """Stop the process and remove the certificate; more than once does no harm."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def warn_if_exposed(host: str) -> None:
    """Warn about a host that other machines can reach."""
    loopback = host == "localhost"
    with contextlib.suppress(ValueError):
        loopback = ipaddress.ip_address(host).is_loopback
    if not loopback:
        warnings.warn(
            f"the emulator listens on {host!r}, where other machines can reach it, and takes any API key",
            stacklevel=3,
        )


def _checked(fault: Fault | str) -> Fault:
    return Fault.parse(fault) if isinstance(fault, str) else fault


def _stop(process: subprocess.Popen[str], authority: Path | None = None) -> None:
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
    # The process removes its file itself, unless it was killed.
    if authority:
        authority.unlink(missing_ok=True)
