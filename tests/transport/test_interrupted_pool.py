"""Ctrl-C at each point of the bookkeeping of a pool of threads leaves the pool right, and every waiter is served.

CPython handles a signal where a function is entered, and where one that is written in C returns: a profiler sees both,
and what it raises comes out there.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from fastlane.transport import PoolSettings
from fastlane.transport.drivers.requests import Timeouts
from fastlane.transport.drivers.thread_driver import ThreadPool, start
from fastlane.transport.pool.settings import ServerOrigin
from fastlane.transport.protocols.exchange import TransportError
from tests.waiting import until

FILES = ("/pool.py", "thread_driver.py")
PATIENCE = Timeouts(10, 10, 10, 10)
# Calls that change nothing, and a lock's `with`: whether a signal comes between taking it and its block is Python's.
UNSEEN = ("isinstance", "len", "setprofile", "__enter__", "__exit__")


class Interrupt:
    """Raises KeyboardInterrupt at the point of that number."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def __call__(self, frame: FrameType, event: str, of: Any) -> None:
        place = frame.f_code.co_filename
        if "/fastlane/transport/" not in place or not place.endswith(FILES):
            return
        if event == "call" or (event == "c_return" and getattr(of, "__name__", "") not in UNSEEN):
            self.seen += 1
            if self.seen == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    @contextmanager
    def disturbing(self) -> Iterator[None]:
        """Be at work in the block."""
        before = sys.getprofile()
        try:
            sys.setprofile(self)
            yield
        except KeyboardInterrupt:
            assert self.seen == self.at
        finally:
            sys.setprofile(before)


def each_point(first: int = 1) -> Iterator[Interrupt]:
    """An interrupt for each point that there is, from the first one on."""
    interrupt = Interrupt(first)
    while True:
        yield interrupt
        if interrupt.seen < interrupt.at:
            break
        interrupt = Interrupt(interrupt.at + 1)
    assert interrupt.at > 50


@contextmanager
def listening() -> Iterator[ServerOrigin]:
    """A server that accepts, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=500) as server:
        yield ServerOrigin("http", "127.0.0.1", server.getsockname()[1], "127.0.0.1")


@pytest.fixture
def origins() -> Iterator[tuple[ServerOrigin, ServerOrigin]]:
    with listening() as here, listening() as there:
        yield here, there


def pool_of_one() -> ThreadPool:
    return ThreadPool(PoolSettings(max_connections=1, http2="never"), lambda _: ssl.create_default_context())


def can_be_used(pool: ThreadPool, *origins: ServerOrigin) -> None:
    for origin in origins:
        pool.unclaim(pool.acquire(origin, PATIENCE))


def has_lost_nothing(pool: ThreadPool, *origins: ServerOrigin) -> None:
    """The books are right, and each origin is to be had. Closes the pool."""
    can_be_used(pool, *origins)
    books = pool.pool
    members = list(books.members())
    assert books._count == len(members)
    assert set(books._idle) <= set(members)
    for state in books._origins.values():
        assert state.opening == sum(not member.is_open for member in state.members)
    pool.close()


def test_interrupted_acquire_from_a_full_pool_loses_no_slot(origins: tuple[ServerOrigin, ServerOrigin]) -> None:
    here, there = origins
    for interrupt in each_point():
        pool = pool_of_one()
        can_be_used(pool, here)
        link = None

        with interrupt.disturbing():
            link = pool.acquire(there, PATIENCE)

        if link is not None:
            pool.unclaim(link)
        has_lost_nothing(pool, here, there)


def test_interrupted_wait_for_connection_loses_no_slot() -> None:
    impatient = Timeouts(0.05, 0.05, 0.05, 0.05)
    with listening() as here, socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        there = ServerOrigin("http", "127.0.0.1", deaf.getsockname()[1], "127.0.0.1")
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # beyond them the kernel accepts no connection
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        for interrupt in each_point():
            pool = ThreadPool(PoolSettings(http2="never"), lambda _: ssl.create_default_context())

            with interrupt.disturbing(), contextlib.suppress(TransportError):
                pool.acquire(there, impatient)

            assert not pool.pool.has_waiters
            until(lambda pool=pool: not list(pool.pool.members()))  # type: ignore[misc]
            has_lost_nothing(pool, here)
        for filler in fillers:
            filler.close()


# The two functions by which it begins have done nothing yet where they are entered.
BEGUN = 3


@pytest.mark.slow
def test_interrupted_release_still_wakes_a_waiter(origins: tuple[ServerOrigin, ServerOrigin]) -> None:
    here, there = origins
    for interrupt in each_point(BEGUN):
        pool = pool_of_one()
        link = pool.acquire(here, PATIENCE)
        waiter = threading.Thread(target=can_be_used, args=(pool, there))
        waiter.start()
        # A waiter that still holds the lock would do what is interrupted here.
        until(lambda pool=pool: pool.pool.has_waiters and not pool._lock.locked())  # type: ignore[misc]

        with interrupt.disturbing():
            pool.unclaim(link)

        waiter.join()
        assert not link.claimed
        has_lost_nothing(pool, here, there)


class Unstartable(threading.Thread):
    """A thread that cannot start; what a signal raises amid it is hidden behind that, as by `threading`."""

    def __init__(self, amid: BaseException | None = None) -> None:
        super().__init__()
        self.amid = amid

    def start(self) -> None:
        try:
            if self.amid is not None:
                raise self.amid
        finally:
            raise RuntimeError("cannot start")


def test_start_of_a_thread_raises_what_a_signal_raised_amid_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        start(Unstartable(KeyboardInterrupt()))
    with pytest.raises(RuntimeError, match="cannot start"):
        start(Unstartable())
    try:
        raise ValueError
    except ValueError:
        with pytest.raises(RuntimeError, match="cannot start"):
            start(Unstartable())
