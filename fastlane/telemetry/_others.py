"""Who else instruments openai and its HTTP client, found out without importing any of them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from operator import is_
from types import FunctionType, MethodType
from typing import Any, Final, Literal

import openai

from ..compat.clients import ASYNC_CLIENTS, SYNC_CLIENTS, transports_of
from ._settings import CAPTURE_VARIABLE, TelemetrySettings

OFFICIAL: Final = "genai-openai"
OPENLLMETRY: Final = "openllmetry"
OPENINFERENCE: Final = "openinference"
LOGFIRE: Final = "logfire"

# By the module that a wrapper was written in. (openai-v2 is what the official one was before: not every version of it
# can be silenced.)
_BY_MODULE = {
    "opentelemetry.instrumentation.genai.openai": OFFICIAL,
    "opentelemetry.instrumentation.openai_v2": "openai-v2",
    "opentelemetry.instrumentation.openai": OPENLLMETRY,
    "openinference.instrumentation.openai": OPENINFERENCE,
    "langfuse": "langfuse",
    "logfire": LOGFIRE,
    "openlit": "openlit",
    "ddtrace": "ddtrace",
    "mlflow": "mlflow",
}

# Whose spans record what ours would not: prompts by default, or in a format of their own that dashboards stand on.
_DEFERRED_TO = frozenset({OPENLLMETRY, OPENINFERENCE, LOGFIRE, "langfuse", "openlit", "ddtrace", "openai-v2"})

# Who records `gen_ai.*` metrics.
_MEASURING = frozenset({OFFICIAL, OPENLLMETRY, LOGFIRE, "openlit", "openai-v2"})

# Who makes its span current around the method that it has replaced.
_SHOWING = frozenset({OFFICIAL, OPENLLMETRY, "openai-v2"})

_UNHEARD = frozenset({"langfuse", "openlit", "ddtrace", "openai-v2"})
"""Those that keep writing whatever they are told in OpenTelemetry's context."""

_HTTP_MODULE = "opentelemetry.instrumentation.httpx"

_SCOPES = frozenset({
    "opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.openai.v1",
    "opentelemetry.instrumentation.openai.v0", "opentelemetry.instrumentation.openai_v2",
    "openinference.instrumentation.openai", "logfire.openai",
})  # fmt: skip

_HOOK_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK"
_METRICS_OF_OPENLLMETRY = "TRACELOOP_METRICS_ENABLED"
_MLFLOW_APART = "MLFLOW_USE_DEFAULT_TRACER_PROVIDER"

# The methods that tools put their own in the place of: module, class without its "Async", methods.
_WATCHED = (
    ("openai.resources.chat.completions.completions", "Completions", ("create", "parse")),
    ("openai.resources.responses.responses", "Responses", ("create", "parse")),
    ("openai.resources.embeddings", "Embeddings", ("create",)),
    ("openai.resources.completions", "Completions", ("create",)),
)
_LOGFIRE_MARK = "_is_instrumented_by_logfire"
_PLAIN = (FunctionType, type(None))
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Others:
    """The other instrumentations of openai that are active for a client."""

    names: frozenset[str] = frozenset()
    writes_prompts: bool = False
    """Whether the official one records prompts and answers, because the environment says so."""
    uploads: bool = False
    """Whether the official one hands prompts and answers to a hook of the application's."""
    writes_metrics: bool = False
    """Whether one of them records the metrics of the GenAI conventions."""


NOBODY: Final = Others()


class _Watch:
    """The methods that tools replace, looked at before every call: that takes about a microsecond."""

    def __init__(self) -> None:
        # The dictionaries of classes show what is in them now.
        self._always: tuple[tuple[Any, str], ...] = tuple(
            (vars(owner).get, "request") for owner in (*SYNC_CLIENTS, *ASYNC_CLIENTS)
        )
        self._places = self._always
        self._modules = 0
        self._last: tuple[list[Any], Others] = ([], NOBODY)
        """What was found the last time, and what it came to: one value, for threads that ask meanwhile."""

    def others(self) -> Others:
        # What has not been imported cannot have been replaced.
        modules = len(sys.modules)
        if modules != self._modules:
            self._places = (*self._always, *_watched())
            self._modules = modules
        found = [get(name) for get, name in self._places]
        seen, others = self._last
        # By identity: a wrapper may claim to equal what it wraps.
        if len(seen) != len(found) or not all(map(is_, seen, found)):
            others = _others_of(found)
            self._last = (found, others)
        return others


def _watched() -> Iterator[tuple[Any, str]]:
    for module, name, methods in _WATCHED:
        for prefix in ("", "Async"):
            owner = getattr(sys.modules.get(module), prefix + name, None)
            if owner is not None:
                yield from ((vars(owner).get, method) for method in methods)


_watch = _Watch()
_of_class, _of_module = vars(openai.OpenAI).get, vars(openai).get


def others(client: Any = None) -> Others:
    """Which other instrumentations of openai are active: now, and not when a client was made.

    `client`: some instrument one client, and not all of them.
    """
    found = _watch.others()
    if _of_class(_LOGFIRE_MARK) or (client is not None and getattr(client, _LOGFIRE_MARK, False)):
        found = _and(found, LOGFIRE)
    if _of_module("__datadog_patch"):
        found = _and(found, "ddtrace")
    if "mlflow.openai" in sys.modules:
        found = _and(found, "mlflow")
    return found


