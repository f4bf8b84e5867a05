"""Have several processes keep to one rate limit: each tells the others what it spends, and when it has to rest."""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.errors import ConfigurationError

from ._store import Store, store_of

if TYPE_CHECKING:
    from fastlane.plays.urgency.pacing import Pacer

_NAMESPACE = "fastlane:pacing"
# What is older says nothing of now.
_MOST_AGE_S = 86_400.0

# One store for each address, however many models are paced: each has a thread and a connection.
_stores: weakref.WeakValueDictionary[str, Store] = weakref.WeakValueDictionary()
_hubs: weakref.WeakKeyDictionary[Store, _Hub] = weakref.WeakKeyDictionary()


class _Hub:
    """Hands what one store hears to the pacers that it is for, as long as there are any."""

    def __init__(self) -> None:
        self._pacers: dict[str, weakref.ref[Pacer]] = {}
        self._joining = threading.Lock()

    def join(self, key: str, pacer: Pacer) -> None:
        with self._joining:
            # A new one each time: the store's thread may be reading the old one.
            living = {one: reference for one, reference in self._pacers.items() if reference() is not None}
            self._pacers = {**living, key: weakref.ref(pacer)}

    def receive(self, event: Mapping[str, Any], age_s: float) -> None:
        if event.get("kind") != "pacing":
            return
        reference = self._pacers.get(str(event.get("key")))
        pacer = reference() if reference is not None else None
        if pacer is not None:
            pacer.heard.append((event, now_ns() - int(min(max(0.0, age_s), _MOST_AGE_S) * 1e9)))


def share(pacer: Pacer, store: str | Store, *, key: str) -> None:
    """Make a pacer that of one replica of several. A text is the address of the store that they share.

    `key` names what is limited, and is the same in all of them: a digest of the origin, the account and the model. A
    pacer that is shared already stays as it is. Raises ConfigurationError for what is no store, and MissingExtraError
    where the store's client is not installed.
    """
    if pacer.is_shared:
        return
    if isinstance(store, str):
        found = _stores.get(store)
        if found is None:
            found = _stores[store] = store_of(store, namespace=_NAMESPACE)
    elif all(callable(getattr(store, name, None)) for name in ("publish", "subscribe", "start")):
        found = store
    else:
        raise ConfigurationError(
            f'Urgency(store=...) takes an address such as "redis://localhost:6379/0", got {type(store).__name__}'
        )
    hub = _hubs.get(found)
    if hub is None:
        hub = _hubs[found] = _Hub()
        found.subscribe(hub.receive)
    hub.join(key, pacer)

    def tell(event: Mapping[str, Any]) -> None:
        found.start()  # a child process has yet to begin
        found.publish({**event, "key": key})

    pacer.share(secrets.token_hex(8), tell)
    found.start()
