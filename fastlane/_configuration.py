"""What a client of ours is made of: its plays, its hooks and its HTTP client."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterable
from typing import Any

import openai

from ._exceptions import ConfigurationError
from ._pipeline import Hook, Pipeline
from .plays import Connection, Play, PromptCache
from .transport import PoolSettings, certificates_now

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def is_disabled() -> bool:
    """Whether FASTLANE_DISABLED asks for the stock client's behaviour."""
    return os.environ.get("FASTLANE_DISABLED", "").strip().lower() not in ("", "0", "false", "no")


def default_plays() -> tuple[Play, ...]:
    """Return the plays that every client has unless `only_plays` is given."""
    return (Connection(), PromptCache())


def make_pipeline(
    plays: Iterable[Play] | None,
    only_plays: Iterable[Play] | None,
    hooks: Iterable[Hook] | None,
    strict: bool,
    *,
    original: tuple[Play, ...] | None = None,
) -> Pipeline:
    """Make a pipeline of exactly `only_plays`, or of `original` (None: the default plays) and `plays`.

    Raises ConfigurationError for arguments that cannot work.
    """
    if hooks is not None and not isinstance(hooks, Iterable):
        raise ConfigurationError(f"hooks takes a list of callables, got {type(hooks).__name__}")
    if not isinstance(strict, bool):
        raise ConfigurationError(f"strict takes True or False, got {strict!r:.80}")
    return Pipeline(_chosen_plays(plays, only_plays, original), hooks or (), strict=strict)


def _chosen_plays(
    plays: Iterable[Play] | None, only_plays: Iterable[Play] | None, original: tuple[Play, ...] | None
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
    for play in default_plays() if original is None else original:
        # A subclass of Connection replaces Connection as well: both would act otherwise.
        chosen += [other for other in added if isinstance(other, type(play))] or [play]
    return (*chosen, *(play for play in added if not any(play is other for other in chosen)))


def checked_experiment(experiment: Any) -> Any:
    """An experiment of ours, or None. Raises ConfigurationError."""
    if experiment is not None:
        from .experiments import Experiment

        if not isinstance(experiment, Experiment):
            raise ConfigurationError(f"experiment takes a fastlane.Experiment, got a {type(experiment).__name__}")
    return experiment


def arms_of_client(experiment: Any, pipeline: Pipeline, shared: Any = None) -> Any:
    """The arms of a client with this pipeline; with those of one that has the same pipeline, they share theirs."""
    from .experiments._client_arms import ClientArms, Pipelines

    same = shared is not None and shared.experiment is experiment
    return ClientArms(experiment, shared.pipelines if same else Pipelines(pipeline))


def others_of(client: Any) -> tuple[Any, ...]:
    """The clients for the arms of an experiment that were made beside this one."""
    shell = client._fastlane
    return () if shell is None or shell.arms is None else tuple(shell.arms.others(client))


def pipeline_for_copy(
    original: Pipeline | None,
    plays: Iterable[Play] | None,
    only_plays: Iterable[Play] | None,
    hooks: Iterable[Hook] | None,
    strict: bool | None,
) -> Pipeline | None:
    """Make the pipeline of a copy with settings of its own; None if the copy shares the original's pipeline."""
    if plays is None and only_plays is None and hooks is None and strict is None:
        return None
    original = original or make_pipeline(None, None, None, False)
    return make_pipeline(
        plays,
        only_plays,
        original.hooks if hooks is None else hooks,
        original.strict if strict is None else strict,
        original=original.plays,
    )


def wanted_settings(
    pipeline: Pipeline, *, workload_identity: Any, provider: Any, asynchronous: bool
) -> PoolSettings | None:
    """The shared pool that the `Connection` play asks for; None where the stock HTTP client is to be used."""
    connection = next((play for play in pipeline.plays if isinstance(play, Connection)), None)
    if connection is None or _uses_proxies():
        return None
    if workload_identity is not None or provider is not None:
        return None  # these bind credentials to the client they make themselves
    bases = stock_http_client_class(asynchronous=asynchronous).__mro__
    base = next((base for base in bases if base.__module__.startswith("httpx")), None)
    if base is None:
        return None
    library = base.__module__.partition(".")[0]
    if _is_adapted(base, sys.modules[library], asynchronous=asynchronous):
        return None
    return PoolSettings(
        library=library,
        http2=connection.http2,
        idle_s=float(connection.idle_s),
        max_connections=connection.max_connections,
        ping_s=None if connection.ping_s is None else float(connection.ping_s),
        certificates=certificates_now(),
    )


def pooled_http_client(settings: PoolSettings, timeout: Any, *, asynchronous: bool) -> Any:
    """An HTTP client on the pool with these settings; `timeout` as openai's constructor takes it."""
    # The protocols' libraries are loaded with the first client, not by `import fastlane`.
    from .transport._shared import shared_transport

    if isinstance(timeout, openai.NotGiven):
        timeout = openai.DEFAULT_TIMEOUT
    transport = shared_transport(settings, asynchronous=asynchronous)
    return stock_http_client_class(asynchronous=asynchronous)(timeout=timeout, transport=transport)


def http_client_for_copy(client: Any, pipeline: Pipeline, *, asynchronous: bool) -> Any:
    """The HTTP client of a copy with other plays; None where it can go on with its original's."""
    shell = client._fastlane
    if shell is None or shell.transport == "caller" or client._client.is_closed:
        return None
    wanted = wanted_settings(
        pipeline,
        workload_identity=client.workload_identity,
        provider=getattr(client, "_provider", None),
        asynchronous=asynchronous,
    )
    if wanted == settings_of(client._client):
        return None  # connections, cookies and all
    if wanted is None:
        return stock_http_client_class(asynchronous=asynchronous)(timeout=client.timeout)
    return pooled_http_client(wanted, client.timeout, asynchronous=asynchronous)


def stock_http_client_class(*, asynchronous: bool) -> Any:
    """The class of the stock client's own HTTP client, looked up when it is needed as the stock constructor does."""
    return getattr(openai._base_client, "AsyncHttpxClientWrapper" if asynchronous else "SyncHttpxClientWrapper")


def settings_of(http_client: Any) -> PoolSettings | None:
    """The settings of the shared pool that an HTTP client uses; None for any other client."""
    settings = getattr(getattr(http_client, "_transport", None), "settings", None)
    return settings if isinstance(settings, PoolSettings) else None


def _uses_proxies() -> bool:
    """Whether proxies are configured, which the library's own transports know how to use."""
    if sys.platform in ("darwin", "win32"):  # where the system's own settings name them too
        return any(scheme in ("http", "https", "all") for scheme in urllib.request.getproxies())
    # `getproxies()` looks through the whole environment, which is half of what another client costs.
    return any(os.environ.get(name) for name in _PROXY_VARIABLES)


def _is_adapted(client: type[Any], library: Any, *, asynchronous: bool) -> bool:
    """Whether somebody has put a constructor of theirs into the library, such as one with certificates of their own."""
    from .transport._fallback import is_own  # with the first client, as the transport itself

    transport = library.AsyncHTTPTransport if asynchronous else library.HTTPTransport
    return not (is_own(client, "__init__") and is_own(transport, "__init__"))
