"""One request that several calls wait for, who they are, and what has come of it so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from fastlane._clock import now_ns
from fastlane._fork import in_child, new_lock
from fastlane.transport.protocols.exchange import PHASES, Patience

Key = tuple[Any, ...]
"""Where calls can share (the threads, or one event loop), over which connections, and what they ask for."""


class Waiter(Protocol):
    """Somebody who waits for what happens to a flight."""

    def wake(self) -> None:
        """Something has happened. Under the lock; waits for nothing."""


class Place(Protocol):
    """A place among the calls that are sent."""

    def leave(self, *, quietly: bool) -> None:
        """Give it back; `quietly`: without a lock that the very thread may hold."""


class Wait(Protocol):
    """A candidate's wait for a place among the calls that are sent."""

    def call_off(self) -> None:
        """Another candidate was the first. Takes a lock, and waits for nothing else."""


class Head(NamedTuple):
    """The head of an answer, out of which each call makes an answer of its own."""

    response: Any
    """The HTTP library's; its body is read by the flight alone."""
    came_ns: int


class Flight:
    """One request. Everything is changed under the lock of all flights, apart from `pieces`, which only grows."""

    __slots__ = (
        "_unsent", "attempts", "body", "candidates", "error", "following", "has_begun", "head", "is_deserted",
        "is_read_at_once", "is_reading", "is_whole", "joined", "key", "last_ns", "leader", "members", "most_urgent",
        "patience", "pieces", "place", "queued", "source", "task", "waiters",
    )  # fmt: skip

    def __init__(self, key: Key) -> None:
        self.key = key
        self.members = 0
        """Calls that are in it now."""
        self.joined = 0
        """Calls that have ever been."""
        self.candidates = 0
        """Members that have or wait for a place among the calls that are sent: whoever is first, sends."""
        self.queued: set[Wait] = set()
        """The waits of candidates that stand in the queue for a place."""
        self.most_urgent = 0
        """The level of the most urgent candidate: 0 is the most urgent of all."""
        self.has_begun = False
        self.leader: Seat | None = None
        """Of the call that sent the request."""
        self._unsent = {0: True}
        self.attempts: Any = ()
        """The attempts of whoever sent it."""
        self.patience = Patience()
        """By which the request is waited for, and given up when nobody is left."""
        self.head: Head | None = None
        self.error: Exception | None = None
        """What broke it off, before its answer or in the middle of it; never raised itself: see `again`."""
        self.pieces: list[tuple[bytes, int]] = []
        """The body so far, each piece with its arrival."""
        self.last_ns = 0
        """When anything of it arrived last, as far as somebody has looked."""
        self.is_whole = False
        self.is_deserted = False
        """Nobody is left, and nobody may join any more."""
        self.is_read_at_once = False
        """Whoever sent it reads all of its answer; the body of any other is read by whoever needs more of it."""
        self.is_reading = False
        """A member waits for the next piece of the body, on behalf of all."""
        self.source: Any = None
        """Gives the next piece."""
        self.body: Any = None
        """What `source` was made of."""
        self.task: Any = None
        """The task that sends it, of an asynchronous one."""
        self.place: Place | None = None
        """That of a call which sent the request and left: it is given back when the answer ends."""
        self.following: Flight | None = None
        """In which those who were in this one try again."""
        self.waiters: list[Waiter] = []

    @property
    def is_open(self) -> bool:
        """Whether a call may join: the answer is still on its way, for all that is known, and is no error."""
        if self.is_deserted or self.is_whole or self.error is not None:
            return False
        if self.head is None:
            return True
        # (The end may have come already, and wait to be read by somebody who is slow.)
        phases = self._phases
        return self.head.response.status_code < 400 and (phases is None or phases.answer_ended_ns is None)

    @property
    def sent_ns(self) -> int | None:
        """When the whole request had been sent; None before, and where its transport does not say."""
        phases = self._phases
        return None if phases is None else phases.send_ended_ns

    @property
    def is_stamped(self) -> bool:
        """Whether a transport of ours carries it, which says when what happens."""
        phases = self._phases
        return phases is not None and phases.started_ns is not None

    @property
    def _phases(self) -> Any:
        own = [attempt for attempt in tuple(self.attempts) if attempt.kind != "shared"]
        return own[-1].phases if own else None

    def is_to_be_sent(self) -> bool:
        """Whether nobody has begun to send the request: then it is for whoever asks, once."""
        return self._unsent.pop(0, False)

    # Under the lock

    def wake(self) -> None:
        """Something has happened."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.wake()

    def begins(self, leader: Seat) -> None:
        """A candidate sends the request: the others need no place any more."""
        self.has_begun = True
        self.leader = leader
        _superfluous.extend(self.queued)
        self.queued.clear()
        self.wake()

    def fails(self, error: Exception) -> None:
        """The request, or its answer, was broken off."""
        told: BaseException | None = error
        while told is not None:
            told.__traceback__ = told.__context__ = None  # which lead to the request, and with that to the prompt
            told = told.__cause__
        self.error = error
        self.is_reading = False
        self._is_over()

    def came(self, piece: bytes | None) -> None:
        """The next piece was read by a member, or the end."""
        assert self.head is not None
        phases = self.head.response.extensions.get(PHASES)
        if piece is None:
            self.last_ns = getattr(phases, "answer_ended_ns", None) or now_ns()
            self.ends()
            return
        self.last_ns = getattr(phases, "chunk_ns", 0) or now_ns()
        self.pieces.append((piece, self.last_ns))
        self.is_reading = False
        self.wake()

    def ends(self) -> None:
        """The last of the answer has come."""
        self.is_whole = True
        self.is_reading = False
        self._is_over()

    def _is_over(self) -> None:
        if under_way.get(self.key) is self:
            del under_way[self.key]
        place, self.place = self.place, None
        if place is not None:
            _places.append(place)
        self.wake()


class Seat:
    """One call's place in a flight."""

    __slots__ = ("call_id", "flight", "has_left", "is_candidate", "level")

    def __init__(self, flight: Flight, call_id: str, level: int, *, is_candidate: bool) -> None:
        self.flight = flight
        self.call_id = call_id
        self.level = level
        self.is_candidate = is_candidate
        """Whether it needs a place among the calls that are sent, because it may be the one that sends."""
        # In one go, without a call in between: Ctrl-C comes before all of it, or after.
        if is_candidate:
            if not flight.candidates or level < flight.most_urgent:
                flight.most_urgent = level
            flight.candidates += 1
        flight.members += 1
        flight.joined += 1
        self.has_left = False

    def __del__(self) -> None:
        # Ctrl-C may come between a call's joining and its knowing of that, and nobody may wait for it.
        if not getattr(self, "has_left", True):
            depart(self)

    @property
    def leads(self) -> bool:
        """Whether it is the one that sent the request."""
        return self.flight.leader is self

    @property
    def shared_with(self) -> str | None:
        """The call whose answer it gets; None where that is its own."""
        leader = self.flight.leader
        return None if leader is None or leader.call_id == self.call_id else leader.call_id

    @property
    def sharers(self) -> int:
        """How many others got its answer so far."""
        return self.flight.joined - 1 if self.leads else 0


