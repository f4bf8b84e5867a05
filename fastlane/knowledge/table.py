"""The table in which everything that is learned at run time is kept: bounded, expiring, safe for threads and forks."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Literal, TypeVar

from .._clock import now_ns
from .._fork import new_lock, starts_over

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
        in_child: Literal["keep", "empty"] = "keep",
    ) -> None:
        """Of more than `max_entries`, drop those that were written or fetched longest ago.

        An entry expires `expires_s` seconds after it was last written or fetched. An entry whose value is `in_use` is
        neither dropped nor expires; that function takes no lock. A forked child keeps the entries or begins with none.
        """
        self.name = name
        self._max_entries = max_entries
        self._expires_ns = None if expires_s is None else int(expires_s * 1e9)
        self._in_use = in_use
        self._in_child = in_child
        # A plain dict takes ever longer to find its oldest key where many have gone.
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = new_lock()
        _tables.add(self)
        starts_over(self)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self._entries)} of {self._max_entries})"

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None. Take no lock, and do not renew the entry."""
        entry = self._entries.get(key)
        if entry is None or (entry[1] <= now_ns() and not self._is_in_use(entry[0])):
            return None
        return entry[0]

    def fetch(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, which is made first where there is none, and renew the entry."""
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
        """Write and return `change(value)`, in one step; the value is None where there is none.

        `change` runs under the lock: it calculates, and calls nothing that takes a lock or waits.
        """
        with self._lock:
            before = self.get(key)
            value = change(before)
            self._set(key, value)
            dropped = self._make_room()
        del before, dropped  # outside of the lock: finalizers may run
        return value

    def pop(self, key: K) -> V | None:
        """Remove a key, and return its value, or None."""
        with self._lock:
            value = self.get(key)
            entry = self._entries.pop(key, None)
        del entry
        return value

    def items(self) -> list[tuple[K, V]]:
        """Return all entries that have not expired, those written or fetched longest ago first."""
        with self._lock:
            keys = list(self._entries)
        return [(key, value) for key in keys if (value := self.get(key)) is not None]

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            dropped, self._entries = self._entries, OrderedDict()
        del dropped

    @staticmethod
    def clear_all() -> None:
        """Empty every table of the process, for tests."""
        for table in list(_tables):
            table.clear()

    def begin_in_child(self) -> None:
        """See `StartsOver`."""
        if self._in_child == "empty":
            self._entries = OrderedDict()

    def _set(self, key: K, value: V) -> None:
        self._entries[key] = value, _NEVER if self._expires_ns is None else now_ns() + self._expires_ns
        self._entries.move_to_end(key)

    def _is_in_use(self, value: V) -> bool:
        return self._in_use is not None and self._in_use(value)

    def _make_room(self) -> list[V]:
        """Remove the oldest entries of too many and a few that have expired, and return their values."""
        dropped: list[V] = []
        for _ in range(min(_MOST_LOOKS, len(self._entries) - 1)):
            # All entries live equally long: the oldest expires first.
            key, (value, until_ns) = next(iter(self._entries.items()))
            if until_ns > now_ns() and len(self._entries) <= self._max_entries:
                break
            if self._is_in_use(value):
                self._set(key, value)
            else:
                dropped.append(self._entries.pop(key)[0])
        return dropped


_tables: weakref.WeakSet[Table[Any, Any]] = weakref.WeakSet()
