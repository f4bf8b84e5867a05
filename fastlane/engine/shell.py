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
from ..compat.call_options import changed_options
from ..compat.clients import given_headers
from ..compat.requests import Requests
from ..compat.types import RAW_RESPONSE_HEADER, RAW_RESPONSES, FinalRequestOptions
from ..plays import Urgency
from ..plays.routing.route_requests import asked_model, asks_for_a_route, not_routed
from ..plays.urgency.levels import current_urgency
from ..protocol.endpoints import GENERATING
from ..records import listeners
from ..records.attempts import Form
from ..records.section import RecordSection
from ..records.urgency import Level
from ..transport.protocols.exchange import FALLBACK_TRACE, PATIENCE, PHASES
from .call import Call
from .observation import Observation, remember_answer
from .pipeline import Pipeline, log
from .refused_fields import refusals

if TYPE_CHECKING:
    from ..plays.urgency.tiers._account import Accounts
    from ..providers import ProviderFacts
    from .upstreams._siblings import Siblings

_STREAMS = (openai.Stream, openai.AsyncStream)

# Whose calls these are is not for a play to say.
_CREDENTIAL_HEADERS = frozenset({"authorization", "api-key", "cookie", "openai-organization", "openai-project"})

_USUAL_CACHED_PATHS = ("usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens")

_PORTS = {"http": 80, "https": 443}


