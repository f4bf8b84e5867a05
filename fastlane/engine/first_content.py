"""Wait for the first content of a response before the caller gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..compat.bodies import body_around, name_request
from ..protocol.first_content import FirstContent, Verdict, is_empty_answer
from .collector import is_event_stream
from .effects import Close, Flow, Next

if TYPE_CHECKING:
    from .upstream_attempt import UpstreamAttempt


def wait_for_content(upstream: UpstreamAttempt, response: Any, *, is_unread: bool) -> Flow:
    """Wait for the first content of a response whose head has arrived.

    `is_unread`: its body has not been read. Raises UpstreamFailed to end the attempt at this upstream.
    """
    if not 200 <= response.status_code < 300:
        return  # openai's own code raises the error
    state = upstream.state
    if is_unread:
        try:
            verdict: Verdict = yield from peek(
                response,
                state.endpoint,
                asynchronous=upstream.client._asynchronous,
                until_ns=upstream.until_ns,
            )
        except Exception as error:
            failed = upstream.failure(error)
            if failed is None and not upstream.may_leave:
                # The answer may be billed: hand the broken stream to the application, as the stock client does, instead
                # of a retry. The stream raises the error.
                error.with_traceback(None)  # break the cycle between the error and the response
                return
            yield Close(response)
            if failed is None:
                raise
            state.attempt_failed(error)
            try:
                raise failed from None
            finally:
                del failed  # its traceback refers to this frame
    else:
        verdict = _verdict_of_whole(response, state.endpoint)
    try:
        if verdict in ("empty", "error") or (verdict == "unknown" and is_unread and _is_html(response)):
            upstream.no_content("empty" if verdict == "empty" else "server")
        upstream.claim()
    except BaseException:
        if is_unread:
            yield Close(response)
        raise


def peek(
    response: Any,
    endpoint: str,
    *,
    asynchronous: bool,
    first: FirstContent | None = None,
    until_ns: int | None = None,
) -> Flow:
    """Read a response until its first content. Returns a Verdict.

    Its `stream` then replays every piece with its time of arrival, and goes on with the rest. A response that is not an
    event stream or is compressed is not read: the verdict is "unknown". Raises the error of reading; the `stream` then
    replays what has arrived, and raises the same error. `first` gets the bytes, and holds the status of an error
    afterwards. `until_ns`: see `Send`.
    """
    if not _can_be_read(response):
        return "unknown"
    pieces = body_around(response, asynchronous=asynchronous).peek()
    first = first if first is not None else FirstContent(endpoint)
    verdict: Verdict | None = None
    try:
        while verdict is None:
            piece = yield Next(pieces.rest, until_ns)
            if piece is None:
                verdict = first.ended()
            else:
                pieces.hold(piece)
                verdict = first.feed(piece)
    except Exception as error:
        name_request(error, response)
        pieces.fail(error)
        raise
    except GeneratorExit:
        raise
    except BaseException:
        yield Close(response)
        raise
    return verdict


def _can_be_read(response: Any) -> bool:
    if response.is_closed or response.is_stream_consumed or not is_event_stream(response):
        return False
    return response.headers.get("content-encoding", "identity") == "identity"  # type: ignore[no-any-return]


def _verdict_of_whole(response: Any, endpoint: str) -> Verdict:
    if "json" not in response.headers.get("content-type", ""):
        return "error" if _is_html(response) else "unknown"
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return "error"  # if it is handed out, openai's code raises the error
    return "empty" if isinstance(body, dict) and is_empty_answer(body, endpoint) else "unknown"


def _is_html(response: Any) -> bool:
    """Whether it is an HTML page, such as one of a proxy or gateway in front of the provider."""
    return bool(response.headers.get("content-type", "").lower().startswith("text/html"))
