"""The clients: subclasses of openai's clients whose `request()` runs the flow of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

import openai

from .._environment import is_disabled
from ..compat import resources as _resources
from ..compat.clients import http_client_of, pool_settings_of
from ..compat.proxies import ProxySetting, proxy_setting, stock_http_client
from ..compat.requests import Requests, share_requests
from ..engine.client_state import ClientState
from ..engine.drivers import call_off_waits
from ..engine.flow_log import configure, log
from ..engine.pipeline import OnCallEnd, Pipeline
from ..errors import ConfigurationError
from ..plays import Play
from ..records.record import CallRecord
from . import connections as _connections
from .calls import AsyncCalls, Calls
from .configuration import (
    OWN_HTTP_CLIENT,
    Obstacle,
    arm_clients_of,
    arms_of_client,
    checked_experiment,
    http_client_for_copy,
    make_pipeline,
    pipeline_for_copy,
    pooled_http_client,
    proxy_of,
    refuse_proxy,
    wanted_settings,
    warn_of_plays_without_transport,
)
from .preparation import register
from .signatures import adopt_signature

if TYPE_CHECKING:
    from openai.resources.chat import AsyncChat, Chat
    from openai.resources.responses import AsyncResponses, Responses

    from ..experiments import Experiment
    from ..plays.prompt_cache.view import AsyncPromptCacheView, PromptCacheView
    from ..reports import Report
    from .explanation import Explanation
    from .options import AsyncAzureOpenAIOptions, AsyncOpenAIOptions, AzureOpenAIOptions, CopyOptions, OpenAIOptions


# Passes the pipeline to the constructor that openai's `copy()` calls: a subclass may take other arguments.
_pipeline_of_copy: ContextVar[tuple[type[_Client], Pipeline] | None] = ContextVar("pipeline of a copy", default=None)


class _NoExperimentError(ConfigurationError, AttributeError):
    """An AttributeError too, for `mock` and `inspect.getmembers()`, which read every attribute of a client."""


class _Client:
    """The code shared by the sync and async clients."""

    _asynchronous: ClassVar[bool]
    _fastlane: ClientState | None = None
    _experiment: Experiment | None = None
    _obstacle: Obstacle | None = None
    _proxy: ProxySetting = None

    def __init__(
        self,
        *,
        plays: Iterable[Play] | None = None,
        only_plays: Iterable[Play] | None = None,
        on_call_end: OnCallEnd | Iterable[OnCallEnd] | None = None,
        raise_play_errors: bool = False,
        experiment: Experiment | None = None,
        proxy: Any = None,
        **options: Any,
    ) -> None:
        self._proxy = proxy_setting(proxy)
        self._experiment = checked_experiment(experiment)
        kind, pipeline = _pipeline_of_copy.get() or (None, None)
        is_copy = kind is type(self)
        if pipeline is None or not is_copy:
            if experiment is not None and plays is None and only_plays is None:
                only_plays = experiment.arms[experiment.reference]
            pipeline = make_pipeline(plays, only_plays, on_call_end, raise_play_errors, asynchronous=self._asynchronous)
        else:
            _pipeline_of_copy.set(None)  # a constructor may make further clients
        timeout = options.get("timeout", openai.NOT_GIVEN)
        if isinstance(timeout, openai.NotGiven):
            timeout = openai.DEFAULT_TIMEOUT
        has_http_client = options.get("http_client") is not None
        if has_http_client and not is_copy:
            refuse_proxy(pipeline, self._proxy, OWN_HTTP_CLIENT)
        chosen = proxy_of(pipeline, self._proxy)
        if is_disabled():
            if chosen is not None and not has_http_client:
                options["http_client"] = stock_http_client(chosen, timeout, asynchronous=self._asynchronous)
            super().__init__(**options)
            return
        transport = "caller"
        if has_http_client:
            self._obstacle = OWN_HTTP_CLIENT
        else:
            wanted = wanted_settings(
                pipeline,
                workload_identity=options.get("workload_identity"),
                provider=options.get("provider"),
                asynchronous=self._asynchronous,
                proxy=self._proxy,
            )
            if isinstance(wanted, Obstacle):
                transport, self._obstacle = "stock", wanted
                if chosen is not None:
                    options["http_client"] = stock_http_client(chosen, timeout, asynchronous=self._asynchronous)
            else:
                transport = "fastlane"
                options["http_client"] = pooled_http_client(wanted, timeout, asynchronous=self._asynchronous)
        super().__init__(**options)
        self._fastlane = ClientState(pipeline, transport, Requests(type(self)))
        if experiment is not None:
            self._fastlane.arms = arms_of_client(experiment, pipeline, _Client.copy)
        if not is_copy:
            register(self)
            warn_of_plays_without_transport(pipeline, self._obstacle)
        if configure():
            log.info("%s", self.explain())

    def __repr__(self) -> str:
        client: Any = self
        transport = "openai's" if self._fastlane is None else self._fastlane.transport
        return f"<{type(self).__name__} {client.base_url.host}, transport: {transport}, plays: {list(self.plays)}>"

    @property
    def plays(self) -> tuple[Play, ...]:
        """The plays that are on, in order; empty if fastlane is disabled."""
        return self._fastlane.pipeline.plays if self._fastlane is not None else ()

    def explain(self) -> Explanation:
        """Return which plays are on, which transport carries the calls, and why anything is off; `print()` shows it."""
        from .explanation import explain

        return explain(self)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the last 1,000 calls that have ended, oldest first; empty if fastlane is disabled."""
        return self._fastlane.pipeline.calls if self._fastlane is not None else ()

    @property
    def last_call(self) -> CallRecord | None:
        """The record of the last call that has ended; None before the first, and if fastlane is disabled."""
        return self._fastlane.pipeline.last_call if self._fastlane is not None else None

    @property
    def experiment(self) -> Experiment:
        """The experiment that this client takes part in: `client.experiment.report()`.

        Raises ConfigurationError if the client has no experiment.
        """
        if self._experiment is None:
            raise _NoExperimentError("this client has no experiment: make it with OpenAI(experiment=...)")
        return self._experiment

    def report(
        self, *, model: str | None = None, user_action: str | None = None, since_s: float | None = None
    ) -> Report:
        """Report how the time of the calls in `calls` was spent and what was saved; `print()` shows tables.

        Filter the calls by model, by user action, or by issue within the last `since_s` seconds. Raises
        ConfigurationError for an invalid filter.
        """
        from .._clock import now_ns
        from ..reports.report import report_of

        return report_of(self.calls, now_ns=now_ns(), model=model, user_action=user_action, since_s=since_s)

    def with_plays(self, *plays: Play) -> Self:
        """Return a copy of this client with these plays added: `copy(plays=plays)`."""
        return self.copy(plays=plays)

    def copy(
        self,
        *,
        plays: Iterable[Play] | None = None,
        only_plays: Iterable[Play] | None = None,
        on_call_end: OnCallEnd | Iterable[OnCallEnd] | None = None,
        raise_play_errors: bool | None = None,
        experiment: Experiment | None = None,
        proxy: Any = None,
        _extra_kwargs: Mapping[str, Any] = {},
        **options: Unpack[CopyOptions],
    ) -> Self:
        """Return a copy of this client with other options.

        `plays` adds to the plays of this client, and a play replaces the one of its type; `only_plays` gives exactly
        these. A copy with other plays or callbacks has its own log of calls. A copy takes part in the same experiment,
        unless plays or another `experiment` are given. It keeps the proxy unless `proxy` is given (False: none).
        Raises ConfigurationError for invalid arguments.
        """
        original = self._fastlane
        checked_experiment(experiment)
        if plays is None and only_plays is None:
            if experiment is None:
                experiment = self._experiment
            else:
                only_plays = experiment.arms[experiment.reference]
        before = original.pipeline if original is not None else None
        changed = pipeline_for_copy(
            before, plays, only_plays, on_call_end, raise_play_errors, asynchronous=self._asynchronous
        )
        pipeline = changed or before
        obstacle, setting = self._obstacle, self._proxy if proxy is None else proxy_setting(proxy)
        given = options.get("http_client") is not None
        if proxy is not None and original is not None and (given or original.transport == "caller"):
            refuse_proxy(original.pipeline, setting, OWN_HTTP_CLIENT)
        if given:
            obstacle = OWN_HTTP_CLIENT
        elif pipeline is not None and (changed is not None or setting != self._proxy):
            options["http_client"], obstacle = http_client_for_copy(
                self, pipeline, setting, asynchronous=self._asynchronous
            )
        elif setting != self._proxy:
            timeout = cast("Any", self).timeout
            options["http_client"] = stock_http_client(setting, timeout, asynchronous=self._asynchronous)
        token = _pipeline_of_copy.set(None if pipeline is None else (type(self), pipeline))
        try:
            copied: Any = super().copy(**options, _extra_kwargs=_extra_kwargs)  # type: ignore[misc]
        finally:
            _pipeline_of_copy.reset(token)
        client_state: ClientState | None = copied._fastlane
        copied._experiment, copied._obstacle, copied._proxy = experiment, obstacle, setting
        if original is None or client_state is None:
            return copied  # type: ignore[no-any-return]
        if given:
            client_state.transport = "caller"
        elif http_client_of(copied) is http_client_of(self):
            client_state.transport = original.transport
        else:
            client_state.transport = "stock" if pool_settings_of(http_client_of(copied)) is None else "fastlane"
        client_state.pipeline = changed or original.pipeline
        if options.keys() <= {"max_retries", "timeout"}:
            share_requests(self, copied)
        if experiment is not None:
            shared = original.arms if changed is None else None
            client_state.arms = arms_of_client(experiment, client_state.pipeline, _Client.copy, shared)
        if given or changed is not None:
            warn_of_plays_without_transport(client_state.pipeline, obstacle)
        return copied  # type: ignore[no-any-return]

    # The stock class binds its own function under this name.
    with_options = copy

    def _watch_socket(self, socket: Any, events: Any) -> Any:
        """Return what makes the records of the responses that come over a WebSocket."""
        from .socket_calls import SocketCalls

        return SocketCalls(self, socket, events)

    def _upstream_client(self, base_url: str, key: str) -> Any:
        """Return a client for another upstream, of fastlane's own class: a subclass may be made for one provider."""
        from .derived_clients import upstream_client

        return upstream_client(self, AsyncOpenAI if self._asynchronous else OpenAI, base_url, key)


