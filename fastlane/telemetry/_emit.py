"""Make spans of plans: the only module that starts and ends spans below a call's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from . import _names as names
from ._tree import SpanPlan

Wall = Callable[[int], int]
"""Nanoseconds since the epoch of a monotonic stamp."""


_MOST_CHARACTERS = 256


def emit(
    tracer: Tracer,
    plans: Sequence[SpanPlan],
    parent: Any,
    wall: Wall,
    made: dict[int, SpanContext],
    added: dict[str, Any],
) -> None:
    """Make the planned spans below `parent`, a context of OpenTelemetry's.

    `made` is given the spans of attempts by their numbers, for links; every span gets the attributes `added`.
    """
    for plan in plans:
        link = made.get(plan.link.attempt) if plan.link is not None else None
        links = (
            [Link(link, {names.LINK_REASON: plan.link.reason})] if link is not None and plan.link is not None else []
        )
        span = tracer.start_span(
            plan.name,
            context=parent,
            kind=SpanKind.CLIENT if plan.is_client else SpanKind.INTERNAL,
            attributes={**plan.attributes, **added} if added else plan.attributes,
            links=links,
            start_time=wall(plan.start_ns),
            record_exception=False,
            set_status_on_exception=False,
        )
        if plan.attempt is not None:
            made[plan.attempt] = span.get_span_context()
        try:
            if plan.error is not None:
                fail(span, plan.error)
            if plan.children and span.is_recording():
                emit(tracer, plan.children, set_span_in_context(span, parent), wall, made, added)
        finally:
            span.end(wall(plan.end_ns))


def sayable(name: str) -> str:
    """A name that an application made up, as exporters can write it: one that they cannot loses all of a batch."""
    if len(name) > _MOST_CHARACTERS:
        name = name[:_MOST_CHARACTERS]
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


def fail(span: Span, what: str) -> None:
    """Mark a span as failed, in words that hold nobody's text."""
    span.set_status(Status(StatusCode.ERROR, what))
