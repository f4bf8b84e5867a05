"""Files and batches at a provider: uploaded, found again, made, asked after, read and deleted.

Whatever may be repeated is repeated here after a failure that may pass: all but the creation of a batch, which nobody
may repeat who does not know what became of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import IO, TYPE_CHECKING, Any, TypeVar

import openai

from ..compat.clients import idempotency_header_of
from ..engine.upstream_failures import rest_of
from ._packing import BatchMode

if TYPE_CHECKING:
    from openai.types import Batch, FileObject
    from tenacity import RetryCallState

_T = TypeVar("_T")

# The key of a batch's metadata under which its name in our queue stands.
NAME_KEY = "fastlane_batch"

# Uploads and downloads may have to move 200 MB; between two pieces of them no more than this may pass.
_TRANSFER_TIMEOUT_S = 600.0
# openai's own default of 600 s is made for answers of a model. A worker that waits for one batch serves no other.
_QUESTION_TIMEOUT_S = 60.0
DENIED = frozenset({401, 402, 403})
"""Statuses that speak of the key, or of the account behind it."""
_FEW_ATTEMPTS = 4
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0
# A provider's clock and ours may differ: what it calls older than our record by less than this is looked at still.
_CLOCKS_DIFFER_S = 86_400.0
_PIECE_BYTES = 1 << 16


class StoppedError(Exception):
    """The worker has been asked to stop while something was waited for."""


class InDoubtError(Exception):
    """Nobody knows whether the provider has made the batch that it was asked for."""


class RefusedError(Exception):
    """The provider has said that it makes no such file or batch: nothing was made."""

    def __init__(self, status: int, code: str | None, retry_after_s: float | None) -> None:
        super().__init__(f"the provider answers {status}")
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def passes(self) -> bool:
        """Whether the same request may be taken later."""
        return self.status in (408, 409, 429)

    @property
    def denied(self) -> bool:
        """Whether it is about the key: no batch will be taken with it."""
        return self.status in DENIED


class ProviderBatches:
    """The files and batches of one client's account. Belongs to one thread."""

    def __init__(self, client: openai.OpenAI, mode: BatchMode, stop: Event) -> None:
        self.mode = mode
        # Its own retries would repeat a creation, and would not hear that the worker is to stop.
        self._client = client.with_options(
            max_retries=0, timeout=_QUESTION_TIMEOUT_S if client.timeout == openai.DEFAULT_TIMEOUT else client.timeout
        )
        self._stop = stop

    def upload(self, name: str, content: IO[bytes]) -> FileObject:
        """Upload a batch's file under its name. Raises RefusedError; any other error of openai's may have uploaded it.

        One upload, which a file more does no harm to: it is found by its name later, and deleted.
        """
        content.seek(0)
        return self._refusals(
            lambda: self._client.files.create(
                file=(name, content, "application/jsonl"), purpose="batch", timeout=_TRANSFER_TIMEOUT_S
            )
        )

    def files_named(self, name: str, *, since_s: float) -> list[FileObject]:
        """Return the files of that name which were uploaded after some time, in seconds since the epoch."""

        def find() -> list[FileObject]:
            found = []
            for file in self._client.files.list(purpose="batch", order="desc"):
                if file.created_at is not None and file.created_at < since_s - _CLOCKS_DIFFER_S:
                    break
                if file.filename == name:
                    found.append(file)
            return found

        return self._again(find)

    def create(self, name: str, endpoint: str, file_id: str, *, idempotency_key: str) -> Batch:
        """Have the provider make a batch. Raises RefusedError where it has said no; InDoubtError where nobody knows."""
        given: dict[str, Any] = {"metadata": {NAME_KEY: name}} if self.mode.metadata else {}
        header = idempotency_header_of(self._client)
        if header is not None:
            given["extra_headers"] = {header: idempotency_key}
        window = "24h" if self.mode.window_s >= 86_400 else f"{max(1, int(self.mode.window_s // 3_600))}h"
        try:
            return self._client.batches.create(
                completion_window=window,  # type: ignore[arg-type]  # OpenAI's own is the only one that its types know.
                endpoint=endpoint,  # type: ignore[arg-type]
                input_file_id=file_id,
                **given,
            )
        except openai.APIStatusError as error:
            # 4xx is a decision; a gateway's 5xx may come although what is behind it has made the batch.
            if not 400 <= error.status_code < 500 or error.status_code == 408:
                raise InDoubtError from None
            refused = _refused(error)
        except openai.OpenAIError:
            raise InDoubtError from None
        raise refused

    def batch_named(self, name: str, file_id: str | None, *, since_s: float) -> Batch | None:
        """Return the batch that was made under a name, or of a file; None where the provider lists none."""

        def find() -> Batch | None:
            for batch in self._client.batches.list(limit=100):
                if batch.created_at is not None and batch.created_at < since_s - _CLOCKS_DIFFER_S:
                    return None
                if (batch.metadata or {}).get(NAME_KEY) == name or (file_id and batch.input_file_id == file_id):
                    return batch
            return None

        return self._again(find)

    def batch(self, batch_id: str) -> Batch:
        """Return how a batch stands. Raises RefusedError: 404 where the provider knows of none."""
        return self._again(lambda: self._client.batches.retrieve(batch_id))

    def cancel(self, batch_id: str) -> None:
        """Have a batch end early, unless it has ended."""
        try:
            self._again(lambda: self._client.batches.cancel(batch_id))
        except RefusedError as error:
            if error.denied:
                raise

    def delete(self, file_id: str) -> None:
        """Delete a file, unless it is gone already."""
        try:
            self._again(lambda: self._client.files.delete(file_id))
        except RefusedError as error:
            if error.status != 404:
                raise

    def lines(self, file_id: str) -> Iterator[bytes]:
        """Yield a file's lines while it is downloaded.

        Raises RefusedError, and errors of openai's and of its HTTP library, also in the middle of it.
        """
        # Split at line feeds alone: JSON may hold other characters that end a line elsewhere.
        kept: list[bytes] = []
        asked = self._client.files.with_streaming_response.content(file_id, timeout=_TRANSFER_TIMEOUT_S)
        response = self._refusals(asked.__enter__)
        try:
            for piece in response.iter_bytes(_PIECE_BYTES):
                if self._stop.is_set():
                    raise StoppedError
                first, *more = piece.split(b"\n")
                kept.append(first)
                for following in more:
                    yield from _worth(kept)
                    kept = [following]
        finally:
            asked.__exit__(None, None, None)
        yield from _worth(kept)

    def _refusals(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except openai.APIStatusError as error:
            if not 400 <= error.status_code < 500 or error.status_code in (408, 409, 429):
                raise
            refused = _refused(error)
        # Out here it has no context: openai's error keeps the request, and with it a file of prompts.
        raise refused

    def _again(self, ask: Callable[[], _T]) -> _T:
        """Ask, and ask again after what may pass. What fails again and again is raised as openai's own error."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_when_event_set
        from tenacity.nap import sleep_using_event

        try:
            return Retrying(
                retry=retry_if_exception(may_pass),
                stop=stop_after_attempt(_FEW_ATTEMPTS) | stop_when_event_set(self._stop),
                wait=_wait,
                sleep=sleep_using_event(self._stop),
                reraise=True,
            )(lambda: self._refusals(ask))
        except openai.OpenAIError:
            if self._stop.is_set():
                raise StoppedError from None
            raise


def _worth(pieces: list[bytes]) -> Iterator[bytes]:
    """Yield the line that they make, unless it is blank."""
    line = b"".join(pieces)
    if line.strip():
        yield line


def may_pass(error: BaseException) -> bool:
    """Whether what failed may work a little later: no connection, a time-out, 408, 409, 429, 5xx."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError)


def _wait(state: RetryCallState) -> float:
    from tenacity import wait_random_exponential

    error = state.outcome.exception() if state.outcome is not None else None
    asked = None if error is None else rest_of(error)
    own = wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S)(state)
    # Jitter after what the provider asks for: those that it sent away together do not come back together.
    return own if asked is None else asked + own


def _refused(error: openai.APIStatusError) -> RefusedError:
    return RefusedError(error.status_code, error.code if isinstance(error.code, str) else None, rest_of(error))
