"""What the synchronous and the asynchronous client do alike around one call: observe it, plan it, report it."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import openai
from openai._legacy_response import LegacyAPIResponse
from openai._models import FinalRequestOptions
from openai._response import BaseAPIResponse

from ._call import Call, CallRecord
from ._exceptions import ConfigurationError
from ._observation import EXTENSION, Observation
from ._pipeline import Hook, Pipeline
from .plays import Connection, Play
from .transport import PoolSettings, pool_settings, shared_transport

# Endpoints whose JSON bodies plays may rewrite. Embeddings and uploads carry mappings too, which are not prompts.
PLANNED_ENDPOINTS = frozenset({"/chat/completions", "/responses"})

# What `with_raw_response` and `with_streaming_response` give.
_UNDECODED = (LegacyAPIResponse, BaseAPIResponse)

# Whose calls these are is not for a play to say.
_CREDENTIAL_HEADERS = frozenset({"authorization", "api-key", "cookie", "openai-organization", "openai-project"})

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")

current_observation: ContextVar[Observation | None] = ContextVar("fastlane_observation", default=None)
"""The call that the running `request()` is about, for the attempts inside."""


def is_disabled() -> bool:
    """Whether FASTLANE_DISABLED asks for the stock client's behaviour."""
    return os.environ.get("FASTLANE_DISABLED", "").strip().lower() not in ("", "0", "false", "no")


def default_plays() -> tuple[Play, ...]:
    """The plays of a client that was made without saying which."""
    return (Connection(),)


def make_pipeline(plays: Iterable[Play] | None, hooks: Iterable[Hook] | None, strict: bool) -> Pipeline:
    """Validate what a client was made with."""
    if isinstance(plays, Play) or (plays is not None and not isinstance(plays, Iterable)):
        raise ConfigurationError(f"plays takes a list of plays such as [Connection()], got {plays!r:.80}")
    if hooks is not None and not isinstance(hooks, Iterable):
        raise ConfigurationError(f"hooks takes a list of callables, got {type(hooks).__name__}")
    if not isinstance(strict, bool):
        raise ConfigurationError(f"strict takes True or False, got {strict!r:.80}")
    return Pipeline(default_plays() if plays is None else plays, hooks or (), strict=strict)


def pooled_http_client(pipeline: Pipeline, options: Mapping[str, Any], *, asynchronous: bool) -> Any:
    """The HTTP client that the `Connection` play asks for, or None where the stock one is to be used."""
    connection = next((play for play in pipeline.plays if isinstance(play, Connection)), None)
    if connection is None or options.get("http_client") is not None:
        return None
    if options.get("workload_identity") is not None or options.get("provider") is not None:
        return None  # these bind credentials to the client they make themselves
    wrapper = stock_http_client_class(asynchronous=asynchronous)
    library = next(
        (base.__module__.partition(".")[0] for base in wrapper.__mro__ if base.__module__.startswith("httpx")), None
    )
    if library is None or _uses_proxies():
        return None
    settings = pool_settings(
        library,
        http2=connection.http2 == "prefer",
        idle_s=float(connection.idle_s),
        max_connections=connection.max_connections,
    )
    timeout = options.get("timeout", openai.NOT_GIVEN)
    if isinstance(timeout, openai.NotGiven):
        timeout = openai.DEFAULT_TIMEOUT
    return wrapper(timeout=timeout, transport=shared_transport(settings, asynchronous=asynchronous))


def stock_http_client_class(*, asynchronous: bool) -> Any:
    """The class of the stock client's own HTTP client, looked up when it is needed as the stock constructor does."""
    return getattr(openai._base_client, "AsyncHttpxClientWrapper" if asynchronous else "SyncHttpxClientWrapper")


def _uses_proxies() -> bool:
    """Whether the environment names proxies, which the library's own transports know how to use."""
    if sys.platform in ("darwin", "win32"):  # where the system's own settings name them too
        return any(scheme in ("http", "https", "all") for scheme in urllib.request.getproxies())
    # `getproxies()` looks through the whole environment, which is half of what another client costs.
    return any(os.environ.get(name) for name in _PROXY_VARIABLES)


def settings_of(http_client: Any) -> PoolSettings | None:
    """The settings of the shared pool that an HTTP client uses; None for any other client."""
    settings = getattr(getattr(http_client, "_transport", None), "settings", None)
    return settings if isinstance(settings, PoolSettings) else None


def carried_settings(
    shell: Shell | None, plays: Iterable[Play] | None, hooks: Iterable[Hook] | None, strict: bool | None
) -> dict[str, Any] | None:
    """What a copy is made with, where it is to differ from its original in fastlane's own settings; else None."""
    if plays is None and hooks is None and strict is None:
        return None
    pipeline = shell.pipeline if shell is not None else make_pipeline(None, None, False)
    return {
        "plays": pipeline.plays if plays is None else tuple(plays) if isinstance(plays, Iterable) else plays,
        "hooks": pipeline.hooks if hooks is None else hooks,
        "strict": pipeline.strict if strict is None else strict,
    }


