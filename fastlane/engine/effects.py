"""The effects that the flow of a call yields to its driver.

A flow is a generator. It yields effects, and its driver sends each result back in. When an effect fails, or the caller
is interrupted or cancelled, the driver throws the exception into the flow at its `yield`: a plain `try` or `with` is
enough to release what the flow holds. This module lies below `compat`, whose retry loop yields effects.
"""

from __future__ import annotations

import threading
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
    """openai's `_send_request`, or what has replaced it."""
    arguments: dict[str, Any]
    """Further arguments of `_send_request`."""
    layers: Any = None
    """The layers of the HTTP client to bypass: see `compat.send`. None: call `send_request`."""
    until_ns: int | None = None
    """When the async driver raises TimeoutError, in monotonic nanoseconds. None: the transport enforces the timeout."""


@dataclass(slots=True)
class ReadBody:
    """Read the rest of a response."""

    response: Any


@dataclass(slots=True)
class Next:
    """Read the next piece of a body. Returns None at its end."""

    pieces: Any
    """An iterator, of the client's kind."""
    until_ns: int | None = None
    """See `Send`."""


@dataclass(slots=True)
class Close:
    """Close a response that is not returned to the caller."""

    response: Any


@dataclass(slots=True)
class Sleep:
    """Wait until `seconds` have passed, or until the HTTP client is closed."""

    http: Any
    """The HTTP client whose closing ends the wait; None: nothing else ends it."""
    seconds: float
    sleep: Callable[[float], Any] | None = None
    """The replacement of the standard sleep function, such as a test's mock; None if it is not replaced."""
    racer: Racer | None = None
    """Set by the driver: its cancellation ends the wait."""


class Ticket(Protocol):
    """A claim to a slot. Create it before `try`, acquire it inside, and release it on every exception."""

    @property
    def is_granted(self) -> bool:
        """Whether the slot is granted."""

    def start(self, wake: Callable[[], bool]) -> None:
        """Join the queue. If the ticket is granted later, `wake` is called, from any thread.

        `wake` returns False if the event loop of the waiting task has ended.
        """

    def release(self) -> None:
        """Release the slot, or leave the queue. Calling it again does nothing."""


@dataclass(slots=True)
class Acquire:
    """Wait until a ticket is granted, or the HTTP client is closed. Returns whether it is granted.

    Raises TimeoutError after `timeout_s` seconds.
    """

    http: Any
    """The HTTP client whose closing ends the wait; None: nothing else ends it."""
    ticket: Ticket
    timeout_s: float | None = None
    """Seconds; None for no limit, 0 to take only what is free now."""
    racer: Racer | None = None
    """See `Sleep`."""


@dataclass(slots=True)
class Await:
    """Await an awaitable. Returns its result. Only for flows of async clients."""

    awaitable: Awaitable[Any]


@dataclass(slots=True)
class Compute:
    """Run a function that uses much CPU or blocks. An async driver runs it in a thread."""

    function: Callable[[], Any]


@dataclass(slots=True)
class Perform:
    """Call a function that may block. An async driver awaits what it returns."""

    function: Callable[[], Any]


Flow = Generator[Any, Any, Any]
"""A generator of effects. Returns the result."""


class Cancelled(BaseException):
    """Thrown into the flow that has lost a race. Not an Exception, so that no play takes it for a failure."""


