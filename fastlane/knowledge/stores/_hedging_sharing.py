"""Have what hedging has seen known by other processes too, and its budget theirs."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.errors import ConfigurationError

from ._store import Receive, Store, store_of

if TYPE_CHECKING:
    from fastlane.plays.hedging._memory import Memory

_NAMESPACE = "fastlane:hedging"
# What is older says as much as what is as old as this.
_MOST_AGE_S = 86_400.0


def share(memory: Memory, store: str | Store) -> None:
    """Make a memory that of one replica of several. A text is the address of the store that they share.

    Raises ConfigurationError for what is neither, and MissingExtraError where the store's client is not installed.
    """
    if isinstance(store, str):
        store = store_of(store, namespace=_NAMESPACE)
    elif not all(callable(getattr(store, name, None)) for name in ("publish", "subscribe", "start")):
        raise ConfigurationError(
            f'Hedging(store=...) takes an address such as "redis://localhost:6379/0", got {type(store).__name__}'
        )
    memory.share(store, secrets.token_hex(8))
    store.subscribe(_to(memory))
    store.start()


def _to(memory: Memory) -> Receive:
    # A store that outlives the play has nobody to tell any more.
    reference = weakref.ref(memory)

    def receive(event: Mapping[str, Any], age_s: float) -> None:
        memory = reference()
        if memory is not None:
            now = now_ns()
            memory.told(event, now - int(min(max(0.0, age_s), _MOST_AGE_S) * 1e9), now)

    return receive
