"""One call, from its options to its result. Written once, for sync and async clients.

run_call                        observe and report
  send_across_upstreams         `around_call` of the sessions that last for the whole call: other upstreams, hedging
    send_to_upstream            `around_call` of the sessions of this upstream, outermost first
      send_again_where_refused  `plan` of each session; again where a session takes back what the provider refuses
        send_planned            take back the fields that the provider refuses
            attempt_with_retries    openai's rules (`compat.retry`)
              send_attempt      `around_attempt` of each session; what the response has to go through
                send_rewritten  `on_request` of each session
                  send_once     one HTTP request
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import openai

from ..compat.bodies import watch_body
from ..compat.clients import http_client_of
from ..compat.context import restore
from ..compat.requests import changed_options
from ..compat.responses import UNDECODED, decode, open_stream
from ..compat.retry import (
    Attempt,
    Reply,
    attempt_with_retries,
    is_request_wrapped,
    openai_error_class,
    process_with_openai,
)
from ..compat.send import layers_to_pass
from .effects import Await, Compute, Flow, Send
from .refused_fields import without_refused
from .session import NO_SESSIONS, SendAttempt, SendCall
from .shell import Shell
from .traced import answered, around_attempt, head_came, quietly
from .upstream_failures import UpstreamFailed, as_openai_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from .call import Call
    from .observation import Observation
    from .upstream_attempt import UpstreamAttempt, UpstreamAttempts

# Statuses by which a provider refuses a request for what it contains.
_REFUSALS = frozenset({400, 413, 415, 422})
_MOST_REFUSALS = 5

# Rewriting a body of this size would hold an event loop up for more than a millisecond.
_LARGE_BYTES = 262_144


@dataclass(slots=True)
class CallState:
    """What belongs to one call while it runs; with several upstreams, to its part at one of them."""

    client: Any
    cast_to: Any
    stream: bool
    stream_cls: Any
    observation: Observation

    upstream: UpstreamAttempt | None = None
    """Where it is sent, if plays may send it to several upstreams, or more than once."""


def run_call(state: CallState, options: Any) -> Flow:
    """Send a call, and report it once it is over. Returns what the caller gets."""
    client, observation = state.client, state.observation
    shell = client._fastlane
    try:
        call = shell.call_of(client, observation, options)
        if call is not None:
            for listener in shell.pipeline.listeners:
                listener.began(call)
        if call is None:
            reply = yield from send_planned(state, options)
        elif shell.pipeline.spans_upstreams:
            reply = yield from send_across_upstreams(state, options, call)
        else:
            reply = yield from send_to_upstream(state, options, call)
        result = reply.result
        shell.returned(state.observation, result)
    except BaseException as error:
        state.observation.broken_off(error)
        raise
    return result


def send_across_upstreams(state: CallState, options: Any, call: Call) -> Flow:
    """Send a call through the sessions that last for all of it, to the upstreams that they name."""
    pipeline = state.client._fastlane.pipeline
    sessions = state.observation.sessions = pipeline.open_call(call)
    if not sessions:
        return (yield from send_to_upstream(state, options, call))
    from .upstream_attempt import UpstreamAttempt

    state.observation.count_all_attempts()
    upstream = UpstreamAttempt(state.client, state.observation, options, call.body)
    attempts: UpstreamAttempts = upstream.attempts
    reply: Reply | None = None
    try:
        reply = yield from sessions.wrap_call(partial(send_to_named_upstream, state))(call.replaced(upstream=upstream))
    finally:
        state.observation = attempts.end(None if reply is None else reply.observation)
    return reply


def send_to_named_upstream(state: CallState, call: Call) -> Flow:
    """Send a call to the upstream that it names. Returns a Reply; raises openai's errors."""
    upstream: UpstreamAttempt = call.upstream
    state = replace(state, client=upstream.client, observation=upstream.observation, upstream=upstream)
    options = upstream.options
    if call.body is not upstream.body:
        options = changed_options(options, {"json_data": dict(call.body), "extra_json": None})
    try:
        there = state.client._fastlane.call_of(state.client, state.observation, options)
        return (yield from send_to_upstream(state, options, there))
    except UpstreamFailed as failed:
        upstream.attempts.failed, upstream.why = upstream, failed.why
        error, cause = as_openai_error(failed), failed.error
    except Exception:
        upstream.attempts.failed = upstream
        raise
    try:
        if cause is None or cause is error:
            raise error
        raise error from cause
    finally:
        del error, cause  # their tracebacks refer to this frame


