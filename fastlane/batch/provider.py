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

T = TypeVar("T")

NAME_KEY = "fastlane_batch"
"""The key of a batch's name in its metadata."""
DENIED = frozenset({401, 402, 403})
"""Statuses that concern the key, or the account behind it."""

# Uploads and downloads may have to move 200 MB. It is the longest pause between two pieces of them.
_TRANSFER_TIMEOUT_S = 600.0
# openai's own default of 600 s is made for answers of a model.
_TIMEOUT_S = 60.0
_RETRIES = 3
# The provider's clock may differ from ours by so much.
_CLOCKS_DIFFER_S = 86_400.0


class StoppedError(Exception):
    """The worker was stopped during a download."""


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
        timeout = _TIMEOUT_S if client.timeout == openai.DEFAULT_TIMEOUT else client.timeout
        self._client = client.with_options(max_retries=_RETRIES, timeout=timeout)
        # A creation must not be repeated before its result is known.
        self._once = client.with_options(max_retries=0, timeout=timeout)
        self._stop = stop

    def upload(self, name: str, content: IO[bytes]) -> FileObject:
        """Upload a batch's file under its name, once. Raises RefusedError; after other errors it may be there."""
        content.seek(0)
        file = (name, content, "application/jsonl")
        return _refusals(lambda: self._once.files.create(file=file, purpose="batch", timeout=_TRANSFER_TIMEOUT_S))

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

        return _refusals(find)

    def create(self, name: str, endpoint: str, file_id: str) -> Batch:
        """Create a batch, once. Raises RefusedError, and InDoubtError where the result is not known."""
        given: dict[str, Any] = {"metadata": {NAME_KEY: name}} if self.mode.metadata else {}
        if (header := idempotency_header_of(self._once)) is not None:
            given["extra_headers"] = {header: name}
        window: Any = f"{max(1, int(self.mode.window_s // 3_600))}h"
        where: Any = endpoint
        try:
            return self._once.batches.create(completion_window=window, endpoint=where, input_file_id=file_id, **given)
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

        return _refusals(find)

    def batch(self, batch_id: str) -> Batch:
        """Return a batch. Raises RefusedError: 404 where there is none."""
        return _refusals(lambda: self._client.batches.retrieve(batch_id))

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch, unless it has ended."""
        try:
            _refusals(lambda: self._client.batches.cancel(batch_id))
        except RefusedError as error:
            if error.denied:
                raise

    def delete(self, file_id: str) -> None:
        """Delete a file, unless it is gone already. Raises RefusedError."""
        try:
            _refusals(lambda: self._client.files.delete(file_id))
        except RefusedError as error:
            if error.status != 404:
                raise

    def lines(self, file_id: str) -> Iterator[bytes]:
        """Yield a file's lines while it is downloaded. Raises RefusedError, and errors of openai and its HTTP library.

        Only line feeds end lines: JSON may contain other characters that end a line elsewhere.
        """
        download = self._client.files.with_streaming_response.content(file_id, timeout=_TRANSFER_TIMEOUT_S)
        response = _refusals(download.__enter__)
        rest = b""
        try:
            for piece in response.iter_bytes(1 << 20):
                if self._stop.is_set():
                    raise StoppedError
                *lines, rest = (rest + piece).split(b"\n")
                yield from filter(bytes.strip, lines)
        finally:
            download.__exit__(None, None, None)
        if rest.strip():
            yield rest


def _refusals(ask: Callable[[], T]) -> T:
    """Raise RefusedError for a 4xx that is not transient."""
    try:
        return ask()
    except openai.APIStatusError as error:
        if not 400 <= error.status_code < 500 or error.status_code in (408, 409, 429):
            raise
        refused = RefusedError(error)
    # Outside of the handler: openai's error keeps the request, and with it a file of prompts.
    raise refused
