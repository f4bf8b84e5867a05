"""One call, from its options to its result. Written once, for sync and async clients.

run_call                        begin and report
  send_across_upstreams         `around_call` of the sessions that last for the whole call: other upstreams, races
    send_to_upstream            `around_call` of the sessions of this upstream, outermost first
      send_planned              `plan` of each session; again without what the provider refuses
        attempt_with_retries    openai's rules (`compat.responses`)
          send_attempt          `around_attempt` and `on_request` of each session; one HTTP request
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import openai
from openai import NotGiven

from ..compat.bodies import OBSERVER, watch_body
from ..compat.clients import RAW_RESPONSE_HEADER, FinalRequestOptions, given_headers, http_client_of
from ..compat.context import restore
from ..compat.requests import changed_options, longer_bytes
from ..compat.responses import (
    UNDECODED,
    Reply,
    RequestAttempt,
    attempt_with_retries,
    decode,
    is_request_wrapped,
    open_stream,
    openai_error_class,
    process_with_openai,
)
from ..compat.send import layers_to_bypass
from ..compat.streams import observing
from ..protocol.endpoints import GENERATING
from ..records import listeners
from ..records.section import RecordSection
from ..transport.protocols.exchange import FALLBACK_TRACE, PATIENCE, PHASES
from .call import Call, attached
from .call_state import CallState
from .client_state import Caller, endpoint_of, origin_of
from .effects import Await, Cancelled, Compute, Flow, Send
from .pipeline import Pipeline
from .refused_fields import RefusingUpstream, refusals, without_refused
from .upstream_failures import UpstreamFailed, as_openai_error

if TYPE_CHECKING:
    from .session import SendAttempt
    from .upstream_attempt import UpstreamAttempt

# Statuses by which a provider refuses a request for what it contains.
_REFUSALS = frozenset({400, 402, 403, 413, 415, 422})
_MOST_REFUSALS = 5

# Rewriting a body of this size would hold an event loop up for more than a millisecond.
_LARGE_BYTES = 262_144

# Plays must not change whose credentials a call uses, where it goes, or how long its body is.
_RESERVED_HEADERS = frozenset(
    ("authorization", "api-key", "cookie", "openai-organization", "openai-project", "host", "content-length",
     "transfer-encoding")
)  # fmt: skip

_NOTHING: AbstractContextManager[None] = nullcontext()
_NO_HEADERS: Mapping[str, Any] = {}

# Model names with this prefix are fastlane's own, and are never sent to a provider.
_RESERVED = "fastlane/"

model_checks: list[Callable[[str, str, Pipeline], None]] = []
"""Functions that check a model name with the prefix "fastlane/": `check(model, endpoint, pipeline)`.

A check raises ConfigurationError if no play of the client handles such calls. The client registers the checks."""


# The call


def begin_call(client: Any, cast_to: Any, options: Any, *, stream: bool, stream_cls: Any) -> CallState:
    """Make the state of a new call, and start its trace if telemetry is active."""
    client_state, assigned = client._fastlane, None
    if client_state.arms is not None:
        # An arm of the experiment has a client of its own, with the plays of that arm.
        client, assigned = client_state.arms.choose(client, options)
        client_state = client._fastlane
    pipeline, url = client_state.pipeline, options.url
    if pipeline.unreported:
        pipeline.report_abandoned()
    state = CallState(
        pipeline,
        method=options.method.upper(),
        endpoint=endpoint_of(url),
        origin=origin_of(url) if "://" in url else client_state.origin(client.base_url),
        stream=stream,
        transport=client_state.transport,
    )
    state.client, state.cast_to, state.experiment = client, cast_to, assigned
    if stream and stream_cls is not None:
        stream_cls = observing(stream_cls)
    state.stream_cls = stream_cls
    data = attached.get()
    if data:
        state.data = data
        pipeline.warn_of_unread(data.values())
    if "opentelemetry" in sys.modules:  # asked here, because a call costs a frame
        begin_trace(state)
    return state


def begin_trace(state: CallState) -> None:
    """Start the trace of a call that has begun, if telemetry is active."""
    if "opentelemetry" in sys.modules and listeners.listener.is_active():
        try:
            state.trace = listeners.listener.trace_call(state)
        except Exception as error:  # noqa: BLE001 - telemetry must not break a call
            state.pipeline.report_error("telemetry", "begin", error)


def run_call(state: CallState, options: Any) -> Flow:
    """Send a call, and report it when it has ended. Returns the result for the caller; raises openai's errors."""
    reply: Reply | None = None
    try:
        call = call_of(state, options, state.data)
        if call is None:
            reply = yield from send_planned(state, options)
        elif state.pipeline.spans_upstreams:
            reply = yield from send_across_upstreams(state, options, call)
        else:
            reply = yield from send_to_upstream(state, options, call)
        reply.state.returned(reply.result)
    except BaseException as error:
        (state if reply is None else reply.state).end_with_error(error)
        raise
    return reply.result


