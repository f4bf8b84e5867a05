"""openai's retry loop and its handling of responses, as flows: retries, errors, typed objects and streams.

openai's methods make every decision of the retry loop, so that overrides are called. Three things are copied from
openai: the order of the steps, the classes of errors that are retried, and the arguments of `_send_request`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from types import FunctionType, MethodType
from typing import Any

import httpx2
import openai
from openai import _base_client as _openai_base_client, _httpx2
from openai._compat import model_copy
from openai._constants import RAW_RESPONSE_HEADER
from openai._legacy_response import LegacyAPIResponse
from openai._models import BaseModel, add_request_id
from openai._streaming import AsyncStream, Stream, extract_stream_chunk_type
from openai._types import NotGiven

from ..decode import answer_decoder, probes as _seams
from ..engine.effects import Await, Close, Flow, ReadBody, Sleep
from ..protocol.header_times import jitter_s
from ..records.attempts import AttemptKind, Form
from .requests import build_request

_base_client: Any = _openai_base_client
log = logging.getLogger("openai._base_client")


class _AlwaysReplayable:
    def __init__(self, options: Any) -> None: ...

    def rewind(self) -> bool:
        return True


# openai 2 and the first versions of 3 resend any body, and retry after any exception.
_RequestBodyReplay: Any = getattr(_base_client, "_RequestBodyReplay", _AlwaysReplayable)
_request_exceptions: Any = getattr(_httpx2, "request_exceptions", None)
_timeout_exceptions: Any = _httpx2.timeout_exceptions
_ANY_BODY = _AlwaysReplayable(None)
_legacy_auth: Any = getattr(_httpx2, "normalize_legacy_httpx_auth", lambda auth: auth)
_method_for_logging: Any = getattr(_base_client, "get_http_method_for_logging", str.upper)

_SLEEP: Any = (_base_client.time.sleep, _base_client.anyio.sleep)

# The log message before a retry differs between versions of openai.
_RETRYING: str = next(
    text
    for text in _base_client.SyncAPIClient._sleep_for_retry.__code__.co_consts
    if isinstance(text, str) and text.startswith("Retrying request")
)
_NAMES_URL = "to %s" in _RETRYING
_LOGS_URLS = not hasattr(_base_client, "get_http_method_for_logging")


@dataclass(slots=True)
class RequestAttempt:
    """One HTTP request of a call."""

    options: Any
    """openai's options of this attempt."""
    http: Any
    """The HTTP client that sends it."""
    request: Any
    retries_taken: int
    send_request: Callable[..., Any]
    arguments: dict[str, Any]
    """Further arguments of `send_request`."""
    stream: bool
    """Whether to leave the body of the response unread."""
    is_stock: bool = False
    """Whether openai's methods around a request are not overridden or patched: see `Requests.are_stock`."""
    form: Form = "json"
    """The encoding of the body."""
    kind: AttemptKind | None = None
    """Why it is made; None: the flow decides."""
    connection_errors: list[openai.APIConnectionError] = field(default_factory=list)
    """Connection errors that openai's rules allow to be retried. Copies of the attempt share the list."""


class Reply:
    """A response whose head has arrived, and its attempt."""

    __slots__ = ("_ends", "attempt", "cast_to", "response", "result", "state")

    def __init__(self, attempt: RequestAttempt | None, response: Any, state: Any) -> None:
        self.attempt = attempt
        """None if a wrapped `request()` of openai has made the attempts."""
        self.response = response
        self.result: Any = None
        """What the caller gets; set after the last attempt."""
        self.cast_to: Any = None
        self.state = state
        """The engine's state of the call."""
        self._ends: list[Callable[[str], None]] = []

    @property
    def is_streaming(self) -> bool:
        """Whether the body has not been read to its end."""
        return self.response is not None and not self.response.is_closed

    def on_end(self, function: Callable[[str], None]) -> None:
        """Call a function with the outcome when the body has been read or closed; now if it has been already."""
        if not self.is_streaming:
            function("completed")
            return
        if not self._ends:
            # Not `self.end`: a reference cycle would delay the finalizer of a dropped stream.
            self.state.on_end(functools.partial(_end, self._ends))
        self._ends.append(function)

    def end(self, outcome: str) -> None:
        """Call the functions that were registered with `on_end`."""
        _end(self._ends, outcome)