class Racer:
    """One of the two flows of a race. The flow calls `begin`, `win` and `give_way`. Any thread may call `cancel`."""

    __slots__ = ("__weakref__", "_end_wait", "is_cancelled", "on_cancel", "race")

    def __init__(self, race: Race) -> None:
        self.race: Race = race
        self.is_cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        """Called by `cancel` first."""
        self._end_wait: Callable[[], object] | None = None

    def begin(self) -> None:
        """Start the delay after which the second flow begins. The first flow calls this once it has its slot."""
        self.race.begin()

    def enter(self) -> bool:
        """Enter the race. Returns False if the race is decided or closed: then the flow must not begin."""
        return self.race.enter(self)

    def win(self) -> None:
        """Win the race with the first content. Raises Cancelled if the other flow was faster."""
        self.race.win(self)

    def give_way(self) -> bool:
        """Return whether the other flow is running, so that this one can end. If not, no second flow will begin."""
        return self.race.leave(self)

    def cancel(self) -> None:
        """End the flow: its driver throws Cancelled into it. Takes no lock."""
        if self.on_cancel is not None:
            self.on_cancel()
        self.is_cancelled = True
        end_wait = self._end_wait
        if end_wait is not None:
            end_wait()

    def set_wait(self, end_wait: Callable[[], object]) -> None:
        """Set the function by which `cancel` ends the wait that begins now. Raises Cancelled if already cancelled."""
        # The opposite order of `cancel`, so that a concurrent `cancel` is noticed by one of the two.
        self._end_wait = end_wait
        self.check()

    def check(self) -> None:
        """Raise Cancelled if `cancel` was called."""
        if self.is_cancelled:
            raise Cancelled


class Race:
    """Run `first`, and also `second` if `first` has not won after a delay. Returns what the winner returns.

    A flow wins with its first content (`Racer.win`), or by returning. The other one is cancelled. If a flow raises
    before any has won, the other one goes on. If both raise, or the second has not begun, the error of the first is
    raised; if a flow raises after it has won, its error is raised.
    """

    def __init__(self, first: Callable[[Racer], Flow], second: Callable[[Racer], Flow | None], delay_s: float) -> None:
        """`second` is called in the thread or task of the second flow. It may return None to begin no flow."""
        self.make_first: Callable[[Racer], Flow] | None = first
        self.make_second: Callable[[Racer], Flow | None] | None = second
        self.delay_s = delay_s
        """Seconds between `begin` and the second flow."""
        self.first, self.second = Racer(self), Racer(self)
        self.set_alarm: Callable[[float], Callable[[], object]] | None = None
        """Set by the driver: starts the second flow after the given seconds. Returns a function that cancels this."""
        self._turn_off: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._running = [self.first]
        self._is_closed = False
        self.winner: Racer | None = None

    @property
    def is_open(self) -> bool:
        """Whether a second flow may still begin."""
        return not self._is_closed and self.winner is None

    def begin(self) -> None:
        """Start the delay. Calling it again does nothing."""
        if self.set_alarm is not None and self.is_open:
            set_alarm, self.set_alarm = self.set_alarm, None
            self._turn_off = set_alarm(self.delay_s)

    def enter(self, racer: Racer) -> bool:
        """See `Racer`."""
        with self._lock:
            if self.is_open:
                self._running.append(racer)
            return racer in self._running and not racer.is_cancelled

    def win(self, racer: Racer) -> None:
        """See `Racer`."""
        with self._lock:
            if self.winner is None and not racer.is_cancelled:
                self.winner = racer
            won = self.winner is racer
            # Remove the loser now: it takes some time to end, and the race must not wait for it.
            losers = [one for one in self._running if one is not racer] if won else []
            self._running = [one for one in self._running if one not in losers]
        for loser in losers:
            loser.cancel()
        if not won:
            raise Cancelled

    def leave(self, racer: Racer) -> bool:
        """Close the race. If the other flow is running, remove this one and return True."""
        with self._lock:
            self._is_closed = True
            others = any(one is not racer for one in self._running)
            if others and racer in self._running:
                self._running.remove(racer)
            return others

    def abandon(self) -> bool:
        """Cancel the second flow if it is running. Returns whether it was. Takes no lock."""
        is_running = self.second in self._running
        if is_running:
            self.second.cancel()
        else:
            self.second.is_cancelled = True  # it may be about to enter
        return is_running

    def close(self) -> None:
        """Prevent a second flow, and drop all references to the call."""
        self._is_closed = True
        if self._turn_off is not None:
            self._turn_off()
        self.make_first = self.make_second = self.set_alarm = self._turn_off = None
        self.first.on_cancel = self.second.on_cancel = None
