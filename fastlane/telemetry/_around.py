"""What OpenTelemetry's context is to say around a call: who makes its span, and who is to be silent meanwhile.

Imported where telemetry is active only: it imports OpenTelemetry's API.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import Span, get_current_span, get_tracer_provider

from . import _settings
from ._gate import is_placeholder
from ._others import (
    LOGFIRE,
    NOBODY,
    OFFICIAL,
    OPENINFERENCE,
    OPENLLMETRY,
    Others,
    known_scope,
    mode,
    others as others_of,
    shows_itself,
    unheard,
)

if TYPE_CHECKING:
    from ..compat.context import Issued
    from ._settings import TelemetrySettings

_log = logging.getLogger("fastlane")

# OpenTelemetry's own keys have a random part; instrumentations also go by the plain word.
_SUPPRESS = (
    getattr(context_api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    "suppress_instrumentation",
)
_SUPPRESS_HTTP = getattr(context_api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation")
_SUPPRESS_MODELS = "suppress_language_model_instrumentation"
# Who replaces openai's `request()`, which ours stands in front of; the others replace methods of its resources.
_INSIDE_REQUEST = frozenset({OPENINFERENCE, LOGFIRE})

_KEYS = frozenset({*_SUPPRESS, _SUPPRESS_HTTP, _SUPPRESS_MODELS})

_INFERENCE = "opentelemetry.genai.client.inference.context"
"""Under this key, an instrumentation on opentelemetry-util-genai says that the span of a call is there already."""
_INFERENCE_MODULE = "opentelemetry.util.genai._inference_invocation"


class Standing(NamedTuple):
    """How a call stands among those who may make its span."""

    mode: Literal["own", "defer", "silent"]
    """Whose the span is: fastlane's, another tool's, or nobody's, because the application has switched that off."""
    context: Context
    """The application's: the parent of what fastlane makes."""
    span: Span | None = None
    """The other tool's, where it has begun; some begin it with the first attempt."""
    others: Others = NOBODY
    suppresses: bool = False
    """Whether spans that were begun now would be lost: `context` is to be attached meanwhile."""
    inner: Context | None = None
    """To be attached around all that openai's own code does for the call; None where there is nothing to silence."""
    counts_generic: bool = True
    """Whether `gen_ai.*` metrics of the call are fastlane's to record: nobody else does."""


_alone: tuple[TelemetrySettings, Standing] | None = None
"""How a call stands that nobody else knows of, in no span."""


