"""Share counters and pauses between processes through Redis: a single server, or a cluster.

Calls never wait for Redis. A short-lived thread sends and reads changes, a few times a second. While the server is
unreachable, each process uses its local state, and what it adds is not shared.
"""

from __future__ import annotations

import logging
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import isfinite
from random import Random
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from .._clock import now_ns, wall_ns
from .._fork import new_library_lock, new_lock, starts_over
from ..errors import ConfigurationError, MissingExtraError
from . import timer
from .table import Table

log = logging.getLogger("fastlane")

ReceiveCounts: TypeAlias = Callable[[str, Mapping[str, float]], None]
"""A bound method that is called with a key and the amounts that other processes have added to it, by field."""
ReceivePause: TypeAlias = Callable[[str, float, int], None]
"""A bound method that is called with a key, the seconds that are left of another process's pause, and the time now in
monotonic nanoseconds."""
_Receivers: TypeAlias = dict[str, list["weakref.WeakMethod[Callable[..., None]]"]]

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_EXPECTED = "store expects an address such as redis://user:password@host:6379/0, and in the one that came "
# The timeout of connecting and of each reply. Only threads of this module wait. In RESP2 all versions of the library
# return the same replies.
_OPTIONS = {"socket_timeout": 2.0, "socket_connect_timeout": 2.0, "decode_responses": False, "protocol": 2}
_EVERY_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
# Counters begin anew so often, in seconds, and expire one window later.
_WINDOW_S = 60
# Smaller differences are rounding errors of sums.
_LEAST_AMOUNT = 1e-6
_MOST_AMOUNT = 1e15
_NS = 1e9