def send_to_upstream(state: CallState, options: Any, call: Call) -> Flow:
    """Send a call to one upstream, through the sessions that it has there. Returns a Reply."""
    observation, pipeline = state.observation, state.client._fastlane.pipeline
    if call.facts is not None:
        observation.read_by(call.facts)
    sessions = observation.sessions = pipeline.open_upstream(call, observation.sessions)
    send: SendCall = sessions.wrap_upstream(partial(send_again_where_refused, state, options, call))
    return (yield from send(call))


def send_again_where_refused(state: CallState, options: Any, given: Call, call: Call) -> Flow:
    """Plan a call and send it, and again while sessions take back what the provider refuses. Returns a Reply.

    `options` are those of the call as it was `given`.
    """
    client, observation, shell = state.client, state.observation, state.client._fastlane
    if observation.attempts:
        observation.begin_again(call.attempt_kind)
    for refusals in range(_MOST_REFUSALS + 1):
        planned = shell.plan(observation, call)
        planned_options = shell.options_of(client, options, given, planned)
        try:
            return (yield from send_planned(state, planned_options))
        except openai.APIStatusError as error:
            if error.status_code not in _REFUSALS or refusals == _MOST_REFUSALS:
                raise
            if not observation.sessions.on_refused(error):
                raise
            observation.next_kind = "plain"
    raise AssertionError("the last round returns or raises")


def send_planned(state: CallState, options: Any) -> Flow:
    """Send a call, and again without the fields that a play added and the provider refuses."""
    client, observation = state.client, state.observation
    if observation.trace is not None:
        observation.trace.planned(observation, options.json_data)
    while True:
        try:
            if is_request_wrapped(client):
                return (yield from send_by_wrapped_request(state, options))
            reply: Reply = yield from attempt_with_retries(
                client,
                state.cast_to,
                options,
                observation,
                _send_attempt_of(state),
                stream=state.stream,
                pause=partial(pause, state),
            )
            reply.result = yield from process_response(state, reply)
            if not state.stream:
                observation.unreturned = reply.result
        except openai.APIStatusError as error:
            changed = without_refused(client, observation, options, error)
            if changed is None:
                raise
            options = changed
        else:
            return reply


def _send_attempt_of(state: CallState) -> SendAttempt:
    send = partial(send_attempt, state)
    sessions = state.observation.sessions
    return send if sessions is NO_SESSIONS else sessions.wrap_attempt(send)


def pause(state: CallState, response: Any, seconds: float, pausing: Flow) -> Flow:
    """Pause before a retry. `response`: the one that was no success; None where none came."""
    if state.upstream is not None:
        state.upstream.before_retry(response, seconds)
    return pausing


def process_response(state: CallState, reply: Reply) -> Flow:
    """Make what the caller gets of a successful response."""
    client, attempt = state.client, reply.attempt
    assert attempt is not None
    if attempt.is_stock:
        if state.stream:
            result = open_stream(reply.cast_to, client, state.stream_cls, attempt.options, reply.response)
        else:
            result = decode(client, reply.cast_to, attempt.options, reply.response)
        if result is not UNDECODED:
            return result
    try:
        result = yield from process_with_openai(client, reply, state.stream, state.stream_cls)
    except Exception:
        look_at_refused_answer(state, reply)
        raise
    if not state.stream:
        answered(state.observation, result)
    return result


def look_at_refused_answer(state: CallState, reply: Reply | None) -> None:
    """Take down a whole answer that openai's code makes an error of: it was paid for."""
    if reply is not None and not state.stream and reply.response.is_closed and reply.response.is_success:
        state.observation.raw_answer(reply.response.content)


def send_attempt(state: CallState, attempt: Attempt) -> Flow:
    """Send one attempt. Returns a Reply of any status; raises openai's errors of connections."""
    try:
        response = yield from _send_attempt(state, attempt)
    except Exception as error:
        wrapper = openai_error_class(error)
        if wrapper is None:
            raise
        attempt.connection_errors.append(wrapper(request=attempt.request))
        raise attempt.connection_errors[-1] from error
    return Reply(attempt, response, state.observation)


