"""A store that exchanges events with the others from a thread of its own, through a fork and to the process's end."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

import orjson

from fastlane._clock import now_ns

from ._batches import MOST_EVENT_BYTES, MOST_EVENTS, Batch, Queued, Seen, written
from ._store import Receive, State

log = logging.getLogger("fastlane")

# How often events are exchanged: nobody waits for it, and statistics that are a fifth of a second old are new.
_EVERY_S = 0.2
# What is published while nothing can be sent: the oldest goes.
_MOST_QUEUED = 4_096
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.5, 30.0
# A store that nobody has any more is noticed so soon: a finaliser that woke its thread would need a lock.
_LOOK_S = 1.0
# With a history of thousands to read, calls of other threads come in between.
_AT_A_TIME, _BREATH_S = 32, 0.001
_LAST_WORDS_S = 1.0


class Line(Protocol):
    """The way to the others: used by one thread. Whatever goes wrong on it is an exception."""

    def exchange(self, batches: Sequence[bytes]) -> Iterable[tuple[Batch | None, float]]:
        """Say batches, and return those of everybody that are new on this line, with their ages in seconds."""
        ...

    def say(self, batches: Sequence[bytes]) -> None:
        """Say batches, where the line is open."""
        ...

    def hang_up(self) -> None:
        """Close it; the next exchange opens it again."""
        ...


class Traffic(NamedTuple):
    """What has gone through a store of this process so far, in events."""

    sent: int = 0
    received: int = 0
    dropped: int = 0
    """The oldest of too many that could not be sent."""
    refused: int = 0
    """Not JSON, or too large."""
    unreadable: int = 0
    """Batches of others, of other versions or no batches at all."""
    failed: int = 0
    """Events at which a receiver raised."""


class _Outbox:
    """What this process has to say: shared by the store and its thread, which ends it when the store is gone."""

    def __init__(self, *, is_closing: bool = False) -> None:
        self.sender = secrets.token_hex(8)
        self.queue: deque[Queued] = deque(maxlen=_MOST_QUEUED)
        self.said: list[Queued] = []
        """What was taken from the queue, and may not have arrived: numbers stay, so that it may be said again."""
        self.first = 0
        """Number of the first of these."""
        self.is_closing = is_closing
        self.wake = threading.Event()

    def batches(self) -> list[bytes]:
        if not self.said:
            self.said = [self.queue.popleft() for _ in range(len(self.queue))]
        said, now = self.said, now_ns()
        starts = range(0, len(said), MOST_EVENTS)
        return [written(self.sender, self.first + at, said[at : at + MOST_EVENTS], now) for at in starts]

    def arrived(self) -> int:
        count = len(self.said)
        self.first += count
        self.said = []
        return count

    def following(self) -> int:
        """Number of the next event to be published."""
        return self.first + len(self.said) + len(self.queue)


class SharedStore:
    """See `Store`. Its thread does not keep it alive, and a child process begins anew with what it has heard."""

    def __init__(self, line_of: Callable[[], Line], *, name: str) -> None:
        self._name = name
        self._line_of = line_of
        self._line = line_of()
        self._outbox = _Outbox()
        self._seen = Seen()
        self._receivers: tuple[Receive, ...] = ()
        self._is_connected = False
        self._has_warned = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        # Held while a receiver runs, and during a fork: a child does not begin with a receiver's lock taken for ever.
        self._receiving = threading.RLock()
        self._sent = self._received = self._dropped = self._refused = self._unreadable = self._failed = 0
        _stores.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, state={self.state!r})"

    @property
    def state(self) -> State:
        """See `Store`."""
        if self._outbox.is_closing:
            return "closed"
        return "connected" if self._is_connected else "away"

    @property
    def traffic(self) -> Traffic:
        """What has gone through it so far in this process."""
        return Traffic(self._sent, self._received, self._dropped, self._refused, self._unreadable, self._failed)

    def publish(self, event: Mapping[str, Any]) -> None:
        """See `Store`. An event of more than 4,096 bytes of JSON is refused; what is no number in JSON becomes null."""
        try:
            data = orjson.dumps(event if type(event) is dict else dict(event))
        except Exception:  # noqa: BLE001 - whatever is in it, the call that led here goes on
            self._refused += 1
            return
        if len(data) > MOST_EVENT_BYTES:
            self._refused += 1
            return
        queue = self._outbox.queue
        if len(queue) == _MOST_QUEUED:
            self._dropped += 1
        queue.append(Queued(now_ns(), data))
        if self._thread is None:
            self.start()

    def subscribe(self, receive: Receive) -> None:
        """See `Store`. Who subscribes after the first events have come does not get those."""
        self._receivers = (*self._receivers, receive)
        self.start()

    def start(self) -> None:
        """See `Store`."""
        # Who does not get the lock has no need to wait for it: somebody else is starting it.
        if self._thread is not None or self._outbox.is_closing or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                what = (weakref.ref(self), self._line, self._outbox)
                thread = threading.Thread(target=_run, args=what, name="fastlane store", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:  # no thread to be had, or none any more because the process ends
            pass
        finally:
            self._starting.release()

    def close(self) -> None:
        """See `Store`."""
        self._end()
        self._join(_LAST_WORDS_S)

    def _end(self) -> None:
        self._outbox.is_closing = True
        self._outbox.wake.set()

    def _join(self, limit_s: float) -> None:
        # While nothing is connected there is nothing to wait for.
        if self._is_connected and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, limit_s))

    def _has_said(self, count: int) -> None:
        self._sent += count
        if not self._is_connected:
            self._is_connected = True
            if self._has_warned:
                self._has_warned = False
                log.info("the shared store %s is back", self._name)

    def _hear(self, heard: Iterable[tuple[Batch | None, float]]) -> None:
        count = 0
        for batch, kept_s in heard:
            if batch is None:
                self._unreadable += 1
            elif batch.sender != self._outbox.sender:
                for event, age_s in self._seen.new(batch):
                    self._receive(event, age_s + kept_s)
                    count += 1
                    if count % _AT_A_TIME == 0:
                        self._outbox.wake.wait(_BREATH_S)

    def _receive(self, event: Mapping[str, Any], age_s: float) -> None:
        self._received += 1
        for receive in self._receivers:
            try:
                with self._receiving:
                    receive(event, age_s)
            except Exception as error:  # noqa: BLE001 - an event of another version, and the next may be understood
                if not self._failed:
                    log.warning("an event from the shared store %s was refused (%s)", self._name, type(error).__name__)
                self._failed += 1

    def _is_away(self, error: Exception) -> None:
        self._is_connected = False
        if not self._has_warned and not self._outbox.is_closing:
            self._has_warned = True
            # Its class alone: what a server or a library says may quote what it was given.
            log.warning(
                "the shared store %s is away (%s): this process goes on with what it knows by itself, and tries again",
                self._name,
                type(error).__name__,
            )

    def _begin_in_child(self) -> None:
        """Of the parent's thread and locks nothing works here, and what it has not sent yet it will send itself."""
        before = self._outbox
        self._seen.skip(before.sender, before.following())
        try:
            self._line.hang_up()
        except Exception:  # noqa: BLE001 - the parent's thread may have been in the middle of anything
            pass
        self._line = self._line_of()
        self._outbox = _Outbox(is_closing=before.is_closing)
        self._is_connected = self._has_warned = False
        self._thread = None
        self._starting = threading.Lock()
        self._receiving = threading.RLock()


