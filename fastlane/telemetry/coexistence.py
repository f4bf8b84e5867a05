"""Coexist with other instrumentations of openai and of its HTTP client: find them, and decide who makes a call's span.

Nothing of theirs is imported. Imported only where telemetry is active: it imports OpenTelemetry's API.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import is_
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import openai
from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import Span, get_current_span

from ..compat.clients import ASYNC_CLIENTS, SYNC_CLIENTS, transports_of
from ..compat.context import restore
from .settings import CAPTURE_VARIABLE, Providers, TelemetrySettings, providers

if TYPE_CHECKING:
    from ..compat.requests import Issued

OFFICIAL: Final = "genai-openai"
OPENLLMETRY: Final = "openllmetry"
OPENINFERENCE: Final = "openinference"
LOGFIRE: Final = "logfire"


class _Tool(NamedTuple):
    """What is known of another instrumentation of openai."""

    module: str
    """The package that its wrappers are written in."""
    is_deferred_to: bool = True
    """Its spans record what ours would not: prompts by default, or a format that its own dashboards stand on."""
    records_metrics: bool = False
    """It records `gen_ai.*` metrics."""
    shows_span: bool = False
    """Its span is the current one around the method that it has replaced."""


_TOOLS = {
    OFFICIAL: _Tool("opentelemetry.instrumentation.genai.openai", False, records_metrics=True, shows_span=True),
    # The official one's predecessor.
    "openai-v2": _Tool("opentelemetry.instrumentation.openai_v2", records_metrics=True, shows_span=True),
    OPENLLMETRY: _Tool("opentelemetry.instrumentation.openai", records_metrics=True, shows_span=True),
    OPENINFERENCE: _Tool("openinference.instrumentation.openai"),
    "langfuse": _Tool("langfuse"),
    LOGFIRE: _Tool("logfire", records_metrics=True),
    "openlit": _Tool("openlit", records_metrics=True),
}

# Scopes of the spans that instrumentations of openai make for a call.
_SCOPES = frozenset({
    "opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.openai.v1",
    "opentelemetry.instrumentation.openai.v0", "opentelemetry.instrumentation.openai_v2",
    "openinference.instrumentation.openai", "logfire.openai",
})  # fmt: skip

HTTP_INSTRUMENTATION: Final = "opentelemetry.instrumentation.httpx"

_HOOK_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK"

# The methods that tools replace: module, class without its "Async", methods.
_WATCHED = (
    ("openai.resources.chat.completions.completions", "Completions", ("create", "parse")),
    ("openai.resources.responses.responses", "Responses", ("create", "parse")),
    ("openai.resources.embeddings", "Embeddings", ("create",)),
    ("openai.resources.completions", "Completions", ("create",)),
)
# These replace openai's `request()`, which ours calls; the others replace methods of its resources.
_INSIDE_REQUEST = frozenset({OPENINFERENCE, LOGFIRE})
_LOGFIRE_MARK = "_is_instrumented_by_logfire"
_PLAIN = (FunctionType, type(None))

# Keys of OpenTelemetry's context. Its own have a random part; instrumentations also go by the plain word.
_SUPPRESS = (
    getattr(context_api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    "suppress_instrumentation",
)
_SUPPRESS_HTTP = getattr(context_api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation")
_SUPPRESS_MODELS = "suppress_language_model_instrumentation"
_SUPPRESSING = frozenset({*_SUPPRESS, _SUPPRESS_HTTP, _SUPPRESS_MODELS})
_INFERENCE = "opentelemetry.genai.client.inference.context"
"""With this key, an instrumentation on opentelemetry-util-genai says that the span of a call exists already."""
_INFERENCE_MODULE = "opentelemetry.util.genai._inference_invocation"


# Which tools are there


Tools = frozenset[str]
"""Names of the other instrumentations of openai that are active for a client."""

NO_TOOLS: Final[Tools] = frozenset()
# Getters of the classes' live dictionaries.
_REQUEST = tuple((vars(owner).get, "request") for owner in (*SYNC_CLIENTS, *ASYNC_CLIENTS))


_last: tuple[list[Any], Tools] = ([], NO_TOOLS)
"""The methods that were found at the call before, and the tools that have replaced them."""


def other_tools(client: Any = None) -> Tools:
    """Find the instrumentations of openai that are active now. `client`: some instrument a single client."""
    global _last  # noqa: PLW0603 - the same for all threads
    found = [get(name) for get, name in _watched_methods(len(sys.modules))]
    seen, tools = _last
    # By identity: a wrapper may claim to equal what it wraps.
    if len(seen) != len(found) or not all(map(is_, seen, found)):
        modules = [module for method in found for module, _ in _layers(method)]
        tools = frozenset(
            name for name, tool in _TOOLS.items() if any(_is_in(module, tool.module) for module in modules)
        )
        _last = (found, tools)
    return tools | {LOGFIRE} if getattr(client or openai.OpenAI, _LOGFIRE_MARK, False) else tools


@functools.lru_cache(maxsize=1)
def _watched_methods(_modules: int) -> tuple[tuple[Any, str], ...]:
    """Return a getter and a name for each method. The number of imported modules changes where one was added."""
    found = list(_REQUEST)
    for module, name, methods in _WATCHED:
        for prefix in ("", "Async"):
            owner = getattr(sys.modules.get(module), prefix + name, None)
            if owner is not None:
                found += [(vars(owner).get, method) for method in methods]
    return tuple(found)


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _layers(method: Any) -> Iterator[tuple[str, Any]]:
    """Yield each wrapper around a method, the outermost first, with the name of the module that it was written in."""
    for _ in range(32):  # in case one wraps itself
        if method is None:
            return
        wrapper = getattr(method, "_self_wrapper", None)
        while isinstance(wrapper, functools.partial):
            wrapper = wrapper.func
        if wrapper is None:
            wrapper = method.__func__ if type(method) in (staticmethod, classmethod, MethodType) else method
        # A plain wrapper takes over name and module of what it wraps; its globals are its own.
        its_globals = getattr(wrapper, "__globals__", None)
        yield str(its_globals.get("__name__") if its_globals else getattr(wrapper, "__module__", "")), wrapper
        method = getattr(method, "__wrapped__", None)


def beneath_official(method: Any) -> Any:
    """Return the method that the official instrumentation has replaced; None where another tool is there as well."""
    layers = list(_layers(method))
    around = [module for module, _ in layers if not _is_in(module, "openai")]
    if not around or not all(_is_in(module, _TOOLS[OFFICIAL].module) for module in around):
        return None
    return layers[-1][1]


def is_http_instrumented(http_client: Any) -> bool:
    """Return whether an HTTP instrumentation makes spans of a client's requests, as children of the current span."""
    return any(map(_is_instrumented, transports_of(http_client)))


