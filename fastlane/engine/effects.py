"""Everything that the flow of a call can ask its driver to do.

A flow is a generator. It yields effects, and its driver sends each result back in. When an effect fails, or the caller
is interrupted or cancelled, the driver throws the exception into the flow at its `yield`: a plain `try` or `with` is
all that a flow needs to give something back. This module lies below `compat`, whose retry loop yields effects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(slots=True)
class Send:
    """Send a request. Returns the response: its head has arrived, and unless `stream` its body as well."""

    http: Any
    """The HTTP client that sends it."""
    request: Any
    stream: bool
    send_request: Callable[..., Any]
    """openai's `_send_request`, or what somebody has put in its place."""
    arguments: dict[str, Any]
    """Further arguments of `_send_request`."""
    layers: Any = None
    """The layers of the HTTP client that need not be gone through: see `compat.send`. None: call `send_request`."""


@dataclass(slots=True)
class ReadBody:
    """Read the rest of a response."""

    response: Any


@dataclass(slots=True)
class Close:
    """Close a response that the caller does not get."""

    response: Any


@dataclass(slots=True)
class Sleep:
    """Wait for some seconds, or until the HTTP client is closed."""

    http: Any
    seconds: float
    sleep: Callable[[float], Any] | None = None
    """The function that somebody has put in the place of the standard one; None without that."""


@dataclass(slots=True)
class Acquire:
    """Wait until a ticket is granted, or the HTTP client is closed. Returns whether it was granted.

    Raises TimeoutError after `timeout_s` seconds. Create the ticket before `try`, acquire it inside, and release it on
    every exception: then there is no moment in which a granted ticket has no owner.
    """

    http: Any
    ticket: Ticket
    timeout_s: float | None = None


@dataclass(slots=True)
class Await:
    """Await what a method of an async client has returned. Returns its result."""

    awaitable: Awaitable[Any]


@dataclass(slots=True)
class Compute:
    """Run a function that uses much CPU or blocks. An async driver runs it in a thread."""

    function: Callable[[], Any]


class Ticket(Protocol):
    """A claim to something that is limited, such as a slot."""

    @property
    def is_granted(self) -> bool:
        """Whether the claim is granted."""

    def start(self, wake: Callable[[], None]) -> None:
        """Join the queue. `wake` is called, from any thread, when the claim is granted later than now."""

    def release(self) -> None:
        """Give back what was granted, or leave the queue. Calling it again does nothing."""


Flow = Generator[Any, Any, Any]
"""A generator of effects. Returns the result."""

Run = Callable[[Flow], Any]
"""Runs a flow with the driver that performs an effect; with an async driver its result has to be awaited."""


@dataclass(slots=True)
class Either:
    """Do what is written once for threads and once for tasks; the second is awaited."""

    sync: Callable[[Run], Any]
    asynchronous: Callable[[Run], Awaitable[Any]]
