"""The table for all state that is learned at run time: bounded, expiring, safe for threads and forks."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from .._clock import now_ns
from .._fork import new_lock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_NEVER = 2**63
# Entries that one write removes at most: it stays short, and still removes more than it adds.
_MOST_LOOKS = 8


class Table(Generic[K, V]):
    """Values by key, most of them by (origin, model, account).

    One plain lock guards all writes. It is held for microseconds, and never while `make` runs. Reads take no lock, so
    finalizers may read. They must not write: a garbage collection may run them in the thread that holds the lock.
    """

    def __init__(
        self,
        name: str,
        *,
        max_entries: int,
        expires_s: float | None = None,
        in_use: Callable[[V], bool] | None = None,
    ) -> None:
        """Make an empty table.

        If there are more than `max_entries`, those written or fetched longest ago are dropped. An entry expires
        `expires_s` seconds after it was last written or fetched. An entry whose value is `in_use` is neither dropped
        nor expires; that function must not take a lock.
        """
        self.name = name
        self._max_entries = max_entries
        self._expires_ns = None if expires_s is None else int(expires_s * 1e9)
        self._in_use = in_use
        # Not a dict: finding its first key is slow after many deletions.
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = new_lock()
        TABLES.add(self)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self._entries)} of {self._max_entries})"

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None. Takes no lock, and does not renew the entry."""
        entry = self._entries.get(key)
        if entry is None or (entry[1] <= now_ns() and not self._is_in_use(entry[0])):
            return None
        return entry[0]

    def fetch(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, and renew the entry. A missing value is made by `make`, outside of the lock."""
        value = self.get(key)
        if value is None:
            made = make()
            return self.update(key, lambda before: made if before is None else before)
        with self._lock:
            if key in self._entries:
                self._set(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Write the value of a key."""
        self.update(key, lambda _: value)

    def update(self, key: K, change: Callable[[V | None], V]) -> V:
        """Write and return `change(value)` atomically. The value is None if the key is missing.

        `change` runs with the lock held: it must not take a lock or block.
        """
        with self._lock:
            before = self.get(key)
            value = change(before)
            self._set(key, value)
            dropped = self._make_room()
        del before, dropped  # outside of the lock, because finalizers may run
        return value

    def pop(self, key: K) -> V | None:
        """Remove a key. Returns its value, or None."""
        with self._lock:
            value = self.get(key)
            entry = self._entries.pop(key, None)
        del entry
        return value

    def items(self) -> list[tuple[K, V]]:
        """Return all entries that have not expired, the least recently used first."""
        with self._lock:
            keys = list(self._entries)
        return [(key, value) for key in keys if (value := self.get(key)) is not None]

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            dropped, self._entries = self._entries, OrderedDict()
        del dropped

    def _set(self, key: K, value: V) -> None:
        self._entries[key] = value, _NEVER if self._expires_ns is None else now_ns() + self._expires_ns
        self._entries.move_to_end(key)

    def _is_in_use(self, value: V) -> bool:
        return self._in_use is not None and self._in_use(value)

    def _make_room(self) -> list[V]:
        """Remove surplus entries and a few expired ones, the oldest first, and return their values."""
        dropped: list[V] = []
        for _ in range(min(_MOST_LOOKS, len(self._entries) - 1)):
            # All entries have the same lifetime, so that the oldest expires first.
            key, (value, until_ns) = next(iter(self._entries.items()))
            if until_ns > now_ns() and len(self._entries) <= self._max_entries:
                break
            if self._is_in_use(value):
                self._set(key, value)
            else:
                dropped.append(self._entries.pop(key)[0])
        return dropped


TABLES: weakref.WeakSet[Table[Any, Any]] = weakref.WeakSet()
