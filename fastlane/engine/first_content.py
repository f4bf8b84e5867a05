"""Wait for the first content of a response, before anything of it is handed out."""

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
    """Wait for the first content of a response whose head has come.

    `is_unread`: its body is unread. Raises UpstreamFailed where the attempt at this upstream ends.
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
                # It was begun, and may be billed: the application sees it break, as the stock client has it. openai's
                # loop would try it again.
                error.with_traceback(None)  # it leads to the answer, which has the error to raise
                return
            yield Close(response)
            if failed is None:
                raise
            state.attempt_failed(error)
            try:
                raise failed from None
            finally:
                del failed  # whose traceback leads here
    else:
        verdict = _verdict_of_whole(response, state.endpoint)
    try:
        if verdict in ("empty", "error") or (verdict == "unknown" and is_unread and _is_a_page(response)):
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

    Its `stream` then gives every piece again, with the time of its arrival, and goes on with the rest. A response that
    is no event stream, or compressed, is not read: "unknown". Raises what reading raises; the `stream` then gives what
    had come, and raises the same error. `first` can be asked about an error afterwards. `until_ns`: see `Send`.
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
        return "error" if _is_a_page(response) else "unknown"
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return "error"  # where it is handed out, openai's code says what is wrong with that
    return "empty" if isinstance(body, dict) and is_empty_answer(body, endpoint) else "unknown"


def _is_a_page(response: Any) -> bool:
    """Whether it comes from what stands before the provider, and is for people."""
    return bool(response.headers.get("content-type", "").lower().startswith("text/html"))
