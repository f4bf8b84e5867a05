"""Files and batches at a provider. Everything is retried after a transient failure, except the creation of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from threading import Event
from typing import IO, TYPE_CHECKING, Any, TypeVar

import openai

from ..compat.clients import idempotency_header_of
from ..engine.upstream_failures import rest_of
from ..providers import ProviderFacts

if TYPE_CHECKING:
    from openai.types import Batch, FileObject
    from tenacity import RetryCallState

T = TypeVar("T")

NAME_KEY = "fastlane_batch"
"""The key of a batch's name in its metadata."""
DENIED = frozenset({401, 402, 403})
"""Statuses that concern the key, or the account behind it."""

# Uploads and downloads may have to move 200 MB. It is the longest pause between two pieces of them.
_TRANSFER_TIMEOUT_S = 600.0
# openai's own default of 600 s is made for answers of a model.
_TIMEOUT_S = 60.0
_ATTEMPTS = 4
# The provider's clock may differ from ours by so much.
_CLOCKS_DIFFER_S = 86_400.0


class StoppedError(Exception):
    """The worker was stopped while it waited."""


class InDoubtError(Exception):
    """It is not known whether the provider has created the batch."""


class RefusedError(Exception):
    """The provider has refused a request: nothing was created."""

    def __init__(self, error: openai.APIStatusError) -> None:
        super().__init__(f"the provider returned status {error.status_code}")
        self.status = error.status_code
        self.code = error.code if isinstance(error.code, str) else None
        self.retry_after_s = rest_of(error)

    @property
    def denied(self) -> bool:
        """Whether it is about the key: no batch will be taken with it."""
        return self.status in DENIED


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMode:
    """The limits of a provider's batches. The defaults are the lowest of all providers that were looked up."""

    endpoints: tuple[str, ...] | None = None
    """None where they are not known: all are tried."""
    metadata: bool = True
    most_requests: int = 50_000
    most_bytes: int = 100_000_000
    window_s: float = 86_400.0

    def takes(self, endpoint: str) -> bool:
        """Return whether an endpoint, such as "/v1/chat/completions", can be used in a batch."""
        return self.endpoints is None or endpoint in self.endpoints


def mode_of(facts: ProviderFacts, *, forced: bool = False) -> BatchMode | None:
    """Return the limits of a provider's batches; None where it has no batch mode of OpenAI's shape, unless `forced`."""
    batch = facts.batch
    if not forced and (batch.shape is None or batch.shape.value != "openai"):
        return None
    known = {one.name: getattr(batch, one.name) for one in fields(BatchMode)}
    return BatchMode(**{name: fact.value for name, fact in known.items() if fact and fact.value is not None})


