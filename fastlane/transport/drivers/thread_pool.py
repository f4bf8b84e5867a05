"""The connections of a synchronous transport, shared by its threads."""

from __future__ import annotations

import _thread
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from fastlane._clock import now_ns

from ..pool.outlook import Outlook
from ..pool.pool import Member, Pool
from ..pool.settings import Origin, PoolSettings
from ..protocols.errors import TransportError
from ..protocols.patience import Patience, elsewhere_within
from ..protocols.phases import Phases
from .link import CLOSED
from .requests import Timeouts
from .thread_connections import ThreadLink
from .thread_exchange import lock_timeout

# How long `close()` waits for the threads to be gone.
_JOIN_S = 5.0
_AT_ONCE = (False,)


class _Waiter:
    """A thread that waits for a connection."""

    def __init__(self, avoid: str | None) -> None:
        self.avoid = avoid
        self._signal = threading.Lock()
        self._signal.acquire()
        self.link: ThreadLink | None = None
        self.error: TransportError | None = None

    def grant(self, member: Member) -> None:
        assert isinstance(member, ThreadLink)
        self.link = member
        self._wake()

    def refuse(self, error: TransportError) -> None:
        self.error = error
        self._wake()

    def give_up(self) -> None:
        """Nobody wants the request any more: the thread is woken, and sees to it. From any thread."""
        self._wake()

    def _wake(self) -> None:
        try:
            self._signal.release()
        except RuntimeError:  # somebody else has woken it
            pass

    def wait(self, timeout_s: float | None) -> bool:
        """Wait to be woken; whether the wait is over because of what has come."""
        self._signal.acquire(timeout=lock_timeout(timeout_s))
        return self.link is not None or self.error is not None