def _end(functions: list[Callable[[str], None]], outcome: str) -> None:
    while functions:
        functions.pop()(outcome)


SendAttempt = Callable[[RequestAttempt], Flow]
"""Returns a Reply of any status. Only errors in `RequestAttempt.connection_errors` are retried by openai's rules."""


def attempt_with_retries(state: Any, options: Any, send: SendAttempt, *, is_stock: bool) -> Flow:
    """Send attempts until one succeeds, or openai's client allows no more. Returns a Reply.

    `state` is the engine's state of the call; `is_stock`: see `RequestAttempt`. Raises openai's errors, as `request()`
    of openai's client does.
    """
    client, cast_to, stream = state.client, state.cast_to, state.stream
    requests = client._fastlane.requests
    # If openai's methods have nothing to do before the first attempt, none of them is called.
    request = requests.first(client, options, state) if is_stock else None
    asynchronous = client._asynchronous
    if request is None:
        if asynchronous and client._platform is None:
            # Not in a thread, as by openai: importing anyio's threads takes ten times as long as looking it up.
            client._platform = requests.platform = _base_client.get_platform()
        cast_to = client._maybe_override_cast_to(cast_to, options)
        options = model_copy(options)
        if options.idempotency_key is None and options.method.lower() != "get":
            options.idempotency_key = client._idempotency_key()
    max_retries = options.get_max_retries(client.max_retries)
    if hasattr(client, "_validate_max_retries"):  # from openai 3 on
        client._validate_max_retries(max_retries)
    for retries_taken in range(max_retries + 1):
        if request is not None:
            attempt = RequestAttempt(options, client._client, request, 0, client._send_request, {}, stream, is_stock)
            replay = _ANY_BODY
        else:
            current = client._prepare_options(model_copy(options))
            if asynchronous:
                current = yield Await(current)
            replay = _RequestBodyReplay(current)
            request = build_request(client, current, state, retries_taken)
            prepared = client._prepare_request(request)
            if asynchronous:
                yield Await(prepared)
            arguments = _send_arguments(client, current)
            if _LOGS_URLS:
                log.debug("Sending HTTP Request: %s %s", request.method, request.url)
            else:
                log.debug("Sending HTTP Request: %s", _method_for_logging(request.method))
            is_unread = stream or client._should_stream_response_body(request=request)
            attempt = RequestAttempt(
                current,
                client._client,
                request,
                retries_taken,
                client._send_request,
                arguments,
                is_unread,
                requests.are_stock(client),
            )
        may_retry = retries_taken < max_retries
        try:
            reply: Reply = yield from send(attempt)
        except openai.APIConnectionError as error:
            is_connection_error = error in attempt.connection_errors
            attempt.connection_errors.clear()
            if not is_connection_error:
                raise
            is_timeout = isinstance(error, openai.APITimeoutError)
            _log_failure(error.__cause__, is_timeout=is_timeout)
            if not (may_retry and replay.rewind()):
                log.debug("Raising %s error", "timeout" if is_timeout else "connection")
                raise
            yield from _paused(state, options, retries_taken, max_retries, None)
        else:
            response = reply.response
            if log.isEnabledFor(logging.DEBUG):
                _log_response(request, response)
            if 200 <= response.status_code < 300:
                reply.cast_to = cast_to
                return reply
            if not (may_retry and client._should_retry(response) and replay.rewind()):
                yield ReadBody(response)
                log.debug("Re-raising status error")
                raise client._make_status_error_from_response(response) from None
            yield Close(response)
            reply.end("failed")
            yield from _paused(state, options, retries_taken, max_retries, response)
        request = None
    raise AssertionError("the last attempt returns or raises")


def openai_error_class(error: Exception) -> type[openai.APIConnectionError] | None:
    """Return the class that openai wraps an HTTP library's error in; None for errors that it neither wraps nor retries.

    Up to its version 3.0, openai wraps every exception that `_send_request` raises.
    """
    if isinstance(error, _timeout_exceptions()):
        return openai.APITimeoutError
    if isinstance(error, openai.OpenAIError):
        return None
    if _request_exceptions is None or isinstance(error, _request_exceptions()):
        return openai.APIConnectionError
    return None