class ProviderBatches:
    """The files and batches of one client's account. Belongs to one thread."""

    def __init__(self, client: openai.OpenAI, mode: BatchMode, stop: Event) -> None:
        self.mode = mode
        # Its own retries would repeat a creation, and would not end when the worker is stopped.
        timeout = _TIMEOUT_S if client.timeout == openai.DEFAULT_TIMEOUT else client.timeout
        self._client = client.with_options(max_retries=0, timeout=timeout)
        self._stop = stop

    def upload(self, name: str, content: IO[bytes]) -> FileObject:
        """Upload a batch's file under its name, once. Raises RefusedError; after other errors it may be there."""
        content.seek(0)
        file = (name, content, "application/jsonl")
        return _refusals(lambda: self._client.files.create(file=file, purpose="batch", timeout=_TRANSFER_TIMEOUT_S))

    def files_named(self, name: str, *, since_s: float) -> list[FileObject]:
        """Return the files of that name that were uploaded after some time, in epoch seconds."""

        def find() -> list[FileObject]:
            found = []
            for file in self._client.files.list(purpose="batch", order="desc"):
                if file.created_at is not None and file.created_at < since_s - _CLOCKS_DIFFER_S:
                    break
                if file.filename == name:
                    found.append(file)
            return found

        return self._retried(find)

    def create(self, name: str, endpoint: str, file_id: str) -> Batch:
        """Create a batch, once. Raises RefusedError, and InDoubtError where the result is not known."""
        given: dict[str, Any] = {"metadata": {NAME_KEY: name}} if self.mode.metadata else {}
        if (header := idempotency_header_of(self._client)) is not None:
            given["extra_headers"] = {header: name}
        window: Any = f"{max(1, int(self.mode.window_s // 3_600))}h"
        where: Any = endpoint
        try:
            return self._client.batches.create(completion_window=window, endpoint=where, input_file_id=file_id, **given)
        except openai.APIStatusError as error:
            # 4xx is a decision. A gateway's 5xx may come although the provider has created the batch.
            if not 400 <= error.status_code < 500 or error.status_code == 408:
                raise InDoubtError from None
            refused = RefusedError(error)
        except openai.OpenAIError:
            raise InDoubtError from None
        raise refused

    def batch_named(self, name: str, file_id: str | None, *, since_s: float) -> Batch | None:
        """Return the batch that was created under a name, or of a file; None where the provider lists none."""

        def find() -> Batch | None:
            for batch in self._client.batches.list(limit=100):
                if batch.created_at is not None and batch.created_at < since_s - _CLOCKS_DIFFER_S:
                    return None
                if (batch.metadata or {}).get(NAME_KEY) == name or (file_id and batch.input_file_id == file_id):
                    return batch
            return None

        return self._retried(find)

    def batch(self, batch_id: str) -> Batch:
        """Return a batch. Raises RefusedError: 404 where there is none."""
        return self._retried(lambda: self._client.batches.retrieve(batch_id))

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch, unless it has ended."""
        self._unless_refused(lambda: self._client.batches.cancel(batch_id), lambda error: not error.denied)

    def delete(self, file_id: str) -> None:
        """Delete a file, unless it is gone already. Raises RefusedError."""
        self._unless_refused(lambda: self._client.files.delete(file_id), lambda error: error.status == 404)

    def lines(self, file_id: str) -> Iterator[bytes]:
        """Yield a file's lines while it is downloaded. Raises RefusedError, and errors of openai and its HTTP library.

        Only line feeds end lines: JSON may contain other characters that end a line elsewhere.
        """
        download = self._client.files.with_streaming_response.content(file_id, timeout=_TRANSFER_TIMEOUT_S)
        response = _refusals(download.__enter__)
        rest: list[bytes] = []
        try:
            for piece in response.iter_bytes(1 << 16):
                if self._stop.is_set():
                    raise StoppedError
                first, *more = piece.split(b"\n")
                rest.append(first)
                for following in more:
                    if (line := b"".join(rest)).strip():
                        yield line
                    rest = [following]
        finally:
            download.__exit__(None, None, None)
        if (line := b"".join(rest)).strip():
            yield line

    def _unless_refused(self, ask: Callable[[], object], is_done: Callable[[RefusedError], bool]) -> None:
        try:
            self._retried(ask)
        except RefusedError as error:
            if not is_done(error):
                raise

    def _retried(self, ask: Callable[[], T]) -> T:
        """Ask, and ask again after a transient failure. Raises RefusedError, StoppedError and openai's errors."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_when_event_set
        from tenacity.nap import sleep_using_event

        try:
            return Retrying(
                retry=retry_if_exception(_is_transient),
                stop=stop_after_attempt(_ATTEMPTS) | stop_when_event_set(self._stop),
                wait=_wait_s,
                sleep=sleep_using_event(self._stop),
                reraise=True,
            )(lambda: _refusals(ask))
        except openai.OpenAIError:
            if self._stop.is_set():
                raise StoppedError from None
            raise


def _refusals(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except openai.APIStatusError as error:
        if _is_transient(error) or error.status_code < 400:
            raise
        refused = RefusedError(error)
    # Outside of the handler: openai's error keeps the request, and with it a file of prompts.
    raise refused


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError)


def _wait_s(state: RetryCallState) -> float:
    from tenacity import wait_random_exponential

    error = state.outcome.exception() if state.outcome is not None else None
    # The jitter is added to what the provider asks for, so that clients do not come back together.
    return wait_random_exponential(multiplier=0.5, max=8.0)(state) + (rest_of(error) or 0.0 if error else 0.0)
