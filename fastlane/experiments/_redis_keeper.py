"""Keep the state of an experiment at a Redis server, which several machines share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

from ._keepers import Change, Kept, next_version

# After the last change: an experiment that nobody makes calls of is over.
_EXPIRY_S = 90 * 86_400
# Others may change it in between, and then it is changed anew.
_TRIES = 50
# Replaces the document if its version is still the one that was read.
_REPLACE = """
if (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'document', ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""
_random = Random()


class RedisKeeper:
    """Replaces the document only if no other process has changed it since it was read."""

    def __init__(self, connect: Callable[[], Any], name: str) -> None:
        self._connect = connect
        self._key = f"fastlane:experiment:{name}"
        self._client: Any = None

    def read(self, known: int | None) -> Kept | None:
        """See `Keeper`."""
        client = self._connected()
        if _number(client.hget(self._key, "version")) == known:
            return None
        return self._read(client)

    def change(self, change: Change) -> Kept:
        """See `Keeper`."""
        client = self._connected()
        for number in range(_TRIES):
            kept = self._read(client)
            document = change(kept.document)
            if document is None:
                return kept
            version = next_version(kept)
            if client.eval(_REPLACE, 1, self._key, str(kept.version), str(version), document, str(_EXPIRY_S)):
                return Kept(version, document)
            threading.Event().wait(_random.uniform(0.0, 0.002 * (number + 1)))
        raise TimeoutError("others have changed the experiment in the meantime, time and again")

    def _read(self, client: Any) -> Kept:
        version, document = client.hmget(self._key, "version", "document")
        return Kept(_number(version), document)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def begin_in_child(self) -> None:
        """See `Keeper`. The library connects anew in a child."""
        _random.seed()

    def close(self) -> None:
        """See `Keeper`."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _number(version: Any) -> int:
    return 0 if version is None else int(version)
