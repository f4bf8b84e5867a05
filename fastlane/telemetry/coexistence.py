"""Coexist with other instrumentations of openai and of its HTTP client: find them, and leave a call's span to them.

Nothing of theirs is imported. Imported only where telemetry is active: it imports OpenTelemetry's API.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import Span, get_current_span

from ..compat.clients import ASYNC_CLIENTS, SYNC_CLIENTS, transports_of
from ..compat.context import restore

if TYPE_CHECKING:
    from ..compat.requests import Issued

LOGFIRE: Final = "logfire"

# The package that the wrappers of each other instrumentation of openai are written in.
_TOOLS = {
    "genai-openai": "opentelemetry.instrumentation.genai.openai",
    "openai-v2": "opentelemetry.instrumentation.openai_v2",  # the predecessor of genai-openai
    "openllmetry": "opentelemetry.instrumentation.openai",
    "openinference": "openinference.instrumentation.openai",
    "langfuse": "langfuse",
    LOGFIRE: "logfire",
    "openlit": "openlit",
}
_SHOWS_SPAN = frozenset({"genai-openai", "openai-v2", "openllmetry"})
"""Their span is the current one around the method that they have replaced."""
_RECORDS_METRICS = _SHOWS_SPAN | {LOGFIRE, "openlit"}
"""They record `gen_ai.*` metrics."""

# Scopes of the spans that instrumentations of openai make for a call.
_SCOPES = frozenset({
    "opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.openai.v1",
    "opentelemetry.instrumentation.openai.v0", "opentelemetry.instrumentation.openai_v2",
    "openinference.instrumentation.openai", "logfire.openai",
})  # fmt: skip

HTTP_INSTRUMENTATION: Final = "opentelemetry.instrumentation.httpx"

# The methods that tools replace: module, class without its "Async", methods.
_WATCHED = (
    ("openai.resources.chat.completions.completions", "Completions", ("create", "parse")),
    ("openai.resources.responses.responses", "Responses", ("create", "parse")),
    ("openai.resources.embeddings", "Embeddings", ("create",)),
    ("openai.resources.completions", "Completions", ("create",)),
)
_LOGFIRE_MARK = "_is_instrumented_by_logfire"
_PLAIN = (FunctionType, type(None))

# Keys of OpenTelemetry's context. Its own have a random part; instrumentations also go by the plain word.
_SUPPRESS = (
    getattr(context_api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    "suppress_instrumentation",
)
SUPPRESS_HTTP = getattr(context_api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation")
_SUPPRESS_MODELS = "suppress_language_model_instrumentation"
_SUPPRESSING = frozenset({*_SUPPRESS, SUPPRESS_HTTP, _SUPPRESS_MODELS})
_INFERENCE = "opentelemetry.genai.client.inference.context"
"""With this key, an instrumentation on opentelemetry-util-genai says that the span of a call exists already."""


# Which tools are there

Tools = frozenset[str]
"""Names of the other instrumentations of openai that are active for a client."""

NO_TOOLS: Final[Tools] = frozenset()
_REQUEST = tuple((owner, "request") for owner in (*SYNC_CLIENTS, *ASYNC_CLIENTS))

_Watched = tuple[Callable[[str], Any], str, Any]
"""The getter of a class's live dictionary, the name of a method, and what it was when it was looked at."""

_last: tuple[int, tuple[_Watched, ...], Tools] = (0, (), NO_TOOLS)
"""The number of imported modules, the methods that were found then, and the tools that have replaced them."""


def other_tools(client: Any) -> Tools:
    """Find the instrumentations of openai that are active now: Logfire may instrument a single client."""
    modules, methods, tools = _last
    if modules != len(sys.modules):
        tools = _find_tools()
    elif not methods:
        return NO_TOOLS
    else:
        for get, name, method in methods:
            if get(name) is not method:  # by identity: a wrapper may claim to equal what it wraps
                tools = _find_tools()
                break
    return tools | {LOGFIRE} if getattr(client, _LOGFIRE_MARK, False) else tools


