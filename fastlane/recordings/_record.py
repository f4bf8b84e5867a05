"""Record a client's calls to a file, beside its plays and without being one of them."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import ConfigurationError
from ._entry import IssuedCall, issued
from ._writer import Writer

if TYPE_CHECKING:
    from ..client.clients import AsyncOpenAI, OpenAI
    from ..engine.call import Call
    from ..engine.pipeline import Pipeline
    from ..records.record import CallRecord

_MEBIBYTE = 1 << 20
_LEAST_BYTES = 64 * 1024
# Calls under way, of which the prompts are held until they are over.
_MOST_UNDER_WAY = 4_096


class _Listener:
    """Keeps what is to be written of each call while it lasts."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.under_way: dict[str, IssuedCall] = {}

    def began(self, call: Call) -> None:
        try:
            if (asked := issued(call)) is not None:
                self.under_way[call.call_id] = asked
                if len(self.under_way) > _MOST_UNDER_WAY:
                    self.under_way.pop(next(iter(self.under_way)), None)
                    self.writer.dropped += 1
        except Exception:  # noqa: BLE001 - no call fails by being recorded
            self.writer.dropped += 1

    def ended(self, record: CallRecord) -> None:
        try:
            asked = self.under_way.pop(record.call_id, None)
            if asked is not None:
                self.writer.put(asked, record)
        except Exception:  # noqa: BLE001 - no call fails by being recorded
            self.writer.dropped += 1


class Recording:
    """A recording that goes on until it is closed or the process ends. A context manager that closes it."""

    def __init__(self, path: Path, writer: Writer, pipeline: Pipeline | None) -> None:
        self.path = path
        self._writer = writer
        self._pipeline = pipeline
        self._listener = _Listener(writer)
        if pipeline is not None:
            pipeline.add_listener(self._listener)

    @property
    def written(self) -> int:
        """Calls that this process has written so far."""
        return self._writer.written

    @property
    def dropped(self) -> int:
        """Calls that this process has not written: too many at once, a full disk, a body that is no JSON."""
        return self._writer.dropped

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until every call that is over by now is in the file; False where that takes longer."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Record no more, and write what is over by now. Calls that are under way are not recorded."""
        if self._pipeline is not None:
            self._pipeline.remove_listener(self._listener)
        self._listener.under_way.clear()
        self._writer.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Recording to {self.path}: {self.written} calls written, {self.dropped} dropped>"


def record(
    client: OpenAI | AsyncOpenAI, path: str | Path, *, text: bool = False, max_bytes: int = 64 * _MEBIBYTE
) -> Recording:
    """Append every generating call of a client to a file of JSON lines from now on, for `fastlane bench` to replay.

    What is written of a call is its shape: when it was issued, model, endpoint, roles and lengths of messages, number
    and length of tools, salted digests of the prompt's blocks of 512 characters (which say what prompts share, and
    nothing else), sampling parameters, urgency, token counts, how it ended. No text of prompt or answer, no key and no
    header. With `text` the messages and tools are written too; answers never are.

    It happens in a thread of its own, within 0.2 s and at exit, and neither fails nor delays a call; `dropped` counts
    what could not be written. The file has at most `max_bytes`: then it becomes FILE.1, in place of an earlier one,
    and a new one is begun. Several clients, threads and forked processes may share a file. Copies of the client by
    `with_options` are recorded with it, copies with other plays are not. With FASTLANE_DISABLED nothing is recorded.

    Raises ConfigurationError for anything but a client of fastlane, and for a file that cannot be written.
    """
    from ..client.clients import _Client

    if not isinstance(client, _Client):
        raise ConfigurationError(
            f"record() takes a client of fastlane, sync or async, got {type(client).__name__}: make it with "
            "fastlane.OpenAI(...), or call fastlane.install() first"
        )
    if not isinstance(text, bool):
        raise ConfigurationError(f"text takes True or False, got {type(text).__name__}")
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes < _LEAST_BYTES:
        raise ConfigurationError(f"max_bytes takes {_LEAST_BYTES:,} or more, got {max_bytes!r:.40}")
    path = Path(path).absolute()
    writer = Writer(path, with_text=text, max_bytes=max_bytes)
    shell: Any = client._fastlane
    if shell is None:
        return Recording(path, writer, None)
    try:
        writer.begin()
    except OSError as error:
        raise ConfigurationError(f"cannot record to {path}: {error.strerror or error}") from error
    return Recording(path, writer, shell.pipeline)
