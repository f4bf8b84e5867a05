"""Keep the state of an experiment at a Redis server, which several machines share."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

from ..knowledge.stores._redis import RedisAddress
from ._keepers import Change, Kept, next_version

# After the last change: an experiment that nobody makes calls of is over.
_EXPIRY_S = 90 * 86_400
# Others may change it in between, and then it is changed anew.
_TRIES = 50
_random = Random()


class RedisKeeper:
    """Changes are optimistic transactions: `WATCH`, and `EXEC` does nothing where somebody else was faster."""

    def __init__(self, address: RedisAddress, name: str) -> None:
        self._address = address
        self._key = f"fastlane:experiment:{name}"
        self._connection: Any = None

    def read(self, known: int | None) -> Kept | None:
        """See `Keeper`."""
        try:
            (version,) = self._ask(("HGET", self._key, "version"))
            if _number(version) == known:
                return None
            (both,) = self._ask(("HMGET", self._key, "version", "document"))
        except BaseException:
            self.close()
            raise
        return Kept(_number(both[0]), both[1])

    def change(self, change: Change) -> Kept:
        """See `Keeper`."""
        try:
            for number in range(_TRIES):
                _, both = self._ask(("WATCH", self._key), ("HMGET", self._key, "version", "document"))
                kept = Kept(_number(both[0]), both[1])
                document = change(kept.document)
                if document is None:
                    self._ask(("UNWATCH",))
                    return kept
                version = next_version(kept)
                *_, done = self._ask(
                    ("MULTI",),
                    ("HSET", self._key, "version", str(version), "document", document),
                    ("EXPIRE", self._key, str(_EXPIRY_S)),
                    ("EXEC",),
                )
                if done is not None:
                    return Kept(version, document)
                threading.Event().wait(_random.uniform(0.0, 0.002 * (number + 1)))
            raise TimeoutError("others have changed the experiment in the meantime, time and again")
        except BaseException:
            # Whatever was to be answered is not waited for: the next one opens another.
            self.close()
            raise

    def _ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        if self._connection is None:
            connection = self._address.connection()
            connection.connect()
            self._connection = connection
        connection = self._connection
        connection.send_packed_command(connection.pack_commands(commands))
        replies = []
        error: Exception | None = None
        for _ in commands:
            try:
                replies.append(connection.read_response())
            except Exception as raised:  # noqa: BLE001 - the others are still to be read
                error = error or raised
                if not connection.is_connected:
                    break
        if error is not None:
            raise error
        return replies

    def begin_in_child(self) -> None:
        """See `Keeper`."""
        try:
            self.close()  # without the parent's noticing, as the client sees to
        except Exception:  # noqa: BLE001 - the parent's thread may have been in the middle of anything
            self._connection = None
        _random.seed()

    def close(self) -> None:
        """See `Keeper`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


def _number(version: Any) -> int:
    return 0 if version is None else int(version)
