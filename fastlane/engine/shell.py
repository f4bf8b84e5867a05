"""What the synchronous and the asynchronous client do alike around one call: observe it, plan it, report it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import openai
from openai import NotGiven

from ..compat.bodies import OBSERVER, watch_body
from ..compat.clients import RAW_RESPONSE_HEADER, FinalRequestOptions, given_headers
from ..compat.requests import Requests, changed_options
from ..protocol.endpoints import GENERATING
from ..records import listeners
from ..records.attempts import Form
from ..records.section import RecordSection
from ..records.urgency import Level
from ..transport.protocols.exchange import FALLBACK_TRACE, PATIENCE, PHASES
from .call import Call
from .caller import Caller
from .observation import Observation, remember_answer
from .pipeline import Pipeline, log
from .refused_fields import refusals
from .route_requests import asked_model, asks_for_a_route, not_routed
from .urgency import current_urgency

if TYPE_CHECKING:
    from ..providers import ProviderFacts
    from .accounts import Accounts

_STREAMS = (openai.Stream, openai.AsyncStream)

# Whose calls these are is not for a play to say.
_CREDENTIAL_HEADERS = frozenset({"authorization", "api-key", "cookie", "openai-organization", "openai-project"})

_PORTS = {"http": 80, "https": 443}


class Shell:
    """The state that fastlane adds to one openai client."""

    __slots__ = (
        "_accounts",
        "_origin",
        "arms",
        "pipeline",
        "requests",
        "transport",
        "urgency",
    )

    def __init__(self, pipeline: Pipeline, transport: str, requests: Requests) -> None:
        self.pipeline = pipeline
        self.transport = transport
        self.requests = requests
        self.arms: Any = None  # those of the client's experiment, where it takes part in one
        self.urgency: Level | None = None  # that of the client's calls, where it was made for one
        self._accounts: Any = None
        self._origin: tuple[Any, str] = (None, "")
        if pipeline.needs_facts:
            # With the client and not with its first call, which may be made on an event loop: 30 ms of CPU.
            from .. import providers  # noqa: F401
        listeners.listener.prepare()

    def origin(self, base_url: Any) -> str:
        """scheme://host:port of a base URL, remembered while it stays the same."""
        known = self._origin  # replaced as a whole: threads share it
        if known[0] is not base_url:
            port = base_url.port or _PORTS.get(base_url.scheme, 0)
            known = self._origin = (base_url, f"{base_url.scheme}://{_bracketed(base_url.host)}:{port}")
        return known[1]

    def begin(self, base_url: Any, options: Any, *, stream: bool, experiment: Any = None) -> Observation:
        """Start to observe a call."""
        self.pipeline.report_abandoned()
        url = options.url
        observation = Observation(
            self.pipeline,
            method=options.method.upper(),
            endpoint=_endpoint(url),
            origin=_origin(url) if "://" in url else self.origin(base_url),
            stream=stream,
            transport=self.transport,
            experiment=experiment,
        )
        level = observation.urgency = self.urgency or current_urgency()
        if level is not None and level != "interactive" and not self.pipeline.uses_urgency:
            _warn_without_urgency(level)
        if listeners.listener.is_active():
            try:
                observation.trace = listeners.listener.trace_call(observation)
            except Exception as error:  # noqa: BLE001 - telemetry must not break a call
                self.pipeline.went_wrong("telemetry", "begin", error)
        return observation

    def plan(self, observation: Observation, call: Call) -> Call:
        """Let the plays rewrite a call."""
        if refusals:
            call = call.replaced(refused=refusals.at(observation.origin, call.model, call.caller))
        planned = self.pipeline.plan(call, observation.sessions)
        if observation.upstream is not None:
            observation.upstream.is_unread = planned.unread
            if planned.streams_for is not None:
                from .streaming_underneath import streamed

                planned = streamed(planned)
        observation.collector = planned.collector
        asks_for_stream = planned.body.get("stream") is True and not call.body.get("stream")
        observation.collects = asks_for_stream and not observation.stream
        observation.watchers = self.pipeline.watchers(observation.sessions)
        observation.sections = tuple([item for item in planned.data.values() if isinstance(item, RecordSection)])
        observation.changes = planned.changes
        observation.optional = planned.optional
        observation.model = planned.model
        return planned

    def options_of(self, client: Any, options: FinalRequestOptions, call: Call, planned: Call) -> FinalRequestOptions:
        """Return the options of a planned call; `options` are those of the call before. They are left as they are."""
        changed: dict[str, Any] = {}
        if planned.body is not call.body:
            changed["json_data"] = dict(planned.body)
            changed["extra_json"] = None  # merged into the body that the plays saw
        if planned.headers:
            given = options.headers if isinstance(options.headers, Mapping) else {}
            # No play takes the place of a header that the client was made with.
            taken = {name.lower() for name in (*given, *given_headers(client))} | _CREDENTIAL_HEADERS
            added = {name: value for name, value in planned.headers.items() if name.lower() not in taken}
            changed["headers"] = {**added, **given}
        if planned.max_retries is not None:
            changed["max_retries"] = planned.max_retries
        usual = openai.DEFAULT_TIMEOUT
        if planned.timeout_s is not None and isinstance(options.timeout, NotGiven) and client.timeout == usual:
            changed["timeout"] = openai.Timeout(max(planned.timeout_s, usual.read or 0.0), connect=usual.connect)
        return changed_options(options, changed) if changed else options

    @property
    def accounts(self) -> Accounts:
        """Who calls with this client, without its key."""
        accounts: Accounts | None = self._accounts
        if accounts is None:
            from .accounts import Accounts

            accounts = self._accounts = Accounts()
        return accounts

    def ask_urgency(self, observation: Observation, level: Level, message: str) -> None:
        """Let a call be of an urgency; `message` is logged once when this client has no play for that."""
        observation.urgency = level
        if level != "interactive" and not self.pipeline.uses_urgency:
            self.pipeline.warn_once(message)

    @staticmethod
    def facts_of(origin: str) -> ProviderFacts:
        """What is known of the provider at an origin."""
        return _facts_of(origin)  # type: ignore[no-any-return]

    @staticmethod
    def _facts(observation: Observation) -> Any:
        upstream = observation.upstream
        known = None if upstream is None else upstream.facts
        return _facts_of(observation.origin) if known is None else known

    def call_of(self, client: Any, observation: Observation, options: FinalRequestOptions) -> Call | None:
        """What the plays are shown of a call; None where it is none for them."""
        body = options.json_data
        if not isinstance(body, Mapping):
            return None
        extra = options.extra_json or {}
        model = observation.model = asked_model(options)
        is_planned = observation.endpoint in GENERATING
        if model is not None and asks_for_a_route(model) and not (is_planned and self.pipeline.routes_calls):
            raise not_routed(model, observation.endpoint, routes=self.pipeline.routes_calls)
        if not is_planned or not self.pipeline.shapes_calls:
            return None
        if options.method.lower() != "post" or options.files is not None or options.content is not None:
            return None
        if extra:
            body = {name: value for name, value in {**body, **extra}.items() if not isinstance(value, openai.Omit)}
        issued, upstream = observation.issued, observation.upstream
        given = options.headers if isinstance(options.headers, Mapping) else {}
        return Call(
            call_id=observation.call_id,
            endpoint=observation.endpoint,
            origin=observation.origin,
            body=MappingProxyType(body if extra else dict(body)),
            stream=observation.stream,
            facts=self._facts(observation) if self.pipeline.needs_facts else None,
            issued_ns=observation.started_ns,
            placements=observation.placements,
            written=issued.written if issued is not None and issued.body is options.json_data else None,
            unread=given.get(RAW_RESPONSE_HEADER) == "stream",
            urgency=observation.urgency,
            parser=None if isinstance(options.post_parser, NotGiven) else options.post_parser,
            is_helped="X-Stainless-Helper-Method" in given,
            caller=Caller(client, options),
            upstream=upstream,
            changes=() if upstream is None else upstream.changes,
            optional=() if upstream is None else upstream.optional,
        )

    @staticmethod
    def attach(
        observation: Observation, request: Any, *, asynchronous: bool, form: Form = "json", plain: bool = False
    ) -> None:
        """Tie an attempt's request to its call, and have whatever transport carries it stamp it.

        `form`: in which the body is written; `plain`: the attempt takes the place of one that was refused for its form.
        """
        length: int | None
        try:
            length = len(request.content)
        except Exception:  # noqa: BLE001 - a body that is streamed out, of a length that the headers may say
            given = request.headers.get("content-length", "")
            length = int(given) if given.isdecimal() else None
        if observation.trace is not None:
            observation.trace.attempting(observation, request)
        attempt = observation.begin_attempt(length, form=form, plain=plain)
        attempt.url = request.url
        extensions = request.extensions
        extensions[OBSERVER] = observation
        extensions[PHASES] = attempt.phases
        upstream = observation.upstream
        if upstream is not None:
            extensions[PATIENCE] = upstream.patience
            upstream.request = request
        # Our own transport fills in the phases, and calls a trace only for whoever wants one: that costs it more than
        # all of its stamps. If it hands the request on to the library's, it puts this trace into its place.
        wanted = FALLBACK_TRACE if observation.transport == "fastlane" else "trace"
        extensions[wanted] = attempt.tracing(extensions.get("trace"), asynchronous=asynchronous)

    @staticmethod
    def returned(observation: Observation, result: Any) -> None:
        """`request()` returned: the call is over, unless its body is still to be read by the application."""
        remember_answer(result, observation)
        if observation.stream and not observation.streaming and isinstance(result, _STREAMS):
            # The application's own subclass sent the request past us.
            response = result.response
            if not response.is_closed:
                response.request.extensions[OBSERVER] = observation
                watch_body(response, observation, asynchronous=isinstance(result, openai.AsyncStream))
        if observation.streaming:
            return
        observation.look_at(result)
        observation.finish()


@cache
def _warn_without_urgency(level: Level) -> None:
    """Warn that an `urgency()` block has no effect, once in a process for each level."""
    log.warning(
        'urgency("%s") has no effect, because this client has no Urgency play: make it with OpenAI(plays=[Urgency()]), '
        'or call client.with_urgency("%s") (logged once)',
        level,
        level,
    )


def _facts_of(origin: str) -> Any:
    from ..providers import facts_of

    return facts_of(origin)


@lru_cache(maxsize=256)
def _endpoint(url: str) -> str:
    """The path of a request without its query, as openai's resources give it."""
    path = url.partition("?")[0]
    if "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return path if path.startswith("/") else "/" + path


@lru_cache(maxsize=256)
def _origin(url: str) -> str:
    """scheme://host:port of an absolute URL."""
    parsed = urlsplit(url)
    return f"{parsed.scheme}://{_bracketed(parsed.hostname or '')}:{parsed.port or _PORTS.get(parsed.scheme, 0)}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