def call_of(state: CallState, options: FinalRequestOptions, data: Mapping[type, Any]) -> Call | None:
    """Return the `Call` that the plays see, with `data` attached; None for calls that no play takes part in.

    Raises ConfigurationError for a model that begins with "fastlane/" and that no play handles.
    """
    body, pipeline, upstream = options.json_data, state.pipeline, state.upstream
    if type(body) is not dict and not isinstance(body, Mapping):
        return None
    extra, issued = options.extra_json, state.issued
    model = extra["model"] if extra and "model" in extra else body.get("model")
    if isinstance(model, str):
        state.model = model
        if _RESERVED in model.lower():
            for check in model_checks:
                check(model, state.endpoint, pipeline)
    if not pipeline.shapes_calls or state.endpoint not in GENERATING or options.method.lower() != "post":
        return None
    if options.files is not None or options.content is not None:
        return None
    written = issued.written if issued is not None and issued.body is body else None
    if extra:
        count = len(body) + len(extra)
        body = {name: value for name, value in {**body, **extra}.items() if not isinstance(value, openai.Omit)}
        written = longer_bytes(written, extra) if written is not None and len(body) == count else None
    facts = None
    if pipeline.needs_facts:
        facts = None if upstream is None else upstream.facts
        if facts is None:
            facts = pipeline.providers.facts_of(state.origin)
    given = options.headers if options.headers and isinstance(options.headers, Mapping) else _NO_HEADERS
    body = MappingProxyType(body if extra else dict(body))
    return Call.of(
        call_id=state.call_id,
        endpoint=state.endpoint,
        origin=state.origin,
        body=body,
        stream=state.stream,
        facts=facts,
        issued_ns=state.started_ns,
        placements=None if issued is None else issued.placements,
        encoded=None if written is None else (body, written),
        unread=given.get(RAW_RESPONSE_HEADER) == "stream",
        data=data,
        parser=None if isinstance(options.post_parser, NotGiven) else options.post_parser,
        is_helped="X-Stainless-Helper-Method" in given,
        caller=Caller(state.client, options),
        upstream=upstream,
        changes=() if upstream is None else upstream.changes,
        optional=() if upstream is None else upstream.optional,
    )


# The upstreams of a call


def send_across_upstreams(state: CallState, options: Any, call: Call) -> Flow:
    """Send a call through the sessions that span all upstreams, to the upstreams that they choose. Returns a Reply."""
    sessions = state.sessions = state.pipeline.open_call(call)
    if not sessions:
        return (yield from send_to_upstream(state, options, call))
    from .upstream_attempt import UpstreamAttempt

    upstream = UpstreamAttempt(state, options, call.body)
    try:
        reply: Reply = yield from sessions.wrap_call(send_to_named_upstream)(call.replaced(upstream=upstream))
    except BaseException as error:
        upstream.attempts.end(None).end_with_error(error)
        raise
    upstream.attempts.end(reply.state)
    return reply