class OpenAI(_Client, Calls, openai.OpenAI):
    """`openai.OpenAI` with plays and records of calls: same methods, arguments, results and errors.

    `plays` adds optimisations to the default ones, `Connection()` and `PromptCache()`, which change neither what the
    model sees nor what it returns; a play replaces the default of its type. `only_plays` sets exactly the plays that
    are on. `on_call_end` is a function or a list of functions, called with the `CallRecord` of every call that has
    ended; an async client also takes coroutine functions, and waits for them in `close()`. `raise_play_errors=True`
    raises the errors of plays and callbacks instead of logging them. An `experiment` sends a share of the calls through
    other plays. `proxy` is the URL of a proxy, or an `httpx2.Proxy`; False is for none, and without it the environment
    says which. The environment variable FASTLANE_DISABLED=1 gives the stock behaviour. Threads may share a client.
    """

    _asynchronous = False

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[OpenAIOptions]) -> None: ...

    @_resources.made_once
    def chat(self) -> Chat:
        """Chat completions."""
        return super().chat if self._fastlane is None else _resources.chat_of(self, asynchronous=False)

    @_resources.made_once
    def responses(self) -> Responses:
        """The Responses API."""
        return super().responses if self._fastlane is None else _resources.responses_of(self, asynchronous=False)

    @property
    def prompt_cache(self) -> PromptCacheView:
        """What this client's calls found in the provider's prompt cache, and how to fill it beforehand."""
        from ..plays.prompt_cache.view import PromptCacheView

        return PromptCacheView(self)

    def close(self) -> None:
        """Close this client's HTTP client, and its pool's connections if no other client uses them."""
        # End waits last: a call that goes on to another upstream must find that client closed as well.
        try:
            super().close()
            if self._fastlane is not None and self._fastlane.pipeline.other_clients is not None:
                self._fastlane.pipeline.other_clients.close()
        finally:
            call_off_waits(http_client_of(self))
        if self._fastlane is not None:
            self._fastlane.pipeline.report_abandoned(wait=True)
        for other in arm_clients_of(self):
            other.close()
        _connections.close(http_client_of(self))

    def warm(self) -> bool:
        """Open a connection now, HTTP/2 SETTINGS included, and keep it open for the first call.

        Returns True when the connection is open, and False without fastlane's transport (an `http_client` of your own,
        FASTLANE_DISABLED). Raises openai.APIConnectionError, or APITimeoutError after the client's connect timeout.
        """
        return _connections.warm(self)