class Redis:
    """The shared state of this process at one server. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._connect, self._name = client_of(url)
        self._client: Any = None
        self._closing: Callable[[], Any] = lambda: None
        """Closes the client; also called when this object is garbage-collected."""
        self._pending: dict[str, dict[str, float]] = {}
        self._pauses: dict[str, tuple[bytes, int]] = {}
        self._known: Table[str, dict[str, float]] = Table("shared counters", max_entries=4_096)
        """The last read counters, by key and window."""
        self._known_pauses: Table[str, bytes] = Table("shared pauses", max_entries=4_096)
        """The last pause of each key, because a pause is read several times."""
        self._own = secrets.token_bytes(8)
        """What this process's pauses begin with."""
        self._counted: _Receivers = {}
        self._paused: _Receivers = {}
        self._lock = new_lock()
        self._exchanging = new_library_lock()
        self._is_planned = False
        self._failures = 0
        self._random = Random()
        starts_over(self)

    def __repr__(self) -> str:
        return f"Redis({self._name!r})"

    def add(self, key: str, amounts: Mapping[str, float]) -> None:
        """Add to the counters of the current minute with the next exchange. Never blocks or raises."""
        with self._lock:
            pending = self._pending.setdefault(key, {})
            for field, amount in amounts.items():
                pending[field] = pending.get(field, 0.0) + amount
        self.start()

    def pause(self, key: str, seconds: float) -> None:
        """Share a pause of so many seconds with the next exchange. Never blocks or raises."""
        with self._lock:
            # The rest of the value tells pauses apart.
            self._pauses[key] = self._own + secrets.token_bytes(8), now_ns() + int(seconds * _NS)
        self.start()

    def watch(self, key: str, *, counts: ReceiveCounts | None = None, pause: ReceivePause | None = None) -> None:
        """Call bound methods, in another thread, with what other processes add to a key, and with their pauses.

        The first call has all counts of this minute and the last. The methods are held by weak references.
        """
        with self._lock:
            if counts is not None:
                self._counted[key] = [*self._counted.get(key, ()), weakref.WeakMethod(counts)]
            if pause is not None:
                self._paused[key] = [*self._paused.get(key, ()), weakref.WeakMethod(pause)]
        self.start()

    def start(self) -> None:
        """Schedule an exchange, unless one is scheduled, as after a fork. Never blocks or raises."""
        if not self._is_planned:
            self._plan(0.0)

    def exchange(self) -> None:
        """Send pending changes, and read what is watched. Raises the redis library's errors."""
        with self._exchanging:
            with self._lock:
                pending, self._pending = self._pending, {}
                pauses, self._pauses = self._pauses, {}
                self._counted, self._paused = _live_receivers(self._counted), _live_receivers(self._paused)
                counted, paused = self._counted, self._paused
            hashes, read = self._ask(pending, pauses, counted, paused)
            for key, name, totals in hashes:
                if added := self._added(name, totals, pending.get(key, {})):
                    _deliver(counted[key], key, added)
            for key, value, left_ms in read:
                if value is None or left_ms <= 0 or value == self._known_pauses.get(key):
                    continue
                self._known_pauses.put(key, value)
                if not value.startswith(self._own):
                    _deliver(paused[key], key, left_ms / 1e3, now_ns())

    def begin_in_child(self) -> None:
        """See `StartsOver`: the connection and the pending changes belong to the parent."""
        self._client = None
        self._pending, self._pauses = {}, {}
        self._own = secrets.token_bytes(8)
        self._is_planned = False
        self._failures = 0
        self._random.seed()

    def _plan(self, delay_s: float) -> None:
        self._is_planned = True
        try:
            timer.call_later(delay_s, partial(_run, weakref.ref(self)), in_thread=True)
        except RuntimeError:  # no thread can be started
            self._is_planned = False

    def _work(self) -> None:
        """Make one exchange, and schedule the next one."""
        delay_s = _EVERY_S
        try:
            self.exchange()
            if self._failures:
                log.info("%s is reachable again.", self._name)
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - retried after any error
            self._closing()
            self._client = None
            if not self._failures:
                # Only the class: the message of an error may quote values.
                log.warning("%s is unreachable; using local state. (%s)", self._name, type(error).__name__)
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures, 10))
            delay_s = pause_s * self._random.uniform(0.5, 1.0)  # not all processes at once
            self._failures += 1
        if self._counted or self._paused or self._pending or self._pauses:
            self._plan(delay_s)
        else:
            self._is_planned = False

    def _ask(
        self,
        pending: Mapping[str, Mapping[str, float]],
        pauses: Mapping[str, tuple[bytes, int]],
        counted: Iterable[str],
        paused: Iterable[str],
    ) -> tuple[list[tuple[str, str, dict[str, float]]], list[tuple[str, bytes | None, int]]]:
        """Exchange everything in one round trip. Each command has one key, so that it works on a cluster."""
        if self._client is None:
            self._client = self._connect()
            self._closing = weakref.finalize(self, _close, self._client)
        pipeline = self._client.pipeline(transaction=False)
        window = wall_ns() // (_WINDOW_S * 10**9)
        for key, amounts in pending.items():
            name = _name(key, window)
            for field, amount in amounts.items():
                pipeline.hincrbyfloat(name, field, amount)
            pipeline.expire(name, 2 * _WINDOW_S)
        for key, (value, until_ns) in pauses.items():
            if (left_ms := (until_ns - now_ns()) // 1_000_000) > 0:
                pipeline.set(_pause_name(key), value, px=left_ms)
        sent = len(pipeline)
        # Other processes may add to the last window after its end, and the first read has to have it.
        names = [(key, _name(key, one)) for key in counted for one in (window - 1, window)]
        for _, name in names:
            pipeline.hgetall(name)
        for key in paused:
            pipeline.get(_pause_name(key))
            pipeline.pttl(_pause_name(key))
        replies = iter(pipeline.execute()[sent:])
        hashes = [(key, name, _numbers(next(replies))) for key, name in names]
        return hashes, [(key, next(replies), next(replies)) for key in paused]

    def _added(self, name: str, totals: dict[str, float], own: Mapping[str, float]) -> dict[str, float]:
        """Return what other processes have added to a hash since the last read."""
        known = self._known.get(name) or {}
        self._known.put(name, totals)
        added = {}
        for field, total in totals.items():
            before = known.get(field, 0.0)
            # A server that lost its data counts from 0 again.
            amount = total - own.get(field, 0.0) - (before if total >= before else 0.0)
            if _LEAST_AMOUNT < amount < _MOST_AMOUNT:
                added[field] = amount
        return added


def _name(key: str, window: int) -> str:
    return f"{key}:{window}"


def _pause_name(key: str) -> str:
    return f"{key}:pause"


def shared(url: str, *, setting: str) -> Redis:
    """Return the shared state at an address: one object per address and process.

    `setting` names the play's setting in errors. Raises ConfigurationError for an invalid address, and
    MissingExtraError if the `redis` package is missing.
    """
    if not isinstance(url, str):
        raise ConfigurationError(
            f'{setting} takes an address such as "redis://localhost:6379/0", got {type(url).__name__}'
        )
    with _making:
        found = _by_url.get(url)
        if found is None:
            found = _by_url[url] = Redis(url)
    return found


def client_of(url: str) -> tuple[Callable[[], Any], str]:
    """Return a function that makes the library's client for an address, and the address without credentials.

    Raises ConfigurationError, whose message does not quote the address, and MissingExtraError.
    """
    scheme, separator, _ = url.partition("://")
    if scheme not in SCHEMES or not separator:
        raise ConfigurationError(f"{_EXPECTED}the beginning is none of {', '.join(SCHEMES)}")
    try:
        import redis  # noqa: F401 - check for the package
    except ImportError as error:
        raise MissingExtraError("redis", "redis") from error
    problem = "there is a parameter that the redis package does not take, or not with this value"
    try:
        parts = urlsplit(url)
        if scheme != "unix" and "@" in parts.path + parts.query + parts.fragment:
            problem = "a user name or password has / ? # or @ in it, which is to be written as %2F %3F %23 %40"
        elif scheme == "unix" and not parts.path:
            problem = "no path of a socket follows unix://"
        else:
            return _client(url)
    except Exception:  # noqa: BLE001 - the message of the error may quote the password
        pass
    raise ConfigurationError(_EXPECTED + problem)


def _client(address: str) -> tuple[Callable[[], Any], str]:
    """Return a function that makes the client of a server or cluster. Raises ValueError and the library's errors.

    What the address says goes before the options that are given here.
    """
    from redis import Redis, RedisCluster
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    whole, _, rest = address.partition("://")
    scheme, _, kind = whole.partition("+")
    url, options = f"{scheme}://{rest}", dict[str, Any](_OPTIONS)
    # Older versions of the library do not check the host name of a certificate.
    if scheme == "rediss" and "ssl_cert_reqs=none" not in url:
        options["ssl_check_hostname"] = True
    # Try once: the next exchange is the retry.
    client = Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
    client.connection_pool.make_connection()  # raises for unknown parameters, and does not connect
    parts = urlsplit(url)
    place = parts.path if scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    connect = partial(RedisCluster.from_url, url, **options) if kind == "cluster" else lambda: client
    return connect, f"Redis at {whole}://{place}"


def _close(client: Any) -> None:
    # A cluster's own `close` leaves the connections open if its client was made for an address.
    close = getattr(client, "disconnect_connection_pools", client.close)
    with suppress(Exception):  # the connection may be broken
        close()


def _run(reference: weakref.ref[Redis]) -> None:
    one = reference()
    if one is not None:
        one._work()


def _live_receivers(receivers: _Receivers) -> _Receivers:
    """Leave out garbage-collected receivers, and keys without receivers."""
    living = {key: [one for one in those if one() is not None] for key, those in receivers.items()}
    return {key: those for key, those in living.items() if those}


def _deliver(receivers: Iterable[Callable[[], Callable[..., None] | None]], *what: Any) -> None:
    for reference in receivers:
        if (receive := reference()) is not None:
            try:
                receive(*what)
            except Exception as error:  # noqa: BLE001 - the other receivers still have to get it
                log.warning("what was read from Redis was refused (%s)", type(error).__name__)


def _numbers(reply: Any) -> dict[str, float]:
    """Parse a hash of counters, without fields that are not numbers."""
    found = {}
    for field, text in reply.items():
        try:
            number = float(text)
        except ValueError:
            continue
        if isfinite(number):
            found[field.decode("utf-8", "replace")] = number
    return found


_by_url: weakref.WeakValueDictionary[str, Redis] = weakref.WeakValueDictionary()
_making = new_lock()