def _find_tools() -> Tools:
    global _last  # noqa: PLW0603 - the same for all threads
    if sys.modules.keys().isdisjoint(_TOOLS.values()):
        _last = (len(sys.modules), (), NO_TOOLS)  # comparing sixteen methods takes 10 us of each call
        return NO_TOOLS
    watched = list(_REQUEST)
    for module, name, methods in _WATCHED:
        for prefix in ("", "Async"):
            owner = getattr(sys.modules.get(module), prefix + name, None)
            if owner is not None:
                watched += [(owner, method) for method in methods]
    found = tuple((vars(owner).get, method, vars(owner).get(method)) for owner, method in watched)
    modules = [module for _, _, method in found for module in _layers(method)]
    tools = frozenset(name for name, package in _TOOLS.items() if any(_is_in(module, package) for module in modules))
    _last = (len(sys.modules), found, tools)
    return tools


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _layers(method: Any) -> Iterator[str]:
    """Yield the name of the module that each wrapper around a method was written in, the outermost first."""
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
        yield str(its_globals.get("__name__") if its_globals else getattr(wrapper, "__module__", ""))
        method = getattr(method, "__wrapped__", None)


def is_http_instrumented(http_client: Any) -> bool:
    """Return whether an HTTP instrumentation makes spans of a client's requests, as children of the current span."""
    for transport in transports_of(http_client):
        name = "handle_async_request" if hasattr(transport, "handle_async_request") else "handle_request"
        methods = [vars(owner).get(name) for owner in type(transport).__mro__]
        methods.append(getattr(transport, "__dict__", {}).get(name))
        # (A wrapper of wrapt's is no function.)
        modules = [module for method in methods if type(method) not in _PLAIN for module in _layers(method)]
        if any(_is_in(module, HTTP_INSTRUMENTATION) for module in (type(transport).__module__, *modules)):
            return True
    return False


# Who makes the span


def records_metrics(tools: Tools) -> bool:
    """Return whether another tool records the metrics of the GenAI conventions."""
    return not _RECORDS_METRICS.isdisjoint(tools)


class Standing(NamedTuple):
    """Who makes the span of one call, and in which context."""

    mode: Literal["own", "defer", "silent"]
    """fastlane, another tool, or none, because the application has suppressed instrumentation."""
    context: Context
    """The application's: the parent of fastlane's spans."""
    span: Span | None = None
    """The other tool's, where it has begun; some begin it with the first attempt."""
    suppresses: bool = False
    """Whether spans started in the current context would be lost: `context` is to be attached meanwhile."""
    counts_generic: bool = True
    """Whether fastlane records the `gen_ai.*` metrics of the call: no other tool does."""


_ALONE: Final = Standing("own", Context())


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


def standing_of(issued: Issued | None, client: Any) -> Standing:
    """Decide who makes the span of a call that has come to `request()`: another tool wherever one is active."""
    context = context_api.get_current()
    tools = other_tools(client)
    if not tools and not context:
        return _ALONE
    span = _span_of_tool(get_current_span(context))
    suppressed = any(context.get(key) for key in _SUPPRESS)
    if span is None and (suppressed or context.get(_SUPPRESS_MODELS)):
        return Standing("silent", context, None, suppressed)
    counts = not records_metrics(tools)
    if span is not None or context.get(_INFERENCE) is not None:
        # The tool has replaced a method that we do not wrap, or a library above openai has made the span.
        return Standing("defer", without_suppression(context), span, suppressed, counts)
    # Where no method led here that they have replaced, such as with `client.post()`, a span of theirs would be current.
    misses = issued is None and tools <= _SHOWS_SPAN
    if tools and not misses:
        return Standing("defer", context, None, suppressed, counts)
    return Standing("own", context)


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