class Shell:
    """The state that fastlane adds to one openai client."""

    __slots__ = (
        "_accounts",
        "_has_urgency",
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
        if pipeline.compresses_bodies:
            from ..plays.request_encoding import sending_flow  # noqa: F401
        self._has_urgency = any(isinstance(play, Urgency) for play in pipeline.plays)
        if self._has_urgency:
            from ..plays.urgency import session  # noqa: F401
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
        if level is not None and level != "interactive" and not self._has_urgency:
            _warn_without_urgency(level)
        if listeners.listener.is_active():
            try:
                observation.trace = listeners.listener.trace_call(observation)
            except Exception as error:  # noqa: BLE001 - telemetry must not break a call
                self.pipeline.went_wrong("telemetry", "begin", error)
        return observation

    def plan(self, client: Any, observation: Observation, options: FinalRequestOptions) -> FinalRequestOptions:
        """Let the plays rewrite a client's call; the options as they came if none of them did."""
        planned = self._planned(client, observation, options)
        if observation.trace is not None:
            observation.trace.asked(observation, planned.json_data)
        return planned

    def _planned(self, client: Any, observation: Observation, options: FinalRequestOptions) -> FinalRequestOptions:
        call = self.call_of(client, observation, options)
        if call is None:
            return options
        if call.facts is not None and call.facts.timing.phases is not None:
            observation.has_times(call.facts.timing)
        planned = self.pipeline.plan(call, observation.sessions)
        if observation.upstream is not None:
            planned = _streamed_underneath(observation, planned)
        observation.watchers = self.pipeline.watchers(planned, observation.sessions)
        for kind, item in planned.data.items():
            if (begin := _BEGINNINGS.get(kind.__name__)) is not None:
                begin(observation, planned, item, options)
        observation.sections = tuple([item for item in planned.data.values() if isinstance(item, RecordSection)])
        observation.changes = planned.changes
        observation.optional = planned.optional
        changed: dict[str, Any] = {}
        if planned.body is not call.body:
            changed["json_data"] = dict(planned.body)
            changed["extra_json"] = None  # merged into the body that the plays saw
            observation.model = planned.model
        if planned.headers:
            given = options.headers if isinstance(options.headers, Mapping) else {}
            # No play takes the place of a header that the client was made with.
            taken = {name.lower() for name in (*given, *given_headers(client))} | _CREDENTIAL_HEADERS
            added = {name: value for name, value in planned.headers.items() if name.lower() not in taken}
            changed["headers"] = {**added, **given}
        # Never the caller's own options: a retry, a test or the caller may look at them again.
        return changed_options(options, changed) if changed else options

    @property
    def siblings(self) -> Siblings:
        """The clients for other upstreams, shared by all clients with these plays."""
        siblings: Siblings | None = self.pipeline.siblings
        if siblings is None:
            from .upstreams._siblings import siblings_of

            siblings = siblings_of(self.pipeline)
        return siblings

    @property
    def accounts(self) -> Accounts:
        """Who calls with this client, without its key."""
        accounts: Accounts | None = self._accounts
        if accounts is None:
            from ..plays.urgency.tiers._account import Accounts

            accounts = self._accounts = Accounts()
        return accounts

    def ask_urgency(self, observation: Observation, level: Level, message: str) -> None:
        """Let a call be of an urgency; `message` is logged once when this client has no play for that."""
        observation.urgency = level
        if level != "interactive" and not self._has_urgency:
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
            unread=isinstance(options.headers, Mapping) and options.headers.get(RAW_RESPONSE_HEADER) == "stream",
            urgency=observation.urgency,
            refused=refusals.at(client, options, observation.origin, observation.model),
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
    def looked_at(observation: Observation, result: Any) -> None:
        """Look at a whole answer."""
        if isinstance(result, RAW_RESPONSES):
            if result.http_response.is_closed:
                observation.raw_answer(result.http_response.content)
        else:
            observation.whole_answer(result)

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
        Shell.looked_at(observation, result)
        observation.finish()


def _streamed_underneath(observation: Observation, call: Call) -> Call:
    """Have a whole answer streamed to us, if a play wants to see its first token."""
    from .streaming_underneath import collector_of, streamed

    upstream = observation.upstream
    assert upstream is not None
    upstream.is_unread = call.unread
    underneath = None if call.streams_for is None else streamed(call, play=call.streams_for)
    if underneath is None:
        return call
    observation.collector = collector_of(underneath)
    return underneath


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


@lru_cache(maxsize=64)
def _cached_path_in(path: str) -> tuple[str, ...]:
    """The names below `usage`; () for OpenAI's own place, which is known without facts."""
    first, *names = path.split(".")
    return tuple(names) if first == "usage" and path not in _USUAL_CACHED_PATHS else ()


def _cached_path(facts: Any, endpoint: str) -> tuple[str, ...]:
    fact = None if facts is None else facts.usage.get(endpoint)
    path = None if fact is None or fact.value is None else fact.value.get("cached")
    return () if path is None else _cached_path_in(path)


def _begin_output(observation: Observation, _planned: Call, plan: Any, options: FinalRequestOptions) -> None:
    from ..plays.bounded_output.outputs._guard import Guard
    from ..plays.bounded_output.outputs._reader import BY_SCHEMA, PERHAPS_A_CLASS, UNKNOWN, reader_in
    from ..plays.bounded_output.outputs._stream_watch import StreamWatch

    parses, reader = not isinstance(options.post_parser, NotGiven), BY_SCHEMA
    if parses:
        reader = reader_in(options.post_parser)
    elif observation.stream:
        # Helpers read what they stream by classes that the call knows nothing of. One of them says that it does.
        helped = isinstance(options.headers, Mapping) and options.headers.get("X-Stainless-Helper-Method")
        reader = UNKNOWN if helped else PERHAPS_A_CLASS if observation.endpoint == "/responses" else BY_SCHEMA
    observation.guard = Guard(plan, observation.pipeline.went_wrong, parses=parses, reader=reader)
    if observation.stream:
        observation.watchers = (*observation.watchers, StreamWatch(observation.guard))


def _begin_prompt(observation: Observation, planned: Call, account: Any, _options: FinalRequestOptions) -> None:
    observation.prompt = account
    observation.cached_path = _cached_path(planned.facts, planned.endpoint)
    observation.answer.reason_of = account.reason_of


def _begin_encoding(observation: Observation, planned: Call, encode: Any, _options: FinalRequestOptions) -> None:
    from ..plays.request_encoding._sending import Sending

    origin, endpoint, went_wrong = observation.origin, observation.endpoint, observation.pipeline.went_wrong
    observation.sending = Sending(encode, origin=origin, endpoint=endpoint, model=planned.model, went_wrong=went_wrong)


def _begin_urgency(observation: Observation, planned: Call, plan: Any, _options: FinalRequestOptions) -> None:
    from ..plays.urgency.session import UrgencySession

    rate_limits = None if planned.facts is None else planned.facts.rate_limits
    urgent = observation.urgent = UrgencySession(plan, rate_limits, observation)
    if urgent.tier is not None and urgent.tier.is_elsewhere:
        observation.answer.tier_in = urgent.tier.in_answer


# What a play's plan of a call needs while the call lasts, by the name of its class: the modules that have it are loaded
# with the plays that plan so.
_BEGINNINGS = {
    "OutputPlan": _begin_output,
    "PromptAccount": _begin_prompt,
    "Encode": _begin_encoding,
    "UrgencyPlan": _begin_urgency,
}


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