class AsyncOpenAI(_Client, AsyncCalls, openai.AsyncOpenAI):
    """`openai.AsyncOpenAI` with plays and records of calls: see `OpenAI`."""

    _asynchronous = True

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[AsyncOpenAIOptions]) -> None: ...

    @_resources.made_once
    def chat(self) -> AsyncChat:
        """Chat completions."""
        return super().chat if self._fastlane is None else _resources.chat_of(self, asynchronous=True)

    @_resources.made_once
    def responses(self) -> AsyncResponses:
        """The Responses API."""
        return super().responses if self._fastlane is None else _resources.responses_of(self, asynchronous=True)

    @property
    def prompt_cache(self) -> AsyncPromptCacheView:
        """What this client's calls found in the provider's prompt cache, and how to fill it beforehand."""
        from ..plays.prompt_cache.view import AsyncPromptCacheView

        return AsyncPromptCacheView(self)

    async def close(self) -> None:
        """Close this client's HTTP client, and its pool's connections if no other client uses them."""
        try:
            await super().close()
            if self._fastlane is not None and self._fastlane.pipeline.other_clients is not None:
                await self._fastlane.pipeline.other_clients.aclose()
        finally:
            call_off_waits(http_client_of(self))
        if self._fastlane is not None:
            self._fastlane.pipeline.report_abandoned(wait=True)
            await self._fastlane.pipeline.finish_tasks()
        for other in arm_clients_of(self):
            await other.close()
        await _connections.aclose(http_client_of(self))

    async def warm(self) -> bool:
        """Open a connection on this event loop, and keep it open for the first call; see `OpenAI.warm`."""
        return await _connections.awarm(self)


class AzureOpenAI(OpenAI, openai.AzureOpenAI):
    """`openai.AzureOpenAI` with plays and records of calls: see `OpenAI`."""

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[AzureOpenAIOptions]) -> None: ...


class AsyncAzureOpenAI(AsyncOpenAI, openai.AsyncAzureOpenAI):
    """`openai.AsyncAzureOpenAI` with plays and records of calls: see `OpenAI`."""

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[AsyncAzureOpenAIOptions]) -> None: ...


for _made in (OpenAI, AsyncOpenAI, AzureOpenAI, AsyncAzureOpenAI):
    adopt_signature(_made)
