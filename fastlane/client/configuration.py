"""Choose and check the plays, callbacks and HTTP client of a client."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

import openai

from ..compat.clients import http_client_of, pool_settings_of, provider_of, stock_http_client_class
from ..compat.proxies import ProxySetting, environment_proxies, proxy_setting, stock_http_client
from ..engine.pipeline import OnCallEnd, Pipeline
from ..errors import ConfigurationError
from ..plays import Connection, Play, PromptCache
from ..transport import PoolSettings, ProxyRule, certificates_now

log = logging.getLogger("fastlane")

_warned: set[str] = set()


class Obstacle(NamedTuple):
    """Why fastlane's transport does not carry the calls of a client."""

    why: str
    remedy: str
    is_chosen: bool = True
    """Whether an argument of the application is the cause. Then the warning names only plays that it passed."""


OWN_HTTP_CLIENT = Obstacle(
    "the client was made with http_client=",
    "make the client without it to use fastlane's transport",
)
_NO_CONNECTION = Obstacle(
    "the client has no Connection play",
    "add Connection() to only_plays, or use plays=, which keeps the default plays",
)


def default_plays() -> tuple[Play, ...]:
    """Return the plays of a client that is made without `only_plays`."""
    return (Connection(), PromptCache())


def make_pipeline(
    plays: Iterable[Play] | None,
    only_plays: Iterable[Play] | None,
    on_call_end: OnCallEnd | Iterable[OnCallEnd] | None,
    raise_play_errors: bool,
    *,
    asynchronous: bool,
    original: Pipeline | None = None,
) -> Pipeline:
    """Make a pipeline of exactly `only_plays`, or of the plays of `original` (None: the default plays) and `plays`.

    Raises ConfigurationError for invalid arguments.
    """
    functions = _functions(on_call_end, asynchronous=asynchronous)
    if not isinstance(raise_play_errors, bool):
        raise ConfigurationError(f"raise_play_errors takes True or False, got {raise_play_errors!r:.80}")
    before = default_plays() if original is None else original.plays
    pipeline = Pipeline(_chosen_plays(plays, only_plays, before), functions, raise_play_errors=raise_play_errors)
    if only_plays is None:
        implicit = before if original is None else original.implicit
        pipeline.implicit = tuple(play for play in pipeline.plays if any(play is default for default in implicit))
    return pipeline


def _functions(given: Any, *, asynchronous: bool) -> tuple[OnCallEnd, ...]:
    functions = (given,) if callable(given) else () if given is None else given
    if not isinstance(functions, Iterable):
        raise ConfigurationError(f"on_call_end takes a function or a list of functions, got {type(given).__name__}")
    functions = tuple(functions)
    for function in functions:
        if not callable(function):
            raise ConfigurationError(f"on_call_end takes functions of one CallRecord, got {function!r:.80}")
        called = getattr(function, "__call__", None)  # noqa: B004 - it may be a coroutine function
        if not asynchronous and (iscoroutinefunction(function) or iscoroutinefunction(called)):
            raise ConfigurationError(
                f"on_call_end of a sync client takes plain functions, got a coroutine function ({function!r:.80}): "
                "use an async client, or a plain function that passes the record on"
            )
    return functions


def _chosen_plays(
    plays: Iterable[Play] | None, only_plays: Iterable[Play] | None, before: tuple[Play, ...]
) -> tuple[Play, ...]:
    if plays is not None and only_plays is not None:
        raise ConfigurationError(
            "give either plays=[...], which adds to the plays that are already on, or only_plays=[...], which "
            "replaces them; got both"
        )
    for name, given in (("plays", plays), ("only_plays", only_plays)):
        if isinstance(given, Play | str) or (given is not None and not isinstance(given, Iterable)):
            raise ConfigurationError(f"{name} takes a list of plays such as [Connection()], got {given!r:.80}")
    if only_plays is not None:
        return tuple(only_plays)
    added = tuple(plays or ())
    chosen: list[Play] = []
    for play in before:
        # A play and its subclass replace each other: otherwise both would act.
        alike = [other for other in added if isinstance(other, type(play)) or isinstance(play, type(other))]
        chosen += [one for one in alike or [play] if not any(one is other for other in chosen)]
    return (*chosen, *(play for play in added if not any(play is other for other in chosen)))


def checked_experiment(experiment: Any) -> Any:
    """Return the given experiment, or None. Raises ConfigurationError for any other object."""
    if experiment is not None:
        from ..experiments import Experiment

        if not isinstance(experiment, Experiment):
            raise ConfigurationError(f"experiment takes an Experiment, got {type(experiment).__name__}")
    return experiment


def arms_of_client(experiment: Any, pipeline: Pipeline, copy: Callable[..., Any], shared: Any = None) -> Any:
    """Make the experiment arms of a client. `shared`: arms of another client with the same pipeline, to share."""
    from ..experiments.experiment import ClientArms

    return ClientArms(experiment, pipeline, copy, shared)


def arm_clients_of(client: Any) -> tuple[Any, ...]:
    """Return the clients that were made for the other arms of the client's experiment."""
    client_state = client._fastlane
    return () if client_state is None or client_state.arms is None else tuple(client_state.arms.others(client))


def pipeline_for_copy(
    original: Pipeline | None,
    plays: Iterable[Play] | None,
    only_plays: Iterable[Play] | None,
    on_call_end: OnCallEnd | Iterable[OnCallEnd] | None,
    raise_play_errors: bool | None,
    *,
    asynchronous: bool,
) -> Pipeline | None:
    """Make the pipeline of a copy with changed settings; None if the copy shares the original's pipeline."""
    if plays is None and only_plays is None and on_call_end is None and raise_play_errors is None:
        return None
    original = original or make_pipeline(None, None, None, False, asynchronous=asynchronous)
    return make_pipeline(
        plays,
        only_plays,
        original.on_call_end if on_call_end is None else on_call_end,
        original.raise_play_errors if raise_play_errors is None else raise_play_errors,
        asynchronous=asynchronous,
        original=original,
    )