_stores: weakref.WeakSet[SharedStore] = weakref.WeakSet()
_forking = threading.local()


def _all_stores() -> list[SharedStore]:
    while True:
        try:
            return list(_stores)
        except RuntimeError:  # another thread is making one
            continue


def _run(reference: weakref.ref[SharedStore], line: Line, outbox: _Outbox) -> None:
    """Exchange events until the store is closed, or nobody has it any more."""
    random = Random()
    failures = 0
    store: SharedStore | None
    heard: Iterable[tuple[Batch | None, float]] | None
    while not outbox.is_closing:
        pause_s = _EVERY_S
        try:
            heard = line.exchange(outbox.batches())
            count = outbox.arrived()
            if (store := reference()) is None:
                break
            store._has_said(count)
            store._hear(heard)
            failures = 0
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
            line.hang_up()
            if (store := reference()) is None:
                break
            store._is_away(error)
            # Not all at once when it is back.
            pause_s = min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
            failures += 1
        store = heard = None
        _rest(pause_s, reference, outbox)
    try:
        line.say(outbox.batches() if not failures else ())
    except Exception:  # noqa: BLE001 - nobody is there to be told
        pass
    line.hang_up()


def _rest(pause_s: float, reference: weakref.ref[SharedStore], outbox: _Outbox) -> None:
    while pause_s > 0 and not outbox.is_closing and reference() is not None:
        outbox.wake.wait(min(pause_s, _LOOK_S))
        pause_s -= _LOOK_S


def _hold_receivers() -> None:
    # A receiver that forks, or takes this long, is not waited for.
    _forking.held = [store._receiving for store in _all_stores() if store._receiving.acquire(timeout=_LOOK_S)]


def _release_receivers() -> None:
    for lock in _forking.__dict__.pop("held", ()):
        lock.release()


def _begin_in_child() -> None:
    _forking.__dict__.clear()
    for store in _all_stores():
        store._begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_receivers, after_in_parent=_release_receivers, after_in_child=_begin_in_child)


@atexit.register
def _close_at_exit() -> None:
    """What a process that soon ends has seen is of use to the others; but it does not wait long for that."""
    stores = _all_stores()
    for store in stores:
        store._end()
    until = now_ns() + int(_LAST_WORDS_S * 1e9)
    for store in stores:
        store._join((until - now_ns()) / 1e9)