def send_to_named_upstream(call: Call) -> Flow:
    """Send a call to the upstream that it names. Returns a Reply; raises openai's errors."""
    upstream: UpstreamAttempt = call.upstream
    options = upstream.options
    if call.body is not upstream.body:
        options = changed_options(options, {"json_data": dict(call.body), "extra_json": None})
    try:
        there = call_of(upstream.state, options, call.data)
        assert there is not None
        return (yield from send_to_upstream(upstream.state, options, there))
    except UpstreamFailed as failed:
        upstream.attempts.failed, upstream.why = upstream, failed.why
        error, cause = as_openai_error(failed), failed.error
    except Exception:
        upstream.attempts.failed = upstream
        raise
    finally:
        if upstream.state.is_over:
            upstream.state.end_part()
    try:
        if cause is None or cause is error:
            raise error
        raise error from cause
    finally:
        del error, cause  # their tracebacks refer to this frame


def send_to_upstream(state: CallState, options: Any, call: Call) -> Flow:
    """Send a call to one upstream, through the sessions opened for it. The flow returns a Reply."""
    if call.facts is not None:
        state.apply_facts(call.facts)
    sessions = state.sessions = state.pipeline.open_upstream(call, state.sessions)
    if "around_call" not in sessions.by_hook:
        return send_planned(state, options, call, call)
    flow: Flow = sessions.wrap_upstream(partial(send_planned, state, options, call))(call)
    return flow


# The plan of a call


def send_planned(state: CallState, options: Any, given: Call | None = None, call: Call | None = None) -> Flow:
    """Plan a call and send it. After a refusal, send it again without the refused fields, or as sessions plan it then.

    `options` belong to the call as it was `given`, which is None if no play takes part in it. Returns a Reply.
    """
    client = state.client
    refused_upstreams: list[tuple[RefusingUpstream, tuple[str, ...]]] = []
    is_fetch = call is not None and call.fetch is not None
    planned: Any = _fetch_options(options, call) if call is not None and is_fetch else None
    refused_plans = 0
    if state.attempts and call is not None:
        state.begin_again(call.attempt_kind)
    while True:
        if planned is None:
            planned = options if call is None or given is None else _planned_options(state, options, given, call)
            if state.trace is not None:
                state.trace.planned(state, planned.json_data)
        try:
            is_stock = client._fastlane.requests.are_stock(client)
            if not is_stock and is_request_wrapped(client):
                reply: Reply = yield from send_by_wrapped_request(state, planned)
            else:
                # Plays limit and encode the requests of the call, not one that only fetches its answer.
                send = partial(send_attempt, state) if is_fetch else _send_attempt_of(state)
                reply = yield from attempt_with_retries(state, planned, send, is_stock=is_stock)
                if state.stream:
                    reply.result = open_stream(client, reply, state.stream_cls)
                else:
                    reply.result = decode(client, reply)
                if reply.result is UNDECODED:
                    reply.result = yield from _process(state, reply)
                if not state.stream:
                    state.unreturned = reply.result
        except openai.APIStatusError as error:
            if is_fetch or error.status_code not in _REFUSALS:
                raise
            planned = without_refused(state, planned, error, refused_upstreams)
            if planned is None:
                if refused_plans == _MOST_REFUSALS or not state.sessions.on_refused(error):
                    raise
                refused_plans += 1
            state.next_kind = "plain"
        else:
            for upstream, fields in refused_upstreams:
                refusals.add(upstream, fields)
                state.refused += fields
            return reply