class ThreadPool:
    """The connections of a synchronous transport."""

    def __init__(self, settings: PoolSettings, context: Callable[[], ssl.SSLContext]) -> None:
        self.settings = settings
        self.context = context
        self._lock = threading.Lock()
        self._changed: deque[ThreadLink] = deque()
        """Connections that have other places than before. Whoever lets go of the lock looks here."""
        self._start_over()

    def _start_over(self) -> None:
        settings = self.settings
        self._pool = Pool(
            max_connections=settings.max_connections,
            http2=settings.http2 != "never",
            plain_http2=settings.http2 == "require",
            idle_ns=int(settings.idle_s * 1e9),
            make=self._make,
        )

    def _make(self, origin: Origin) -> ThreadLink:
        return ThreadLink(self, origin)

    def acquire(
        self, origin: Origin, timeouts: Timeouts, phases: Phases | None = None, patience: Patience | None = None
    ) -> ThreadLink:
        """A connection with a place for one exchange on it. Raises TransportError."""
        member = waiter = None
        new, surplus = list[Member](), list[Member]()
        avoid = None if patience is None else patience.avoid
        try:
            with self._lock:
                member = self._pool.claim(origin, now_ns(), avoid)
                if member is None:
                    waiter = _Waiter(avoid)
                    self._pool.wait(origin, waiter, now_ns())
                new, surplus = self._pool.take_orders()
            self._catch_up()
            if waiter is not None:
                if phases is not None:
                    phases.connection_wait_started_ns = now_ns()
                self._start(new, surplus)
                return self._wait(origin, waiter, timeouts, patience)
            assert isinstance(member, ThreadLink)
            self._start(new, surplus)
            if not member.is_busy and member.looks_stale():
                member.let_reader_catch_up()
        except BaseException:
            # Ctrl-C comes anywhere, and others may wait for what was to be opened.
            self._start(new, surplus)
            if isinstance(member, ThreadLink):
                self.unclaim(member)
            elif waiter is not None:
                self._give_up(origin, waiter)
            raise
        return member

    def _wait(self, origin: Origin, waiter: _Waiter, timeouts: Timeouts, patience: Patience | None) -> ThreadLink:
        if patience is not None:
            patience.attend(waiter)
        opening = self._pool.is_opening(origin)
        while True:
            timeout_s = timeouts.connect if opening else timeouts.pool
            if patience is not None:
                timeout_s = patience.within(timeout_s, now_ns())
            if waiter.wait(timeout_s if waiter.avoid is None else elsewhere_within(timeout_s)):
                break
            given_up = patience is not None and patience.given_up
            if waiter.avoid is not None and not given_up:
                waiter.avoid = None  # no other is to be had soon
                self.serve()
                continue
            if opening and not given_up and not self._pool.is_opening(origin):
                opening = False  # the connection came, and has no place: from here on it is the pool's time
                continue
            unwanted = self._withdraw(origin, waiter)
            if waiter.link is not None or waiter.error is not None:
                break  # it has come in the last moment
            for link in unwanted:
                link.hang_up(TransportError("ConnectTimeout", CLOSED))
            if unwanted:
                self.serve()  # their places are others' now
            if patience is not None:
                patience.check()
            if opening:
                raise TransportError("ConnectTimeout", f"No connection to {origin.host}:{origin.port} in time.")
            raise TransportError("PoolTimeout", "No connection became free in time.")
        if waiter.link is not None:
            return waiter.link
        error, waiter.error = waiter.error, None
        assert error is not None
        try:
            raise error
        finally:
            # Its traceback leads here, and from here to the request: neither would go before a garbage collection.
            del error

    def _withdraw(self, origin: Origin, waiter: _Waiter) -> list[ThreadLink]:
        """Wait no longer; the connections that were being opened and that nobody waits for any more."""
        try:
            with self._lock:
                self._pool.withdraw(origin, waiter)
                return [link for link in self._pool.take_unwanted(origin) if isinstance(link, ThreadLink)]
        finally:
            self._catch_up()

    def _give_up(self, origin: Origin, waiter: _Waiter) -> None:
        unwanted = self._withdraw(origin, waiter)
        for opening in unwanted:
            opening.hang_up(TransportError("ConnectError", CLOSED))
        self.serve()  # their places are others' now
        link, waiter.link = waiter.link, None
        if link is not None:
            self.unclaim(link)

    def _start(self, new: Iterable[Member], surplus: Iterable[Member]) -> None:
        try:
            self._carry_out(new, surplus)
        except BaseException:
            # Ctrl-C, and others wait for what was to be opened: what was done already is not done again.
            self._carry_out(new, surplus)
            raise

    def _carry_out(self, new: Iterable[Member], surplus: Iterable[Member]) -> None:
        for member in new:
            assert isinstance(member, ThreadLink)
            try:
                member.start()
            except RuntimeError as error:  # no further thread to be had
                self.failed(member, TransportError("ConnectError", str(error)))
        for member in surplus:
            assert isinstance(member, ThreadLink)
            member.hang_up(TransportError("ReadError", CLOSED))

    def _do(self, act: Callable[[Pool, int], None]) -> None:
        new, surplus = list[Member](), list[Member]()
        try:
            with self._lock:
                act(self._pool, now_ns())
                new, surplus = self._pool.take_orders()
            self._catch_up()
            if new or surplus:
                self._start(new, surplus)
        except BaseException:
            self._start(new, surplus)
            self._catch_up()
            raise

    def _catch_up(self) -> None:
        """Take note of connections that have changed, unless somebody holds the lock, who does so when they let go."""
        try:
            self._note_changes()
        except BaseException:
            # Ctrl-C, and others may wait for the places that there are now.
            self._note_changes()
            raise

    def _note_changes(self) -> None:
        while self._changed or self._pool.has_orders:
            new, surplus = list[Member](), list[Member]()
            taken: list[bool] = []
            try:
                try:
                    taken += map(self._lock.acquire, _AT_ONCE)  # in one step: Ctrl-C cannot come before it is known
                    if not taken[0]:
                        return
                    while self._changed:
                        self._pool.changed(self._changed[0], now_ns())  # which may be done again
                        self._changed.popleft()
                    new, surplus = self._pool.take_orders()
                finally:
                    if taken and taken[0]:
                        self._lock.release()
                self._order(new, surplus)
            except BaseException:
                self._order(new, surplus)  # which may be done again too
                raise

    def _order(self, new: list[Member], surplus: list[Member]) -> None:
        """Have somebody else carry it out.

        The garbage collector may have come here, in a thread that holds who knows what. (A bare thread: starting one of
        `threading` takes locks too.)
        """
        if new or surplus:
            try:
                _thread.start_new_thread(self._start, (new, surplus))
            except RuntimeError:  # no further thread to be had: `_start` says so to whom it concerns
                self._start(new, surplus)

    def unclaim(self, link: ThreadLink) -> None:
        """The call leaves without having begun."""
        link.ended.append(None)
        self.changed(link)

    def opened(self, link: ThreadLink) -> None:
        """The connection is open."""
        self._do(lambda pool, time_ns: pool.opened(link, time_ns))

    def failed(self, link: ThreadLink, error: TransportError) -> None:
        """The connection could not be opened."""
        link.ready.set()
        self._do(lambda pool, time_ns: pool.failed(link, error, time_ns))

    def serve(self) -> None:
        """Look after those who wait."""
        self._do(lambda pool, time_ns: pool.serve(time_ns))

    def changed(self, link: ThreadLink) -> None:
        """The connection has other places than before. Waits for no lock."""
        self._changed.append(link)
        self._catch_up()

    def closed(self, link: ThreadLink, *, by_idle_peer: bool, unwelcome_pings: bool) -> None:
        """The connection is closed."""
        self._do(
            lambda pool, time_ns: pool.closed(link, time_ns, by_idle_peer=by_idle_peer, unwelcome_pings=unwelcome_pings)
        )

    def ping_interval_ns(self, origin: Origin, wanted_ns: int) -> int | None:
        """Nanoseconds between pings; None where they are not welcome."""
        return self._pool.ping_interval_ns(origin, wanted_ns)

    def members(self) -> Iterator[Member]:
        """Every connection, open or opening. Waits for no lock: others may come and go meanwhile."""
        return self._pool.members()

    def outlook(self, origin: Origin) -> Outlook:
        """What a request to the origin would find that came now. Waits for no lock."""
        return self._pool.outlook(origin, now_ns())

    def warm(self, origin: Origin, timeouts: Timeouts) -> None:
        """Have a connection to the origin open, its SETTINGS exchanged, and keep it so. Raises TransportError."""
        link = self.acquire(origin, timeouts)
        try:
            if not link.ready.wait(timeouts.connect):
                raise TransportError("ConnectTimeout", "The server did not say what it allows in time.")
            link.check_ready()
        finally:
            self.unclaim(link)
        self._do(lambda pool, _: pool.keep_warm(origin))

    def close(self) -> None:
        """Close every connection; those who wait for an answer get an error."""
        with self._lock:
            links = [member for member in self._pool.members() if isinstance(member, ThreadLink)]
            pool = self._pool
            self._start_over()
            pool.refuse_all(TransportError("ConnectError", "The transport was closed."))
        for link in links:
            link.hang_up(TransportError("ReadError", "The transport was closed."))
        for link in links:
            thread = link.thread
            if thread is not None and thread is not threading.current_thread() and thread.is_alive():
                thread.join(_JOIN_S)

    def leave(self) -> None:
        """The process ends: say goodbye on every connection without a call.

        Whoever waits for an answer is left waiting: daemon threads, which end with the process, and would tell the
        world of an error instead; and handlers that are run at exit after this one may read the rest of an answer.
        """
        with self._lock:
            links = [member for member in self._pool.members() if isinstance(member, ThreadLink)]
            self._start_over()
        for link in links:
            link.leave()

    def forget(self) -> None:
        """In a child process: leave the parent's connections alone."""
        self._lock = threading.Lock()
        links = [member for member in self._pool.members() if isinstance(member, ThreadLink)]
        self._start_over()
        for link in links:
            link.forget()