class attached:  # noqa: N801 - used as a statement
    """Make a context the current one: `with attached(context):`.

    Left in another context than it was entered in, as where a coroutine is closed by somebody else than the task that
    ran it, it restores nothing and says nothing: OpenTelemetry's `detach` writes an error into the log then.
    """

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context | None) -> None:
        self._context = context
        self._token: Any = None

    def __enter__(self) -> None:
        if self._context is not None:
            self._token = context_api.attach(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is None:
            return
        try:
            token.var.reset(token)
        except ValueError:
            pass
        except AttributeError:  # a context of another kind than the API's own
            context_api.detach(token)


def entered(client: Any, issued: Issued) -> tuple[attached, bool]:
    """Around a method of openai's that somebody has put theirs in the place of, and whether the call's span is ours.

    If it is, whoever has put theirs there is silent inside. `issued` keeps the application's context where it is not
    the current one meanwhile, or says that nothing is wanted.
    """
    standing = _standing(client, is_stamped=True, is_request=False)
    if standing.inner is not None or standing.mode == "silent":
        issued.telemetry_context = standing.context
    return attached(standing.inner), standing.mode == "own"


def standing(issued: Issued | None, client: Any = None) -> Standing:
    """How a call stands when it has come to `request()`; costs about two microseconds where nobody else instruments."""
    kept: Context | None = None if issued is None else issued.telemetry_context
    if kept is None:
        return _standing(client, is_stamped=issued is not None, is_request=True)
    suppressed = any(context_api.get_value(key) for key in _SUPPRESS)
    if _is_silent(kept):
        return Standing("silent", kept, suppresses=suppressed)
    # The others were silenced where the call was issued, and that holds until it returns.
    return Standing("own", kept, None, others_of(client), suppressed)


def _standing(client: Any, *, is_stamped: bool, is_request: bool) -> Standing:
    global _alone  # noqa: PLW0603 - that of the settings and the empty context that were asked for last
    context = context_api.get_current()
    others = others_of(client)
    if not others.names and not context:
        settings = _settings.current()
        known = _alone
        if known is None or known[0] is not settings or known[1].context is not context:
            _alone = known = (settings, Standing(mode(settings, others), context))
        return known[1]
    span = _theirs(get_current_span(context))
    suppressed = any(context.get(key) for key in _SUPPRESS)
    if span is None and _is_silent(context):
        return Standing("silent", context, None, others, suppressed)
    counts = not others.writes_metrics
    if span is not None or context.get(_INFERENCE) is not None:
        # This call's span is there already: its method is none of those that we stand in front of, or a library above
        # openai has made one.
        return Standing("defer", stripped(context), span, others, suppressed, None, counts)
    settings = _settings.current()
    defers = mode(settings, others) == "defer"
    if defers and not is_stamped and settings.coexistence == "auto" and shows_itself(others):
        # It has replaced no method that led here, such as `client.post()`: its span would be the current one.
        defers = False
    if defers or (others.names and not _writes_spans()):
        return Standing("defer", context, None, others, suppressed, None, counts)
    if settings.coexistence == "own":
        _say_once(unheard(others))
    inner = _silencing(context, others, _INSIDE_REQUEST if is_request else others.names)
    return Standing("own", context, None, others, inner is not None and _SUPPRESS[0] in inner, inner)


def _is_silent(context: Context) -> bool:
    return any(context.get(key) for key in _SUPPRESS) or bool(context.get(_SUPPRESS_MODELS))


def _writes_spans() -> bool:
    """Whether spans of ours would be kept by anybody; if not, nobody's else are to be silenced for them."""
    given = _settings.current().tracer_provider
    return not is_placeholder(get_tracer_provider() if given is None else given)


def _theirs(span: Span) -> Span | None:
    return span if known_scope(span) is not None and span.is_recording() else None


def their_span() -> Span | None:
    """The current span, if an instrumentation of openai is writing it for a call; asked at an attempt."""
    return _theirs(get_current_span())


def stripped(context: Context) -> Context:
    """A context without what suppresses instrumentation: the parent of spans that are made beside another tool's."""
    if _KEYS.isdisjoint(context):
        return context
    return Context({key: value for key, value in context.items() if key not in _KEYS})


def without_http(context: Context) -> Context:
    """A context in which HTTP instrumentations are silent: around an attempt whose span is fastlane's."""
    return Context({**context, _SUPPRESS_HTTP: True})


def _silencing(context: Context, others: Others, where: frozenset[str]) -> Context | None:
    """The context around a call whose span is ours: to each of the others what it obeys, and nothing else."""
    names = others.names & where
    said: dict[str, Any] = {}
    if not names.isdisjoint((*_INSIDE_REQUEST, OPENLLMETRY)):
        said.update(dict.fromkeys(_SUPPRESS, True))
    if OPENLLMETRY in names:
        said[_SUPPRESS_MODELS] = True  # which it asks for chats; for responses, what everybody asks for
    sink = _sink(sys.modules.get(_INFERENCE_MODULE)) if OFFICIAL in names else None
    if sink is not None:
        said[_INFERENCE] = sink
    return Context({**context, **said}) if said else None


@cache
def _sink(module: Any) -> Any:
    """What the official instrumentation takes for the data of a call whose span is somebody else's.

    It puts there what it learns of the call, which nobody needs: one for all of them, which keeps nothing.
    """
    data: Any = getattr(module, "InferenceData", None)
    if data is None:
        return None
    return type("Sink", (data,), {"merge": _keeps_nothing})()


def _keeps_nothing(*_: Any, **__: Any) -> None:
    """Take the data of a call, and leave it."""


@cache
def _say_once(names: frozenset[str]) -> None:
    if names:
        _log.warning(
            "telemetry writes its own span of every call, and so does %s, which cannot be told to be silent: "
            "with coexistence 'auto' or 'defer' there is one span a call.",
            " and ".join(sorted(names)),
        )