def _planned_options(state: CallState, options: FinalRequestOptions, given: Call, call: Call) -> FinalRequestOptions:
    """Let the plays rewrite a call. Returns the options of the planned call; `options` are not changed."""
    if refusals.has_any:
        call = call.replaced(refused=refusals.at(state.origin, call.model, call.caller))
    planned = state.pipeline.plan(call, state.sessions)
    if state.upstream is not None:
        planned = state.upstream.planned(planned)
    state.collector = planned.collector
    state.collects = not state.stream and planned.body.get("stream") is True and not call.body.get("stream")
    watching = state.sessions.by_hook.get("on_event")
    state.watchers = tuple([(play, session.on_event) for play, session in watching]) if watching else ()
    if planned.data:
        state.sections = tuple([item for item in planned.data.values() if isinstance(item, RecordSection)])
    state.changes, state.optional = planned.changes, planned.optional
    changed: dict[str, Any] = {}
    if planned.body is not given.body:
        state.model = planned.model
        body = changed["json_data"] = planned.body if type(planned.body) is dict else dict(planned.body)
        changed["extra_json"] = None  # merged into the body that the plays saw
        if state.pipeline.keeps_bodies and planned.written is not None:
            state.encoded = body, None, planned.written
    if planned.headers:
        own = options.headers if isinstance(options.headers, Mapping) else {}
        # A play does not replace headers that the client was made with.
        taken = {name.lower() for name in (*own, *given_headers(state.client))} | _RESERVED_HEADERS
        added = {name: value for name, value in planned.headers.items() if name.lower() not in taken}
        changed["headers"] = {**added, **own}
    if planned.max_retries is not None:
        changed["max_retries"] = planned.max_retries
    usual = openai.DEFAULT_TIMEOUT
    if planned.timeout_s is not None and isinstance(options.timeout, NotGiven) and state.client.timeout == usual:
        changed["timeout"] = openai.Timeout(max(planned.timeout_s, usual.read or 0.0), connect=usual.connect)
    if changed:
        options = changed_options(options, changed)
    return options


def _fetch_options(options: FinalRequestOptions, call: Call) -> FinalRequestOptions:
    """Return the options of the GET that continues an answer."""
    assert call.fetch is not None
    path, query = call.fetch
    changed: dict[str, Any] = {
        "method": "get",
        "url": f"{options.url}/{path}",
        "params": {**options.params, **query},
        "json_data": None,
        "extra_json": None,
    }
    if call.max_retries is not None:
        changed["max_retries"] = call.max_retries
    return changed_options(options, changed)


def _process(state: CallState, reply: Reply) -> Flow:
    """Have openai's code make the result of a successful response."""
    try:
        result = yield from process_with_openai(state.client, reply, state.stream, state.stream_cls)
    except Exception:
        _note_unusable_answer(state, reply)
        raise
    _note_answer_early(state, result)
    return result


def _note_unusable_answer(state: CallState, reply: Reply | None) -> None:
    """Record the usage of an answer that openai's code rejects: it is billed all the same."""
    if reply is not None and not state.stream and reply.response.is_closed and reply.response.is_success:
        state.note_raw_answer(reply.response.content)


def _note_answer_early(state: CallState, result: Any) -> None:
    """Record a whole answer now if the span belongs to another tool, which may end it before the call ends."""
    if state.trace is not None and state.trace.is_deferred and not state.stream:
        state.note_answer(result)


# The attempts of a call


def _send_attempt_of(state: CallState) -> SendAttempt:
    send: SendAttempt = partial(send_attempt, state)
    return state.sessions.wrap_attempt(send) if "around_attempt" in state.sessions.by_hook else send


