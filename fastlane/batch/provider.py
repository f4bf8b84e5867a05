"""Files and batches at a provider: uploaded, found again, created, retrieved, read and deleted.

What may be repeated is repeated here after a failure that may pass: all but the creation of a batch, which must not be
repeated before it is known what became of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import IO, TYPE_CHECKING, Any, TypeVar

import openai

from ..compat.clients import idempotency_header_of
from ..engine.upstream_failures import rest_of
from ..providers import Fact, ProviderFacts

if TYPE_CHECKING:
    from openai.types import Batch, FileObject
    from tenacity import RetryCallState

T = TypeVar("T")

NAME_KEY = "fastlane_batch"
"""The key of a batch's metadata under which its name in our queue stands."""
DENIED = frozenset({401, 402, 403})
"""Statuses that speak of the key, or of the account behind it."""

# Uploads and downloads may have to move 200 MB; between two pieces of them no more than this may pass.
_TRANSFER_TIMEOUT_S = 600.0
# openai's own default of 600 s is made for answers of a model. A worker that waits for one batch serves no other.
_TIMEOUT_S = 60.0
_ATTEMPTS = 4
# A provider's clock and ours may differ: what it calls older than our record by less than this is looked at still.
_CLOCKS_DIFFER_S = 86_400.0


class StoppedError(Exception):
    """The worker was stopped while it waited for something."""


class InDoubtError(Exception):
    """It is not known whether the provider has made the batch that it was asked for."""


class RefusedError(Exception):
    """The provider has said that it makes no such file or batch: nothing was made."""

    def __init__(self, error: openai.APIStatusError) -> None:
        super().__init__(f"the provider answers {error.status_code}")
        self.status = error.status_code
        self.code = error.code if isinstance(error.code, str) else None
        self.retry_after_s = rest_of(error)

    @property
    def passes(self) -> bool:
        """Whether the same request may be taken later."""
        return self.status in (408, 409, 429)

    @property
    def denied(self) -> bool:
        """Whether it is about the key: no batch will be taken with it."""
        return self.status in DENIED


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMode:
    """What a provider's batches bear. The defaults are the lowest bounds of all providers that were looked up."""

    endpoints: tuple[str, ...] | None = None
    """None where they are not known: all are tried."""
    metadata: bool = True
    most_requests: int = 50_000
    most_bytes: int = 100_000_000
    window_s: float = 86_400.0

    def takes(self, endpoint: str) -> bool:
        """Return whether requests to an endpoint, such as "/v1/chat/completions", can be left in a batch."""
        return self.endpoints is None or endpoint in self.endpoints


def mode_of(facts: ProviderFacts, *, forced: bool = False) -> BatchMode | None:
    """Return what a provider's batches bear; None where it has none of the usual shape, unless that is `forced`."""
    batch = facts.batch
    if not forced and (batch.shape is None or batch.shape.value != "openai"):
        return None
    known: dict[str, Fact[Any] | None] = {
        "endpoints": batch.endpoints,
        "metadata": batch.metadata,
        "most_requests": batch.most_requests,
        "most_bytes": batch.most_bytes,
        "window_s": batch.window_s,
    }
    return BatchMode(
        **{name: fact.value for name, fact in known.items() if fact is not None and fact.value is not None}
    )


class ProviderBatches:
    """The files and batches of one client's account. Belongs to one thread."""

    def __init__(self, client: openai.OpenAI, mode: BatchMode, stop: Event) -> None:
        self.mode = mode
        # Its own retries would repeat a creation, and would not end when the worker is to stop.
        self._client = client.with_options(
            max_retries=0, timeout=_TIMEOUT_S if client.timeout == openai.DEFAULT_TIMEOUT else client.timeout
        )
        self._stop = stop

    def upload(self, name: str, content: IO[bytes]) -> FileObject:
        """Upload a batch's file under its name, once. Raises RefusedError; any other error may have uploaded it."""
        content.seek(0)
        file = (name, content, "application/jsonl")
        return _refusals(lambda: self._client.files.create(file=file, purpose="batch", timeout=_TRANSFER_TIMEOUT_S))

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

        return self._repeated(find)

    def create(self, name: str, endpoint: str, file_id: str) -> Batch:
        """Have the provider make a batch. Raises RefusedError where it refuses, InDoubtError where that is unknown."""
        given: dict[str, Any] = {"metadata": {NAME_KEY: name}} if self.mode.metadata else {}
        header = idempotency_header_of(self._client)
        if header is not None:
            given["extra_headers"] = {header: name}
        window: Any = f"{max(1, int(self.mode.window_s // 3_600))}h"
        try:
            return self._client.batches.create(
                completion_window=window,
                endpoint=endpoint,  # type: ignore[arg-type]
                input_file_id=file_id,
                **given,
            )
        except openai.APIStatusError as error:
            # 4xx is a decision; a gateway's 5xx may come although what is behind it has made the batch.
            if not 400 <= error.status_code < 500 or error.status_code == 408:
                raise InDoubtError from None
            refused = RefusedError(error)
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

        return self._repeated(find)

    def batch(self, batch_id: str) -> Batch:
        """Return how a batch stands. Raises RefusedError: 404 where the provider knows of none."""
        return self._repeated(lambda: self._client.batches.retrieve(batch_id))

    def cancel(self, batch_id: str) -> None:
        """Have a batch end early, unless it has ended."""
        try:
            self._repeated(lambda: self._client.batches.cancel(batch_id))
        except RefusedError as error:
            if error.denied:
                raise

    def delete(self, file_id: str) -> None:
        """Delete a file, unless it is gone already."""
        try:
            self._repeated(lambda: self._client.files.delete(file_id))
        except RefusedError as error:
            if error.status != 404:
                raise

    def lines(self, file_id: str) -> Iterator[bytes]:
        """Yield a file's lines while it is downloaded. Raises RefusedError, and errors of openai and its HTTP library.

        Lines end at line feeds alone: JSON may hold other characters that end a line elsewhere.
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

    def _repeated(self, ask: Callable[[], T]) -> T:
        """Ask, and ask again after what may pass. What fails again and again is raised as openai's own error."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_when_event_set
        from tenacity.nap import sleep_using_event

        try:
            return Retrying(
                retry=retry_if_exception(_may_pass),
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
        if _may_pass(error) or error.status_code < 400:
            raise
        refused = RefusedError(error)
    # Out here it has no context: openai's error keeps the request, and with it a file of prompts.
    raise refused


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError)


def _wait_s(state: RetryCallState) -> float:
    from tenacity import wait_random_exponential

    error = state.outcome.exception() if state.outcome is not None else None
    own = wait_random_exponential(multiplier=0.5, max=8.0)(state)
    # Jitter after what the provider asks for: those that it sent away together do not come back together.
    return own + (0.0 if error is None else rest_of(error) or 0.0)