def _log_failure(error: BaseException | None, *, is_timeout: bool) -> None:
    what = "a timeout exception" if is_timeout else "Exception" if _LOGS_URLS else "exception"
    if _LOGS_URLS:
        log.debug("Encountered %s", what, exc_info=error)
    else:
        log.debug("Encountered %s: %s", what, type(error).__name__)


def _log_response(request: Any, response: Any) -> None:
    status = response.status_code
    if _LOGS_URLS:
        phrase = response.reason_phrase
        log.debug('HTTP Response: %s %s "%i %s" %s', request.method, request.url, status, phrase, response.headers)
    else:
        log.debug("HTTP Response: %s %i", _method_for_logging(request.method), status)
    log.debug("request_id: %s", response.headers.get("x-request-id"))
    if response.is_success:
        return
    if _LOGS_URLS:
        log.debug("Encountered an HTTP status error")
    else:
        log.debug("Encountered an HTTP status error: %i", status)


def process_with_openai(client: Any, reply: Reply, stream: bool, stream_cls: Any) -> Flow:
    """Return what openai's own code makes of a successful response.

    A raw response, which frameworks request for its headers, also gets its typed object, where `parse()` looks first.
    """
    attempt = reply.attempt
    assert attempt is not None
    result = client._process_response(
        cast_to=reply.cast_to,
        options=attempt.options,
        response=reply.response,
        stream=stream,
        stream_cls=stream_cls,
        retries_taken=attempt.retries_taken,
    )
    if client._asynchronous:
        result = yield Await(result)
    if type(result) is LegacyAPIResponse and not stream and isinstance(attempt.options.post_parser, NotGiven):
        answer = decode(client, reply, is_raw=True)
        if answer is not UNDECODED:
            result._parsed_by_type[reply.cast_to] = answer
    return result


def _paused(state: Any, options: Any, retries_taken: int, max_retries: int, response: Any) -> Flow:
    """Pause before a retry. `response`: the unsuccessful response; None if there was none."""
    client = state.client
    sleep = client._sleep_for_retry
    remaining = max_retries - retries_taken
    function = sleep.__func__ if type(sleep) is MethodType else None
    if type(function) is not FunctionType or function.__globals__ is not vars(_base_client):
        if state.upstream is not None:
            state.upstream.before_retry(response, 0.0)
        waiting = sleep(retries_taken=retries_taken, max_retries=max_retries, options=options, response=response)
        if client._asynchronous:
            yield Await(waiting)
        return
    if remaining == 1:
        log.debug("1 retry left")
    else:
        log.debug("%i retries left", remaining)
    headers = None if response is None else response.headers
    seconds = _jittered_s(client, client._calculate_retry_timeout(remaining, options, headers), headers)
    if _NAMES_URL:
        log.info(_RETRYING, options.url, seconds)
    else:
        log.info(_RETRYING, seconds, retries_taken + 1, max_retries)
    if state.upstream is not None:
        state.upstream.before_retry(response, seconds)
    # Applications' tests mock these functions.
    pause: Any = _base_client.anyio.sleep if client._asynchronous else _base_client.time.sleep
    yield Sleep(client._client, seconds, None if pause in _SLEEP else pause)


def _jittered_s(client: Any, openais_s: float, headers: Any) -> float:
    """Return openai's pause before a retry; if the provider has announced it, with jitter on top.

    `openais_s`: what openai's client waits, in seconds. It ignores an announced pause that is too long, and has jitter
    of its own if none is announced. `headers`: those of the unsuccessful response; None if there was none.
    """
    announced_s = client._parse_retry_after_header(headers)
    # A pause until a date is some microseconds shorter when it is read again.
    if announced_s is None or not math.isclose(announced_s, openais_s, abs_tol=0.1):
        return openais_s
    # openai's own source of chance: applications' tests mock it.
    return openais_s + jitter_s(openais_s, vars(_base_client)["random"])


