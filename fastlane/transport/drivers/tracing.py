"""The events of the library's `trace` extension, for applications that bring one along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocols.exchange import Exchange
from ..protocols.phases import Phases
from .link import Link

Trace = Callable[[str, dict[str, Any]], Any]


def _protocol(link: Link) -> str:
    return "http11" if link.is_http1 else "http2"


def opened(trace: Trace, phases: Phases, link: Link) -> None:
    """The connection stands; what opening it took is told where this request waited for it."""
    opening = link.opening
    if opening is None or opening.connect_started_ns < (phases.started_ns or 0):
        return
    for step in ("connect_tcp", "start_tls") if link.tls is not None else ("connect_tcp",):
        trace(f"connection.{step}.started", {})
        trace(f"connection.{step}.complete", {})


def sent(trace: Trace, link: Link) -> None:
    """The request is on its way."""
    protocol = _protocol(link)
    for step in ("send_request_headers", "send_request_body"):
        trace(f"{protocol}.{step}.started", {})
        trace(f"{protocol}.{step}.complete", {})
    trace(f"{protocol}.receive_response_headers.started", {})


def answered(trace: Trace, link: Link, exchange: Exchange) -> None:
    """The head of the answer has come."""
    head = exchange.answer_head
    if head is not None:
        trace(
            f"{_protocol(link)}.receive_response_headers.complete",
            {"return_value": (link.http_version, head.status, head.reason, head.headers)},
        )


async def awaited(tell: Callable[..., None], trace: Trace, *arguments: Any) -> None:
    """Tell an asynchronous `trace`, whose calls are to be awaited one after the other."""
    events: list[tuple[str, dict[str, Any]]] = []
    tell(lambda name, info: events.append((name, info)), *arguments)
    for event in events:
        await trace(*event)