def http_client_for_copy(client: Any, shell: Shell | None, carried: Mapping[str, Any], *, asynchronous: bool) -> Any:
    """The HTTP client of a copy with other plays: the original's, unless they ask for other connections."""
    if shell is None or shell.transport == "caller" or client._client.is_closed:
        return None
    pipeline = make_pipeline(carried["plays"], carried["hooks"], carried["strict"])
    options = {"workload_identity": client.workload_identity, "timeout": client.timeout}
    if getattr(client, "_provider", None) is not None:
        options["provider"] = client._provider
    wanted = pooled_http_client(pipeline, options, asynchronous=asynchronous)
    if wanted is None and shell.transport == "fastlane":
        return stock_http_client_class(asynchronous=asynchronous)(timeout=client.timeout)
    if wanted is not None and settings_of(wanted) == settings_of(client._client):
        return None  # the original's own: connections, cookies and all
    return wanted


class Shell:
    """The state that fastlane adds to one openai client."""

    __slots__ = ("_origin", "_origin_url", "pipeline", "transport")

    def __init__(self, pipeline: Pipeline, transport: str) -> None:
        self.pipeline = pipeline
        self.transport = transport
        self._origin_url: Any = None
        self._origin = ""

    @staticmethod
    def continued(client: Any, copied: Any, *, shared: bool) -> None:
        """A copy that shares its original's HTTP client says the same of it, and by default shares its call log."""
        original, shell = client._fastlane, copied._fastlane
        if original is not None and shell is not None:
            if shared:
                copied._fastlane = shell = Shell(original.pipeline, shell.transport)
            if copied._client is client._client:
                shell.transport = original.transport
            elif settings_of(copied._client) is not None:
                shell.transport = "fastlane"

    def origin(self, base_url: Any) -> str:
        """scheme://host:port of a base URL, remembered while it stays the same."""
        if base_url is not self._origin_url:
            port = base_url.port or {"http": 80, "https": 443}.get(base_url.scheme, 0)
            self._origin = f"{base_url.scheme}://{base_url.host}:{port}"
            self._origin_url = base_url
        return self._origin

    def begin(self, base_url: Any, options: FinalRequestOptions, *, stream: bool) -> Observation:
        """Start to observe a call."""
        self.pipeline.report_abandoned()
        return Observation(
            self.pipeline,
            method=options.method.upper(),
            endpoint=_endpoint(options.url),
            origin=self.origin(base_url),
            stream=stream,
            transport=self.transport,
        )

    def plan(
        self, observation: Observation, options: FinalRequestOptions, client_headers: Mapping[str, Any]
    ) -> FinalRequestOptions:
        """Let the plays rewrite the call; the options as they came if none of them did.

        `client_headers` are those that the client was made with: no play takes the place of one of them.
        """
        body = options.json_data
        if not isinstance(body, Mapping):
            return options
        model = body.get("model")
        observation.model = model if isinstance(model, str) else None
        if not self.pipeline.shapes_calls or observation.endpoint not in PLANNED_ENDPOINTS:
            return options
        if options.method.lower() != "post" or options.files is not None or options.content is not None:
            return options
        extra = options.extra_json or {}
        call = Call(
            call_id=observation.call_id,
            endpoint=observation.endpoint,
            origin=observation.origin,
            body={**body, **extra} if extra else body,
            stream=observation.stream,
        )
        planned = self.pipeline.plan(call)
        observation.watchers = self.pipeline.watchers(planned)
        observation.changes = planned.changes
        changed: dict[str, Any] = {}
        if planned.body is not call.body:
            changed["json_data"] = planned.body
            changed["extra_json"] = None  # merged into the body that the plays saw
            observation.model = planned.model
        if planned.headers:
            given = options.headers if isinstance(options.headers, Mapping) else {}
            taken = {name.lower() for name in (*given, *client_headers)} | _CREDENTIAL_HEADERS
            added = {name: value for name, value in planned.headers.items() if name.lower() not in taken}
            changed["headers"] = {**added, **given}
        # Never the caller's own options: a retry, a test or the caller may look at them again.
        return options.model_copy(update=changed) if changed else options

    @staticmethod
    def attach(observation: Observation, request: Any, trace: str) -> None:
        """Tie an attempt's request to its call, and have the HTTP client stamp it."""
        length: int | None
        try:
            length = len(request.content)
        except Exception:  # noqa: BLE001 - a body that is streamed out, of a length that the headers may say
            given = request.headers.get("content-length", "")
            length = int(given) if given.isdecimal() else None
        attempt = observation.begin_attempt(length)
        extensions = request.extensions
        extensions[EXTENSION] = observation
        if "trace" not in extensions:  # the caller's own tracing goes first
            extensions["trace"] = getattr(attempt, trace)

    @staticmethod
    def returned(observation: Observation, result: Any) -> None:
        """`request()` returned: the call is over, unless its body is still to be read by the application."""
        if observation.streaming:
            return
        if isinstance(result, _UNDECODED):
            if result.http_response.is_closed:
                observation.raw_answer(result.http_response.content)
        else:
            observation.answer.answer(result)
        observation.finish()


def calls_of(shell: Shell | None) -> tuple[CallRecord, ...]:
    """The records of a client's last calls, the oldest first; none where fastlane is disabled."""
    return shell.pipeline.calls if shell is not None else ()


@lru_cache(maxsize=256)
def _endpoint(url: str) -> str:
    """The path of a request without its query, as openai's resources give it."""
    path = url.partition("?")[0]
    if "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return path if path.startswith("/") else "/" + path