def _send_arguments(client: Any, options: Any) -> dict[str, Any]:
    """Return the arguments of `_send_request` beside the request and `stream`."""
    arguments: dict[str, Any] = {}
    auth = client.custom_auth if client._asynchronous else client._custom_auth(options.security)
    if auth is not None:
        is_httpx2 = isinstance(client._client, httpx2.Client | httpx2.AsyncClient)
        arguments["auth"] = _httpx2.normalize_httpx2_auth(auth) if is_httpx2 else _legacy_auth(auth)
    if options.follow_redirects is not None:
        arguments["follow_redirects"] = options.follow_redirects
    return arguments


def is_request_wrapped(client: Any) -> bool:
    """Return whether another tool, such as an instrumentation, has replaced openai's `request()`."""
    request = client.stock_request
    # By type: the objects of wrapt pass for functions.
    return type(request) is not MethodType or getattr(request.__func__, "__globals__", None) is not vars(_base_client)


# Fast paths for typed objects and streams, without those steps of openai that do nothing here

# The header that requests an undecoded response.
_RAW = RAW_RESPONSE_HEADER.lower().encode()
_NAME = itemgetter(1)

UNDECODED = object()
"""Returned if openai's code has to process the response."""


def decode(client: Any, reply: Reply, *, is_raw: bool = False) -> Any:
    """Return the typed object that the stock client makes of a whole answer, or `UNDECODED`.

    `is_raw`: of one that the application requested as a raw response too.
    """
    attempt, response = reply.attempt, reply.response
    if attempt is None or not attempt.is_stock or client._strict_response_validation:
        return UNDECODED
    decoder = answer_decoder(reply.cast_to)
    if decoder is None:
        return UNDECODED
    content_type = request_id = None
    try:
        if not is_raw and _RAW in map(_NAME, response.request.headers._list):
            return UNDECODED
        for _, name, value in response.headers._list:
            if name == b"content-type":
                if content_type is not None:
                    return UNDECODED
                content_type = value
            elif name == b"x-request-id":
                if request_id is not None:
                    return UNDECODED
                request_id = value.decode("ascii")
        if content_type is None or not content_type.partition(b";")[0].endswith(b"json"):
            return UNDECODED
    except (AttributeError, UnicodeDecodeError):
        return UNDECODED
    answer = decoder(response.content)
    if answer is None:
        return UNDECODED
    if not isinstance(attempt.options.post_parser, NotGiven):
        answer = attempt.options.post_parser(answer)
    if isinstance(answer, BaseModel):
        add_request_id(answer, request_id)
    return answer


def open_stream(client: Any, reply: Reply, stream_cls: Any) -> Any:
    """Return the stream that the stock client makes of a response, or `UNDECODED`."""
    attempt = reply.attempt
    if attempt is None or not attempt.is_stock or stream_cls is None:
        return UNDECODED
    try:
        is_raw = _RAW in map(_NAME, reply.response.request.headers._list)
        if is_raw or not isinstance(attempt.options.post_parser, NotGiven):
            return UNDECODED
    except AttributeError:
        return UNDECODED
    # A `cast_to` of the HTTP library requests its own response.
    if not getattr(reply.cast_to, "__module__", "").startswith(("openai.", "typing", "builtins")):
        return UNDECODED
    if not _seams.holds("openai.Stream()", _streams_are_as_expected):
        return UNDECODED
    return stream_cls(cast_to=_event_type(stream_cls), response=reply.response, client=client, options=attempt.options)


def stream_of(client: Any, reply: Reply, stream_cls: Any) -> Any:
    """Return the stream of an unread response, also where the application reads the raw response of the call."""
    options = None if reply.attempt is None else reply.attempt.options
    return stream_cls(cast_to=_event_type(stream_cls), response=reply.response, client=client, options=options)


def _streams_are_as_expected() -> bool:
    parameters = {"self", "cast_to", "response", "client", "options"}
    return all(set(inspect.signature(made.__init__).parameters) == parameters for made in (Stream, AsyncStream))


@functools.lru_cache(maxsize=256)
def _event_type(stream_cls: Any) -> Any:
    return extract_stream_chunk_type(stream_cls)