@functools.cache
def _and(found: Others, name: str) -> Others:
    return _made(found.names | {name}, uploads=found.uploads)


def mode(settings: TelemetrySettings, others: Others) -> Literal["own", "defer"]:
    """Who makes the span of a call: fastlane, or the others."""
    if settings.coexistence != "auto":
        return settings.coexistence
    if not others.names:
        return "own"
    if not others.names.isdisjoint(_DEFERRED_TO):
        return "defer"
    if OFFICIAL in others.names:
        # Its hook is nothing that we could call in its place, and what it would record of a call must not be lost.
        lost = others.uploads or (others.writes_prompts and settings.capture == "no_content")
        return "defer" if lost else "own"
    # MLflow keeps to a provider of its own, so that nothing is there twice, unless it is told not to.
    shares = "mlflow" in others.names and os.environ.get(_MLFLOW_APART, "true").strip().lower() == "false"
    return "defer" if shares else "own"


def shows_itself(others: Others) -> bool:
    """Whether the span of each is the current one at `request()` for a call that comes by none of our resources."""
    return bool(others.names) and others.names <= _SHOWING


def unheard(others: Others) -> frozenset[str]:
    """Those that cannot be told to be silent: where fastlane is to write beside them, both do."""
    return others.names & _UNHEARD


def known_scope(span: Any) -> str | None:
    """The scope of a span that an instrumentation of openai made for a call; None for any other span."""
    name = getattr(getattr(span, "instrumentation_scope", None), "name", None)
    return name if name in _SCOPES else None


def http_instrumented(http_client: Any) -> bool:
    """Whether requests of an HTTP client become spans of an HTTP instrumentation, as children of the current span."""
    return any(map(_is_instrumented, transports_of(http_client)))


def _is_instrumented(transport: Any) -> bool:
    if _is_in(type(transport).__module__, _HTTP_MODULE):
        return True
    name = "handle_async_request" if hasattr(transport, "handle_async_request") else "handle_request"
    for owner in (transport, *type(transport).__mro__):
        found = getattr(owner, "__dict__", {}).get(name)
        # (A wrapper of wrapt's is no function.)
        if type(found) not in _PLAIN and any(_is_in(module, _HTTP_MODULE) for module, _ in _layers(found)):
            return True
    return False


def _others_of(methods: list[Any]) -> Others:
    names: set[str] = set()
    uploads = False
    for method in methods:
        for module, wrapper in _layers(method):
            name = next((name for known, name in _BY_MODULE.items() if _is_in(module, known)), None)
            if name is not None:
                names.add(name)
            uploads = uploads or (name == OFFICIAL and _uploads(wrapper))
    return _made(frozenset(names), uploads=uploads) if names else NOBODY


def _made(names: frozenset[str], *, uploads: bool) -> Others:
    official = OFFICIAL in names
    capture = os.environ.get(CAPTURE_VARIABLE, "").strip().lower()
    measuring = names & _MEASURING
    if os.environ.get(_METRICS_OF_OPENLLMETRY, "true").strip().lower() not in ("", "true"):
        measuring -= {OPENLLMETRY}
    return Others(
        names=names,
        writes_prompts=official and capture not in ("", "no_content"),
        uploads=official and (uploads or bool(os.environ.get(_HOOK_VARIABLE, "").strip())),
        writes_metrics=bool(measuring),
    )


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _layers(method: Any) -> Iterator[tuple[str, Any]]:
    """Each wrapper around a method, the outermost first, with the name of the module that it was written in."""
    for _ in range(32):  # in case one wraps itself
        if method is None:
            return
        wrapper = getattr(method, "_self_wrapper", None)
        while isinstance(wrapper, functools.partial):
            wrapper = wrapper.func
        if wrapper is None:
            wrapper = method.__func__ if type(method) in (staticmethod, classmethod, MethodType) else method
        # A plain wrapper takes over name and module of what it wraps; whose code it is, its globals say.
        its_globals = getattr(wrapper, "__globals__", None)
        yield str(its_globals.get("__name__") if its_globals else getattr(wrapper, "__module__", "")), wrapper
        method = getattr(method, "__wrapped__", None)


def beneath_official(method: Any) -> Any:
    """What the official instrumentation has put its own in the place of; None where anybody else's is there."""
    layers = list(_layers(method))
    around = [module for module, _ in layers if not _is_in(module, "openai")]
    if not around or not all(_is_in(module, "opentelemetry.instrumentation.genai.openai") for module in around):
        return None
    return layers[-1][1]


def _uploads(wrapper: Any, depth: int = 3) -> bool:
    """Whether the handler that a wrapper of the official one works with has a hook for what was asked and answered."""
    for cell in getattr(wrapper, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:
            continue
        hook = getattr(held, "_completion_hook", _MISSING)
        if hook is not _MISSING:
            hook = getattr(hook, "_wrapped", hook)
            return hook is not None and type(hook).__name__ != "_NoOpCompletionHook"
        if depth and isinstance(held, FunctionType) and _uploads(held, depth - 1):
            return True
    return False
