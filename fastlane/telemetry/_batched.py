"""Whether a provider's spans are exported later anyway: then they are made later too, and no call waits for that.

Making a span takes as long as all else that telemetry does. Where every processor of a provider collects spans for its
own thread, it makes no difference to anybody whether they come from the call's thread, as long as a flush or a shutdown
finds them: a processor in front of the others sees to that.
"""

from __future__ import annotations

import sys
from typing import Any

_last: tuple[Any, Any, bool] = (None, None, False)


def is_batched(provider: Any) -> bool:
    """Whether all of a provider's processors are batching ones, so that spans may be made in another thread."""
    global _last  # noqa: PLW0603 - the answer for the processors that it was asked of
    try:
        multi = provider._active_span_processor
        processors = multi._span_processors
    except AttributeError:
        return False  # another implementation than the SDK: nobody knows what it does with its spans
    known = _last
    if known[1] is processors and known[0] is provider:
        return known[2]
    # The one that flushes one after the other: in front of the others of any other, nothing is flushed before them.
    if type(multi).__name__ != "SynchronousMultiSpanProcessor":
        return False
    with multi._lock:
        found = _looked_at(multi)
        _last = (provider, multi._span_processors, found)
    return found


def _looked_at(multi: Any) -> bool:
    processors, export = multi._span_processors, sys.modules.get("opentelemetry.sdk.trace.export")
    if export is None or not isinstance(processors, tuple):
        return False
    ahead_class = _ahead_class()
    others = [one for one in processors if not isinstance(one, ahead_class)]
    if not others or not all(isinstance(one, export.BatchSpanProcessor) for one in others):
        return False
    if not isinstance(processors[0], ahead_class):
        multi._span_processors = (ahead_class(), *others)
    return True


_made: list[Any] = []


def _ahead_class() -> Any:
    """The class of the processor in front, made once the SDK is there."""
    if _made:
        return _made[0]
    from opentelemetry.sdk.trace import SpanProcessor

    from ._metrics import flush

    class Ahead(SpanProcessor):
        """Has spans made that are due, before the processors behind it are flushed or shut down."""

        def shutdown(self) -> None:
            """Have them made: the others take no more after this."""
            flush()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            """Have them made, for the others to export."""
            return flush()

    _made.append(Ahead)
    return Ahead
