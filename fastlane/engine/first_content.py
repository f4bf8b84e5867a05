"""Wait for the first content of a response, before anything of it is handed out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from ..protocol.first_content import Verdict, is_empty_answer
from .effects import Close, Flow
from .peek import peek

if TYPE_CHECKING:
    from .observation import Observation
    from .upstream_attempt import UpstreamAttempt


def until_ns_of(upstream: UpstreamAttempt) -> int | None:
    """When the async driver has to end an attempt. None where fastlane's transport does so."""
    until_ns = upstream.patience.until_ns
    if until_ns is None or not upstream.client._asynchronous:
        return None
    return None if upstream.observation.transport == "fastlane" and is_asyncio() else until_ns


def is_asyncio() -> bool:
    """Whether the running event loop is asyncio's. fastlane's transport does not run on trio's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def send_until_content(upstream: UpstreamAttempt, observation: Observation, send: Flow, *, is_unread: bool) -> Flow:
    """Send an attempt, and wait for its first content. Returns the response.

    `is_unread`: its body is unread. Raises UpstreamFailed where the attempt at this upstream ends.
    """
    is_answered = False
    response: Any = None
    try:
        response = yield from send
        if not 200 <= response.status_code < 300:
            return response  # openai's own code raises the error
        is_answered = is_unread
        if is_unread:
            verdict = yield from peek(
                response,
                observation.endpoint,
                asynchronous=upstream.client._asynchronous,
                until_ns=until_ns_of(upstream),
            )
        else:
            verdict = _verdict_of_whole(response, observation.endpoint)
    except Exception as error:
        failed = upstream.failure(error)
        if failed is None and is_answered and not upstream.may_leave:
            # It was begun, and may be billed: the application sees it break, as the stock client has it. openai's loop
            # would try it again.
            error.with_traceback(None)  # it leads to the answer, which has the error to raise
            return response
        if is_answered:
            yield Close(response)
        if failed is None:
            raise
        observation.attempt_failed(error)
        try:
            raise failed from None
        finally:
            del failed  # whose traceback leads here
    try:
        if verdict in ("empty", "error") or (verdict == "unknown" and is_unread and _is_a_page(response)):
            upstream.no_content("empty" if verdict == "empty" else "server")
        upstream.claim()
    except BaseException:
        if is_unread:
            yield Close(response)
        raise
    return response


def _verdict_of_whole(response: Any, endpoint: str) -> Verdict:
    if "json" not in response.headers.get("content-type", ""):
        return "error" if _is_a_page(response) else "unknown"
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return "error"  # where it is handed out, openai's code says what is wrong with that
    return "empty" if isinstance(body, dict) and is_empty_answer(body, endpoint) else "unknown"


def _is_a_page(response: Any) -> bool:
    """Whether it comes from what stands before the provider, and is for people."""
    return bool(response.headers.get("content-type", "").lower().startswith("text/html"))