def _is_instrumented(transport: Any) -> bool:
    if _is_in(type(transport).__module__, HTTP_INSTRUMENTATION):
        return True
    name = "handle_async_request" if hasattr(transport, "handle_async_request") else "handle_request"
    for owner in (transport, *type(transport).__mro__):
        found = getattr(owner, "__dict__", {}).get(name)
        # (A wrapper of wrapt's is no function.)
        if type(found) not in _PLAIN and any(_is_in(module, HTTP_INSTRUMENTATION) for module, _ in _layers(found)):
            return True
    return False


# Who makes the span


def mode_of(settings: TelemetrySettings, tools: Tools) -> Literal["own", "defer"]:
    """Decide who makes the span of a call: fastlane, or the other tools."""
    if settings.coexistence != "auto":
        return settings.coexistence
    if any(_TOOLS[name].is_deferred_to for name in tools):
        return "defer"
    if OFFICIAL in tools:
        # We cannot call its hook, and what it would record of a call must not be lost.
        keeps_prompts = _variable(CAPTURE_VARIABLE) not in ("", "no_content")
        return "defer" if _variable(_HOOK_VARIABLE) or (keeps_prompts and settings.capture == "no_content") else "own"
    return "own"


def records_metrics(tools: Tools) -> bool:
    """Return whether another tool records the metrics of the GenAI conventions."""
    return any(_TOOLS[name].records_metrics for name in tools)


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


class Standing(NamedTuple):
    """Who makes the span of one call, and in which context."""

    mode: Literal["own", "defer", "silent"]
    """fastlane, another tool, or nobody, because the application has suppressed instrumentation."""
    context: Context
    """The application's: the parent of fastlane's spans."""
    span: Span | None = None
    """The other tool's, where it has begun; some begin it with the first attempt."""
    suppresses: bool = False
    """Whether spans started in the current context would be lost: `context` is to be attached meanwhile."""
    inner: Context | None = None
    """The context for openai's own code, which suppresses the other tools; None where there are none."""
    counts_generic: bool = True
    """Whether fastlane records the `gen_ai.*` metrics of the call: nobody else does."""


