"""What a store is, whatever keeps it: events that go to everybody else who has the same one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from fastlane.errors import ConfigurationError, MissingExtraError

State: TypeAlias = Literal["connected", "away", "closed"]
"""How a store is.

- connected: the last exchange of events worked
- away: none has worked yet, or the last one failed; it is tried again
- closed: it was closed, and does nothing any more
"""

Receive: TypeAlias = Callable[[Mapping[str, Any], float], None]
"""What takes an event of another store, and its age in seconds."""

_SCHEMES = ("redis", "rediss", "unix")


class Store(Protocol):
    """Shares events with all stores that have the same address and namespace, in this process and in others.

    Nobody waits for it: it works in a thread of its own, and what it cannot do is left undone.
    """

    @property
    def state(self) -> State:
        """Whether it works at the moment."""
        ...

    def publish(self, event: Mapping[str, Any]) -> None:
        """Have an event, which is plain JSON, sent to the others soon. Neither waits nor raises."""
        ...

    def subscribe(self, receive: Receive) -> None:
        """Have events of the others handed to `receive`, in the store's thread: the recent ones first, in order."""
        ...

    def start(self) -> None:
        """Begin, where that has not happened yet in this process. Neither waits nor raises."""
        ...

    def close(self) -> None:
        """Send what is left, wait for that for a second at most, and end."""
        ...


def store_of(url: str, *, namespace: str = "fastlane", history: int = 2_000) -> Store:
    """Return a store at the Redis server of an address: `redis://`, `rediss://` (TLS) or `unix://`.

    Nothing is connected before the first use. `namespace` begins the name of what is kept there. About the `history`
    latest events are kept, for those who come later. Raises ConfigurationError for an address or setting that cannot
    work, and MissingExtraError where the `redis` package is missing.
    """
    expected = (
        "the address of a Redis server: redis://host:6379/0, rediss://host:6379/0 (TLS) or unix:///path/redis.sock"
    )
    # What came is not quoted: it may be, or hold, a password.
    if not isinstance(url, str):
        raise ConfigurationError(f"store expects {expected}, got {type(url).__name__}")
    if url.partition("://")[0] not in _SCHEMES:
        raise ConfigurationError(f"store expects {expected}, got something that begins with none of these")
    if not isinstance(namespace, str) or not namespace:
        raise ConfigurationError(f"namespace expects a text that is not empty, got {namespace!r}")
    if not isinstance(history, int) or history < 1:
        raise ConfigurationError(f"history expects a number of events, at least 1, got {history!r}")
    try:
        import redis  # noqa: F401 - what is missing is this, and not one of ours
    except ImportError as error:
        raise MissingExtraError("redis", "redis") from error
    from ._redis import RedisAddress, RedisLine
    from ._shared import SharedStore

    address = RedisAddress(url)
    return SharedStore(lambda: RedisLine(address, f"{namespace}:events", history), name=str(address))