lock = new_lock()
"""Of all flights: held for microseconds, and never while anything is waited for. Taken with `with swept, lock:` alone,
since Ctrl-C comes between any two calls of Python, and would leave it taken that was taken by one of them."""
_AT_ONCE = (False,)
under_way: dict[Key, Flight] = {}
"""Those that a call could join, and some whose end nobody has seen."""
_departed: deque[Seat] = deque()
"""Whose calls were garbage-collected: a finaliser takes no lock, and whoever lets go of the lock looks here."""
_places: deque[Place] = deque()
"""To be given back once the lock is let go of."""
_superfluous: deque[Wait] = deque()
"""To be called off once the lock is let go of."""


class _Swept:
    """A block around the one that has the lock: behind it, what finalisers have left to do meanwhile is done."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _departed or _places:
            sweep()
        while _superfluous:
            try:
                wait = _superfluous.popleft()
            except IndexError:  # another thread was faster
                return
            wait.call_off()


swept = _Swept()


def leave(seat: Seat) -> bool:
    """The call needs no more of the answer; True where it was the last one, and nothing more is to come."""
    if seat.has_left:
        return False
    with swept, lock:
        return seat_left(seat)


def depart(seat: Seat) -> None:
    """`leave`, called by a finaliser; the request is given up where nobody is left."""
    if not seat.has_left:
        _departed.append(seat)
        sweep()


def sweep() -> None:
    """Have those leave whose calls were garbage-collected, unless somebody holds the lock, who does so afterwards."""
    while _departed:
        taken: list[bool] = []
        try:
            taken += map(lock.acquire, _AT_ONCE)  # in one step: Ctrl-C cannot come before it is known
            if not taken[0]:
                break
            while _departed:
                seat = _departed[0]
                seat_left(seat)
                if seat.flight.is_deserted:
                    seat.flight.patience.give_up()  # without effect on an answer that has come to its end
                del _departed[0]  # behind the rest: where Ctrl-C comes before, all of it is done again
        finally:
            if taken and taken[0]:
                lock.release()
    while _places:
        try:
            place = _places.popleft()
        except IndexError:  # another thread was faster
            return
        place.leave(quietly=True)


def seat_left(seat: Seat) -> bool:
    """Under the lock: see `leave`."""
    if seat.has_left:
        return False
    seat.has_left = True
    flight = seat.flight
    flight.members -= 1
    if seat.is_candidate:
        flight.candidates -= 1
    if flight.members:
        if not flight.has_begun and not flight.candidates:
            flight.wake()  # one of the others is to send it
        return False
    is_over = flight.is_whole or flight.error is not None
    flight.is_deserted = True
    flight._is_over()
    return not is_over


Send = Callable[[Any], Any]
"""Sends a request, with its answer's body unread."""


@in_child
def forget() -> None:
    """Know of no flight any more: in a child process the requests are its parent's, and in tests they are over."""
    under_way.clear()
    _departed.clear()
    _places.clear()
    _superfluous.clear()


def flights() -> tuple[Flight, ...]:
    """Those that are under way."""
    return tuple(under_way.values())