def _send_attempt(state: CallState, attempt: Attempt) -> Flow:
    """Send one attempt. Returns the response, whole unless the caller streams."""
    observation = state.observation
    collector = None if attempt.stream else observation.collector
    is_unread = attempt.stream or (collector is not None and observation.collects)
    response = yield from _send_head(state, is_unread, attempt)
    if collector is not None:
        from .collecting import collect

        return (yield from collect(collector, observation, response, asynchronous=state.client._asynchronous))
    if attempt.stream and not response.is_closed and response.status_code < 400:
        watch_body(response, observation, asynchronous=state.client._asynchronous)
    return response


def _send_head(state: CallState, is_unread: bool, attempt: Attempt) -> Flow:
    if state.observation.sessions:
        sending = send_rewritten(state, attempt, stream=is_unread)
    else:
        sending = send_once(state, attempt, attempt.request, stream=is_unread)
    if state.upstream is None:
        return sending
    from .first_content import send_until_content

    return send_until_content(state.upstream, state.observation, sending, is_unread=is_unread)


def send_rewritten(state: CallState, attempt: Attempt, *, stream: bool) -> Flow:
    """Send one attempt's request, as the sessions rewrite it."""
    sessions, request = state.observation.sessions, attempt.request
    for play, session in sessions.having.get("on_request", ()):
        rewrite = partial(sessions.on_request, play, session, request)
        request = (yield Compute(rewrite)) if _size_of(request) >= _LARGE_BYTES else rewrite()
    return (yield from send_once(state, attempt, request, stream=stream))


def _size_of(request: Any) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def send_once(state: CallState, attempt: Attempt, request: Any, *, stream: bool) -> Flow:
    """Send one HTTP request. Raises the HTTP library's errors."""
    client, observation, until_ns = state.client, state.observation, None
    if state.upstream is not None:
        from .first_content import until_ns_of

        state.upstream.begin()
        until_ns = until_ns_of(state.upstream)
    is_plain = attempt.kind == "plain"
    Shell.attach(observation, request, asynchronous=client._asynchronous, form=attempt.form, plain=is_plain)
    try:
        layers = layers_to_pass(client, attempt.http, request, attempt.arguments) if attempt.is_stock else None
        with around_attempt(observation, attempt.http, request):
            response = yield Send(
                attempt.http, request, stream, attempt.send_request, attempt.arguments, layers, until_ns
            )
    except BaseException as error:
        observation.attempt_failed(error)
        raise
    observation.attempt_answered(response)
    head_came(observation)
    return response


# Where somebody has wrapped openai's `request()`


class _EndsOpenAILoop(BaseException):
    """Carries an error out of openai's own loop, which would retry it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class WrappedRequest:
    """A call that goes through somebody's `request()`, and from there through openai's own loop."""

    def __init__(self, state: CallState) -> None:
        self._state = state
        self.client = state.client
        self.reply: Reply | None = None
        """The reply to the last attempt."""

    def send(self, request: Any, *, stream: bool, send_request: Callable[..., Any], arguments: dict[str, Any]) -> Flow:
        """Send an attempt of openai's loop. Raises what that loop is to look at, or _EndsOpenAILoop."""
        attempt = Attempt(None, http_client_of(self.client), request, 0, send_request, arguments, stream)
        if self.reply is not None:
            self.reply.end("failed")
        try:
            reply: Reply = yield from _send_attempt_of(self._state)(attempt)
        except Exception as error:  # noqa: BLE001 - raised again, or carried past openai's loop
            cause = error.__cause__
            if cause is None or error not in attempt.connection_errors:
                raise _EndsOpenAILoop(error) from None
            attempt.connection_errors.clear()
            raise cause from None
        self.reply = reply
        return reply.response


wrapped_request: ContextVar[WrappedRequest | None] = ContextVar("fastlane_wrapped_request", default=None)
"""The call whose attempts openai's own loop sends at the moment."""


def send_by_wrapped_request(state: CallState, options: Any) -> Flow:
    """Send a call by a `request()` that somebody has put in the place of openai's. openai's loop makes the retries."""
    client = state.client
    wrapped = WrappedRequest(state)
    token = wrapped_request.set(wrapped)
    try:
        with quietly(state.observation):
            result = client.stock_request(state.cast_to, options, stream=state.stream, stream_cls=state.stream_cls)
            if client._asynchronous:
                result = yield Await(result)
    except _EndsOpenAILoop as ended:
        raise ended.error from None
    except Exception:
        look_at_refused_answer(state, wrapped.reply)
        raise
    finally:
        restore(wrapped_request, token)
    if not state.stream:
        answered(state.observation, result)
    reply = wrapped.reply or Reply(None, None, state.observation)
    reply.result = result
    return reply
