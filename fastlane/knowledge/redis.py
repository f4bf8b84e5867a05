"""Share counters and values between processes through Redis: a single server, or a cluster.

Calls never wait for Redis. A short-lived thread sends and reads changes, a few times a second. While the server is
unreachable, each process uses its local state.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from inspect import ismethod
from math import isfinite
from random import Random
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from .._clock import now_ns, wall_ns
from .._fork import new_lock, starts_over
from ..errors import ConfigurationError, MissingExtraError
from . import timer
from .table import Table

log = logging.getLogger("fastlane")

K = TypeVar("K")
ReceiveCounts: TypeAlias = Callable[[Mapping[str, float]], None]
"""Called with the amounts that other processes have added since the last call, by field."""
ReceiveValue: TypeAlias = Callable[[bytes, float], None]
"""Called with a value and the seconds until it expires."""

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_EXPECTED = "store expects an address such as redis://user:password@host:6379/0, and in the one that came "
# The timeout of connecting and of each reply. Only threads of this module wait.
_TIMEOUT_S = 2.0
# In RESP2 all versions of the library return the same replies.
_PROTOCOL = 2
_EVERY_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_AT_EXIT_S = 1.0
# The most pending fields of one hash while the server is unreachable.
_MOST_PENDING = 10_000
# Seconds after the end of a window during which other processes may still add to it.
_LATE_S = 5.0
# Smaller differences are rounding errors of sums.
_LEAST_AMOUNT = 1e-6
_MOST_AMOUNT = 1e15
_NS = 1e9


class Counters(NamedTuple):
    """A hash of counters. A new one begins every `window_s` seconds; the old one expires one window later."""

    key: str
    window_s: int

    def name(self, wall_s: float) -> str:
        """Return the name of the hash at a time in seconds since the epoch."""
        return f"{self.key}:{int(wall_s // self.window_s)}"


class Redis:
    """The shared state of this process at one server. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._connect, self._name = client_of(url)
        self._client: Any = None
        self._closing: Callable[[], Any] = _nothing
        """Closes the client; also called when this object is garbage-collected."""
        self._pending: dict[Counters, dict[str, float]] = {}
        self._values: dict[str, tuple[bytes, int]] = {}
        self._known: Table[str, dict[str, float]] = Table("shared counters", max_entries=4_096)
        """The last read counters, by the name of their hash."""
        self._counted: dict[Counters, list[Callable[[], Any]]] = {}
        self._watched: dict[str, list[Callable[[], Any]]] = {}
        self._lock = new_lock()
        self._exchanging = new_lock()
        self._is_planned = False
        self._failures = 0
        self._random = Random()
        self.exchanges = 0
        """The number of successful exchanges since the server was last unreachable."""
        starts_over(self)
        _all.add(self)

    def __repr__(self) -> str:
        return f"Redis({self._name!r})"

    def add(self, counters: Counters, amounts: Mapping[str, float]) -> None:
        """Add to counters with the next exchange. Never blocks or raises."""
        with self._lock:
            pending = self._pending.setdefault(counters, {})
            for field, amount in amounts.items():
                if field in pending or len(pending) < _MOST_PENDING:
                    pending[field] = pending.get(field, 0.0) + amount
        self.start()

    def put(self, key: str, value: bytes, *, expires_s: float) -> None:
        """Set a value with the next exchange. It expires after `expires_s` seconds. Never blocks or raises."""
        with self._lock:
            self._values[key] = value, now_ns() + int(expires_s * _NS)
        self.start()

    def watch_counters(self, counters: Counters, receive: ReceiveCounts) -> None:
        """Call `receive`, in another thread, with what other processes add.

        The first call has all of this window and the last. A bound method is held by a weak reference.
        """
        with self._lock:
            self._counted[counters] = [*self._counted.get(counters, ()), _weak_reference(receive)]
        self.start()

    def watch_value(self, key: str, receive: ReceiveValue) -> None:
        """Call `receive` with a value each time it is read; see `watch_counters`."""
        with self._lock:
            self._watched[key] = [*self._watched.get(key, ()), _weak_reference(receive)]
        self.start()

    def start(self) -> None:
        """Schedule an exchange, unless one is scheduled, as after a fork. Never blocks or raises."""
        if not self._is_planned:
            self._plan(0.0)

    def exchange(self) -> None:
        """Send pending changes, and read what is watched. Raises the redis library's errors."""
        with self._lock:
            pending, self._pending = self._pending, {}
            values, self._values = self._values, {}
            self._counted, self._watched = _live_receivers(self._counted), _live_receivers(self._watched)
            counted, watched = self._counted, self._watched
        try:
            hashes, read = self._ask(pending, values, counted, watched)
        except BaseException:
            self._put_back(pending, values)
            raise
        for counters, name, totals in hashes:
            if added := self._added(name, totals, pending.get(counters, {})):
                _deliver(counted[counters], added)
        for key, value, left_ms in read:
            if value is not None and left_ms > 0:
                _deliver(watched[key], value, left_ms / 1e3)

    def begin_in_child(self) -> None:
        """See `StartsOver`: the connection and the pending changes belong to the parent."""
        self._client = None
        self._pending, self._values = {}, {}
        self._is_planned = False
        self._failures = self.exchanges = 0
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
        with self._exchanging:
            try:
                self.exchange()
                self.exchanges += 1
                if self._failures:
                    log.info("%s is reachable again.", self._name)
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - retried after any error
                self._closing()
                self._client, self.exchanges = None, 0
                if not self._failures:
                    # Only the class: the message of an error may quote values.
                    log.warning("%s is unreachable; using local state. (%s)", self._name, type(error).__name__)
                pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures, 10))
                delay_s = pause_s * self._random.uniform(0.5, 1.0)  # not all processes at once
                self._failures += 1
        if self._counted or self._watched or self._pending or self._values:
            self._plan(delay_s)
        else:
            self._is_planned = False

    def _ask(
        self,
        pending: Mapping[Counters, Mapping[str, float]],
        values: Mapping[str, tuple[bytes, int]],
        counted: Iterable[Counters],
        watched: Iterable[str],
    ) -> tuple[list[tuple[Counters, str, dict[str, float]]], list[tuple[str, bytes | None, int]]]:
        """Exchange everything in one round trip. Each command has one key, so that it works on a cluster."""
        if self._client is None:
            self._client = self._connect()
            self._closing = weakref.finalize(self, _close, self._client)
        pipeline = self._client.pipeline(transaction=False)
        wall_s = wall_ns() / _NS
        for counters, amounts in pending.items():
            name = counters.name(wall_s)
            for field, amount in amounts.items():
                pipeline.hincrbyfloat(name, field, amount)
            pipeline.expire(name, 2 * counters.window_s)
        for key, (value, until_ns) in values.items():
            if (left_ms := (until_ns - now_ns()) // 1_000_000) > 0:
                pipeline.set(key, value, px=left_ms)
        sent = len(pipeline)
        names = [(counters, name) for counters in counted for name in self._names(counters, wall_s)]
        for _, name in names:
            pipeline.hgetall(name)
        for key in watched:
            pipeline.get(key)
            pipeline.pttl(key)
        replies = pipeline.execute()[sent:]
        read = iter(replies[len(names) :])
        return (
            [(counters, name, _numbers(reply)) for (counters, name), reply in zip(names, replies, strict=False)],
            [(key, next(read), next(read)) for key in watched],
        )

    def _names(self, counters: Counters, wall_s: float) -> list[str]:
        """Return the hashes to read: also the previous one if it may have changed, or nothing was read yet."""
        name, before = counters.name(wall_s), counters.name(wall_s - counters.window_s)
        if wall_s % counters.window_s < _LATE_S or self._known.get(name) is None:
            return [before, name]
        return [name]

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

    def _put_back(
        self, pending: Mapping[Counters, Mapping[str, float]], values: Mapping[str, tuple[bytes, int]]
    ) -> None:
        for counters, amounts in pending.items():
            self.add(counters, amounts)
        with self._lock:
            self._values = {**values, **self._values}


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
    """Return a function that makes the client of a server or cluster. Raises ValueError and the library's errors."""
    from redis import Redis, RedisCluster

    whole, _, rest = address.partition("://")
    scheme, _, kind = whole.partition("+")
    url = f"{scheme}://{rest}"
    options, from_url_options = _options(url)
    given = {name: value for name, value in options.items() if name not in from_url_options}
    client = Redis.from_url(url, retry=_no_retry(), **given)
    client.connection_pool.make_connection()  # raises for unknown parameters, and does not connect
    place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    if kind == "cluster":
        return partial(RedisCluster.from_url, url, **given), f"Redis at {whole}://{place}"
    return lambda: client, f"Redis at {whole}://{place}"


def _options(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a client, and those of them that the address sets."""
    from redis import connection

    library: Any = connection
    from_url_options = dict(library.parse_url(url))
    options: dict[str, Any] = {"socket_timeout": _TIMEOUT_S, "socket_connect_timeout": _TIMEOUT_S, **from_url_options}
    # Older versions of the library do not check the host name of a certificate.
    if url.startswith("rediss:") and from_url_options.get("ssl_cert_reqs") != "none":
        options.setdefault("ssl_check_hostname", True)
    return {**options, "decode_responses": False, "protocol": _PROTOCOL}, from_url_options


def _no_retry() -> Any:
    """Try once: the next exchange is the retry."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return Retry(NoBackoff(), 0)


def _nothing() -> None:
    """Do nothing."""


def _close(client: Any) -> None:
    with suppress(Exception):  # the connection may be broken
        client.close()


def _run(reference: weakref.ref[Redis]) -> None:
    one = reference()
    if one is not None:
        one._work()


def _weak_reference(receive: Callable[..., None]) -> Callable[[], Any]:
    return weakref.WeakMethod(receive) if ismethod(receive) else lambda: receive


def _live_receivers(receivers: dict[K, list[Callable[[], Any]]]) -> dict[K, list[Callable[[], Any]]]:
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
_all: weakref.WeakSet[Redis] = weakref.WeakSet()
_making = new_lock()


@atexit.register
def _send_at_exit() -> None:
    """Send pending changes at exit, and wait at most a second."""
    ending = [one for one in list(_all) if one.exchanges and (one._pending or one._values)]
    threads = [threading.Thread(target=one._work, daemon=True) for one in ending]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError:  # no thread can be started any more
        return
    until_ns = now_ns() + int(_AT_EXIT_S * _NS)
    for thread in threads:
        thread.join(max(0.0, (until_ns - now_ns()) / _NS))