@contextmanager
def attached(context: Context | None) -> Iterator[None]:
    """Make a context the current one; None: leave it.

    Left in another context than it was entered in, as where a task closes another task's coroutine, it restores
    nothing. OpenTelemetry's `detach` logs an error then.
    """
    if context is None:
        yield
        return
    token = context_api.attach(context)
    try:
        yield
    finally:
        restore(token.var, token)


def around_replaced(client: Any, issued: Issued) -> tuple[AbstractContextManager[None], bool]:
    """Return the context for a method that another tool has replaced, and whether the call's span is ours.

    If it is, the tool is suppressed inside. `issued` keeps the application's context where it is not the current one.
    """
    standing = _standing(providers(), client, issued, is_request=False)
    if standing.inner is not None or standing.mode == "silent":
        issued.telemetry_context = standing.context
    return attached(standing.inner), standing.mode == "own"


def standing_of(issued: Issued | None, found: Providers, client: Any = None) -> Standing:
    """Decide who makes the span of a call that has come to `request()`."""
    kept: Context | None = None if issued is None else issued.telemetry_context
    if kept is None:
        return _standing(found, client, issued, is_request=True)
    # Other tools were suppressed where the call was issued, and that holds until it returns.
    suppressed = any(context_api.get_value(key) for key in _SUPPRESS)
    return Standing("silent" if _is_suppressed(kept) else "own", kept, None, suppressed)


def _standing(found: Providers, client: Any, issued: Issued | None, *, is_request: bool) -> Standing:
    context, settings = context_api.get_current(), found.settings
    tools = other_tools(client)
    if not tools and not context:
        return Standing(mode_of(settings, tools), context)
    span = _span_of_tool(get_current_span(context))
    suppressed = any(context.get(key) for key in _SUPPRESS)
    if span is None and _is_suppressed(context):
        return Standing("silent", context, None, suppressed)
    counts = not records_metrics(tools)
    if span is not None or context.get(_INFERENCE) is not None:
        # The tool has replaced a method that we do not wrap, or a library above openai has made the span.
        return Standing("defer", without_suppression(context), span, suppressed, None, counts)
    defers = mode_of(settings, tools) == "defer"
    if defers and issued is None and settings.coexistence == "auto" and all(_TOOLS[name].shows_span for name in tools):
        # They have replaced no method that led here, such as `client.post()`: a span of theirs would be current.
        defers = False
    if defers or (tools and not found.keeps_spans):  # nobody is suppressed for spans that nobody keeps
        return Standing("defer", context, None, suppressed, None, counts)
    inner = _suppressing(context, tools & _INSIDE_REQUEST if is_request else tools)
    return Standing("own", context, None, inner is not None and _SUPPRESS[0] in inner, inner)


def _is_suppressed(context: Context) -> bool:
    return any(context.get(key) for key in _SUPPRESS) or bool(context.get(_SUPPRESS_MODELS))


def _span_of_tool(span: Span) -> Span | None:
    scope = getattr(getattr(span, "instrumentation_scope", None), "name", None)
    return span if scope in _SCOPES and span.is_recording() else None


def other_tools_span() -> Span | None:
    """Return the current span, if an instrumentation of openai has made it for a call."""
    return _span_of_tool(get_current_span())


def without_suppression(context: Context) -> Context:
    """Return a context without suppressing keys: the parent of spans that are made beside another tool's."""
    if _SUPPRESSING.isdisjoint(context):
        return context
    return Context({key: value for key, value in context.items() if key not in _SUPPRESSING})


def without_http(context: Context) -> Context:
    """Return a context that suppresses HTTP instrumentations: around an attempt whose span is fastlane's."""
    return Context({**context, _SUPPRESS_HTTP: True})


def _suppressing(context: Context, names: frozenset[str]) -> Context | None:
    """Return the context that suppresses these tools, with the keys that each obeys; None where none does."""
    keys: dict[str, Any] = {}
    if not names.isdisjoint((*_INSIDE_REQUEST, OPENLLMETRY)):
        keys.update(dict.fromkeys(_SUPPRESS, True))
    if OPENLLMETRY in names:
        keys[_SUPPRESS_MODELS] = True  # which it reads for chats
    sink = _sink(sys.modules.get(_INFERENCE_MODULE)) if OFFICIAL in names else None
    if sink is not None:
        keys[_INFERENCE] = sink
    return Context({**context, **keys}) if keys else None


@functools.cache
def _sink(module: Any) -> Any:
    """Return what the official instrumentation writes the data of a call to whose span it does not make: nothing."""
    data: Any = getattr(module, "InferenceData", None)
    if data is None:
        return None
    return type("Sink", (data,), {"merge": lambda *_, **__: None})()