def proxy_of(pipeline: Pipeline, given: ProxySetting) -> ProxySetting:
    """Return the proxy of a client: the given one, or that of its `Connection` play."""
    if given is not None:
        return given
    return next((proxy_setting(play.proxy) for play in pipeline.plays if isinstance(play, Connection)), None)


def refuse_proxy(pipeline: Pipeline, proxy: ProxySetting, obstacle: Obstacle) -> None:
    """Raise ConfigurationError if the client has a proxy that the HTTP client which carries its calls would not use."""
    if proxy_of(pipeline, proxy) is not None:
        raise ConfigurationError(
            f"proxy= cannot be used: {obstacle.why}. Give that HTTP client its proxy, or {obstacle.remedy}"
        )


def wanted_settings(
    pipeline: Pipeline, *, workload_identity: Any, provider: Any, asynchronous: bool, proxy: ProxySetting = None
) -> PoolSettings | Obstacle:
    """Return the pool settings of the `Connection` play, or why fastlane's transport cannot be used.

    Raises ConfigurationError for a proxy that cannot be used.
    """
    for name, given in (("workload_identity", workload_identity), ("provider", provider)):
        if given is not None:
            obstacle = Obstacle(
                f"the client was made with {name}=, which binds its credentials to the HTTP client that openai makes",
                "make the client with api_key= to use fastlane's transport",
            )
            refuse_proxy(pipeline, proxy, obstacle)
            return obstacle
    connection = next((play for play in pipeline.plays if isinstance(play, Connection)), None)
    if connection is None:
        return _NO_CONNECTION
    bases = stock_http_client_class(asynchronous=asynchronous).__mro__
    base = next((base for base in bases if base.__module__.startswith("httpx")), None)
    if base is None:
        return Obstacle(
            f"the HTTP client of openai {openai.__version__} is not one of httpx or httpx2",
            "install a version of openai that fastlane was tested with",
            is_chosen=False,
        )
    library = base.__module__.partition(".")[0]
    if _is_adapted(base, sys.modules[library], asynchronous=asynchronous):
        return Obstacle(
            f"a constructor of {library} has been patched by the application or an instrumentation",
            "remove the patch to use fastlane's transport; set SSL_CERT_FILE to trust other certificates",
            is_chosen=False,
        )
    chosen = proxy_of(pipeline, proxy)
    return PoolSettings(
        library=library,
        http2=connection.http2,
        idle_s=float(connection.idle_s),
        max_connections=connection.max_connections,
        ping_s=None if connection.ping_s is None else float(connection.ping_s),
        certificates=certificates_now(),
        proxies=environment_proxies(library) if chosen is None else (ProxyRule(None, chosen),) if chosen else (),
    )


def pooled_http_client(settings: PoolSettings, timeout: Any, *, asynchronous: bool) -> Any:
    """Make an HTTP client on the shared pool with these settings."""
    # Imported with the first client, not with `import fastlane`.
    from ..transport.drivers.transports import shared_transport

    transport = shared_transport(settings, asynchronous=asynchronous)
    return stock_http_client_class(asynchronous=asynchronous)(timeout=timeout, transport=transport)


def warn_of_plays_without_transport(pipeline: Pipeline, obstacle: Obstacle | None) -> None:
    """Log a warning, once per process and reason, that names plays which need fastlane's transport."""
    if obstacle is None:
        return
    unable = [
        type(play).__name__
        for play in pipeline.plays
        if play.needs_transport and not (obstacle.is_chosen and any(play is default for default in pipeline.implicit))
    ]
    message = (
        f"{' and '.join(unable)} {'needs' if len(unable) == 1 else 'need'} fastlane's transport, which does not carry "
        f"the calls of this client: {obstacle.why}. Calls work as with openai's client. "
        f"To change that, {obstacle.remedy}. client.explain() says what is on (logged once)."
    )
    if unable and message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def http_client_for_copy(
    client: Any, pipeline: Pipeline, proxy: ProxySetting, *, asynchronous: bool
) -> tuple[Any, Obstacle | None]:
    """Return the HTTP client of a copy with other plays, and why fastlane's transport does not carry its calls.

    The HTTP client is None if the copy can share the original's. Raises ConfigurationError for a proxy that cannot be
    used.
    """
    client_state = client._fastlane
    if client_state is None or client_state.transport == "caller" or http_client_of(client).is_closed:
        return None, client._obstacle
    wanted = wanted_settings(
        pipeline,
        workload_identity=client.workload_identity,
        provider=provider_of(client),
        asynchronous=asynchronous,
        proxy=proxy,
    )
    settings, obstacle = (None, wanted) if isinstance(wanted, Obstacle) else (wanted, None)
    chosen = proxy_of(pipeline, proxy)
    if settings == pool_settings_of(http_client_of(client)) and (settings is not None or chosen is None):
        return None, obstacle  # share the connections and cookies
    if settings is None:
        return stock_http_client(chosen, client.timeout, asynchronous=asynchronous), obstacle
    return pooled_http_client(settings, client.timeout, asynchronous=asynchronous), None


def _is_adapted(client: type[Any], library: Any, *, asynchronous: bool) -> bool:
    """Return whether a constructor of the library is patched, for example to add certificates."""
    from ..transport.drivers.requests import is_library_method

    transport = library.AsyncHTTPTransport if asynchronous else library.HTTPTransport
    return not (is_library_method(client, "__init__") and is_library_method(transport, "__init__"))
