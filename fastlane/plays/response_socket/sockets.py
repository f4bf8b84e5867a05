"""The WebSockets of a client: each carries one response at a time, and the provider remembers one conversation on it.

A response that is given up ends with its socket: no command stops it. And not every provider takes several at a time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary, finalize

from fastlane._clock import now_ns
from fastlane._fork import in_child, new_lock
from fastlane.knowledge.table import Table

from .conversation import Seen, SocketTurn

# A provider ends a socket after 60 minutes: no answer is to be cut off by that.
_MOST_NS = 50 * 60 * 10**9
_REFUSED_S = 3_600
_UNREACHABLE_S = 60


class Lane:
    """One place for a WebSocket, and what the provider has seen on it."""

    __slots__ = ("is_busy", "is_dropped", "key", "opened_ns", "seen", "socket", "used_ns")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.socket: Any = None
        """None until it is open."""
        self.opened_ns = self.used_ns = now_ns()
        self.seen: Seen | None = None
        self.is_busy = True
        self.is_dropped = False

    @property
    def is_gone(self) -> bool:
        """Whether it can't be used any more."""
        return self.is_dropped or (self.socket is not None and not self.socket.is_open)

    def is_too_old(self, now: int) -> bool:
        """Whether it is to be replaced."""
        return not self.is_busy and now - self.opened_ns > _MOST_NS

    def release(self, seen: Seen | None) -> None:
        """Give it back after a whole answer."""
        self.seen, self.used_ns = seen, now_ns()
        self.is_busy = False

    def drop(self) -> None:
        """Close it at once. Takes no lock, so that finalizers may call it."""
        self.is_dropped = True
        if self.socket is not None:
            self.socket.abort()


class Lanes:
    """The lanes of one HTTP client."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._lock = new_lock()

    def take(self, key: Hashable, turn: SocketTurn, limit: int) -> tuple[Lane | None, int]:
        """Return a lane, whose socket may still have to be opened, and the index of the first item that is new to it.

        None if all are busy. `key`: only lanes with the same key can be taken for one another.
        """
        now = now_ns()
        with self._lock:
            surplus = [lane for lane in self._lanes if lane.is_gone or lane.is_too_old(now)]
            lanes = [lane for lane in self._lanes if lane not in surplus]
            idle = [lane for lane in lanes if not lane.is_busy]
            found, start = self._best(key, turn, idle)
            if found is None and len(lanes) >= limit and idle:
                # Another conversation is forgotten. A socket to the same server goes on with this one.
                oldest = min(idle, key=lambda lane: (lane.key != key, lane.used_ns))
                if oldest.key == key:
                    found = oldest
                else:
                    surplus.append(oldest)
                    lanes.remove(oldest)
            if found is None and len(lanes) < limit:
                found = Lane(key)
                lanes.append(found)
            if found is not None:
                found.is_busy = True
            self._lanes = lanes
        for lane in surplus:
            lane.drop()
        return found, start

    def drop(self) -> None:
        """Close all."""
        for lane in self._lanes:
            lane.drop()

    @staticmethod
    def _best(key: Hashable, turn: SocketTurn, idle: list[Lane]) -> tuple[Lane | None, int]:
        """Return the lane that has seen the most of a conversation, or else one that remembers none."""
        found, start = None, 0
        for lane in idle:
            if lane.key == key:
                new_from = None if lane.seen is None else lane.seen.new_from(turn)
                if (new_from or 0) > start or (lane.seen is None and found is None):
                    found, start = lane, new_from or 0
        return found, start


lanes_of: WeakKeyDictionary[Any, Lanes] = WeakKeyDictionary()
"""By HTTP client, which copies of a client share."""
in_child(lanes_of.clear)


def lanes_for(http: Any) -> Lanes:
    """Return the lanes of an HTTP client. Their sockets close when it is dropped."""
    lanes = lanes_of.get(http)
    if lanes is None:
        lanes = lanes_of.setdefault(http, Lanes())
        finalize(http, lanes.drop).atexit = False
    return lanes


_limits: Table[str, int] = Table("message limits of origins", max_entries=256)
_closed_until_ns: Table[str, int] = Table("origins without WebSockets", max_entries=256)


def fits(origin: str, size: int) -> bool:
    """Return whether a provider may take a message of so many bytes."""
    return size < (_limits.get(origin) or size + 1)


def too_large(origin: str, size: int) -> None:
    """Note that a provider has refused a message of so many bytes."""
    _limits.put(origin, size)


def may_open(origin: str) -> bool:
    """Return whether a provider has not refused a WebSocket within the last hour, nor been out of reach of late."""
    return now_ns() >= (_closed_until_ns.get(origin) or 0)


def not_opened(origin: str, *, refused: bool) -> bool:
    """Note that no WebSocket could be opened. Returns whether that is news."""
    news = may_open(origin)
    _closed_until_ns.put(origin, now_ns() + (_REFUSED_S if refused else _UNREACHABLE_S) * 10**9)
    return news
