"""Who sends a call, as far as a play may need to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compat.clients import http_client_of, status_error_of
from .accounts import Account


class Caller:
    """The client that a call is made with, at one upstream."""

    __slots__ = ("_client", "_options", "_pipeline")

    def __init__(self, client: Any, options: Any) -> None:
        self._client = client
        self._options = options
        self._pipeline = client._fastlane.pipeline

    @property
    def http_client(self) -> Any:
        """The HTTP client that sends the requests."""
        return http_client_of(self._client)

    @property
    def is_async(self) -> bool:
        """Whether it is an async client."""
        return bool(self._client._asynchronous)

    @property
    def max_retries(self) -> int:
        """How often openai's rules may retry an attempt, as the application has it."""
        retries: int = self._options.get_max_retries(self._client.max_retries)
        return retries

    @property
    def account(self) -> Account:
        """Digests of the key, organisation and project: calls of the same account share the provider's limits."""
        account: Account = self._client._fastlane.accounts.of(self._client, self._options)
        return account

    def error_of(self, response: Any) -> Exception:
        """Return openai's error of a response that is no success."""
        return status_error_of(response, self._client)

    def went_wrong(self, play: str, step: str, error: Exception) -> None:
        """Log an error of a play once, or raise PlayError where the client is strict."""
        self._pipeline.went_wrong(play, step, error)

    def later(self, function: Callable[[], object]) -> None:
        """Call a function soon, outside of the finalizer that may be running. Waits for no lock."""
        self._pipeline.report_later(function)