def send_attempt(state: CallState, attempt: RequestAttempt) -> Flow:
    """Send one attempt. Returns a Reply of any status.

    Raises openai's connection errors, and Cancelled if another attempt has ended the call.
    """
    if state.is_over:
        raise Cancelled
    client, upstream, request = state.client, state.upstream, attempt.request
    collector = None if attempt.stream else state.collector
    is_unread = attempt.stream or (collector is not None and state.collects)
    try:
        for play, session in state.sessions.by_hook.get("on_request", ()):
            rewrite = partial(state.sessions.on_request, play, session, request)
            request = (yield Compute(rewrite)) if (_content_length(request) or 0) >= _LARGE_BYTES else rewrite()
        if upstream is not None:
            upstream.begin()
        _attach(state, attempt, request)
        try:
            layers = layers_to_bypass(client, attempt.http, request, attempt.arguments) if attempt.is_stock else None
            until_ns = None if upstream is None else upstream.until_ns
            around = _NOTHING if state.trace is None else state.trace.around_attempt(state, attempt.http, request)
            with around:
                response = yield Send(
                    attempt.http, request, is_unread, attempt.send_request, attempt.arguments, layers, until_ns
                )
        except BaseException as error:
            state.attempt_failed(error)
            if upstream is not None and isinstance(error, Exception):
                upstream.raise_failure(error)
            raise
        state.attempt_answered(response)
        if upstream is not None:
            from .first_content import wait_for_content

            yield from wait_for_content(upstream, response, is_unread=is_unread)
        if collector is not None:
            from .collector import collect

            response = yield from collect(collector, state, response, asynchronous=client._asynchronous)
        elif attempt.stream and not response.is_closed and response.status_code < 400:
            watch_body(response, state, asynchronous=client._asynchronous)
    except Exception as error:
        wrapper = openai_error_class(error)
        if wrapper is None:
            raise
        attempt.connection_errors.append(wrapper(request=attempt.request))
        raise attempt.connection_errors[-1] from error
    return Reply(attempt, response, state)


def _content_length(request: Any) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def _attach(state: CallState, attempt: RequestAttempt, request: Any) -> None:
    """Link the request of an attempt to its call, and have the transport record the times of the attempt."""
    try:
        length: int | None = len(request.content)
    except Exception:  # noqa: BLE001 - a streamed body: only the headers may give its length
        length = _content_length(request)
    if state.trace is not None:
        state.trace.attempting(state, request)
    stamps = state.begin_attempt(length, form=attempt.form, plain=attempt.kind == "plain")
    stamps.url = request.url
    extensions = request.extensions
    extensions[OBSERVER] = state
    extensions[PHASES] = stamps.phases
    if state.upstream is not None:
        extensions[PATIENCE] = state.upstream.patience
        state.upstream.request = request
    asynchronous, given = state.client._asynchronous, extensions.get("trace")
    # Our transport fills in the phases, and needs no trace function: calling one costs more than all of its stamps. It
    # installs this one only when it passes the request to the library's transport.
    wanted = FALLBACK_TRACE if state.transport == "fastlane" else "trace"
    if given is not None:
        extensions[wanted] = stamps.trace_beside(given, asynchronous=asynchronous)
    else:
        extensions[wanted] = stamps.atrace if asynchronous else stamps.trace


# Calls whose `request()` another tool has wrapped


class _EndsOpenAILoop(BaseException):
    """Carries an error past openai's retry loop, which would retry the call otherwise."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class WrappedRequest:
    """A call that goes through another tool's `request()`, and from there through openai's own retry loop."""

    def __init__(self, state: CallState) -> None:
        self._state = state
        self.client = state.client
        self.reply: Reply | None = None
        """The reply to the last attempt."""

    def send(self, request: Any, *, stream: bool, send_request: Callable[..., Any], arguments: dict[str, Any]) -> Flow:
        """Send one attempt of openai's loop. Raises an error for the loop to handle, or _EndsOpenAILoop to end it."""
        attempt = RequestAttempt(None, http_client_of(self.client), request, 0, send_request, arguments, stream)
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
"""The call whose attempts openai's own loop is sending in this context."""


def send_by_wrapped_request(state: CallState, options: Any) -> Flow:
    """Send a call through the `request()` that replaced openai's. openai's own loop makes the retries."""
    client = state.client
    wrapped = WrappedRequest(state)
    token = wrapped_request.set(wrapped)
    try:
        result = client.stock_request(state.cast_to, options, stream=state.stream, stream_cls=state.stream_cls)
        if client._asynchronous:
            result = yield Await(result)
    except _EndsOpenAILoop as ended:
        raise ended.error from None
    except Exception:
        _note_unusable_answer(state, wrapped.reply)
        raise
    finally:
        restore(wrapped_request, token)
    _note_answer_early(state, result)
    reply = wrapped.reply or Reply(None, None, state)
    reply.result = result
    return reply
