"""Have what routing knows of its models known by other processes too."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from .._exceptions import ConfigurationError
from ..catalog._scores import scoreboard
from ._store import Store, store_of

if TYPE_CHECKING:
    from ..routing._knowledge import Knowledge


def share(knowledge: Knowledge, store: str | Store) -> None:
    """Tell a store what is learned here, and learn what others tell it. A text is the address of one.

    Raises ConfigurationError for what is neither, and MissingExtraError where the store's client is not installed.
    """
    if isinstance(store, str):
        # Whoever has other models has nothing to tell.
        store = store_of(store, namespace=f"fastlane:{knowledge.catalog.digest}")
    elif not callable(getattr(store, "publish", None)) or not callable(getattr(store, "subscribe", None)):
        raise ConfigurationError(
            f'Routing(store=...) takes an address such as "redis://localhost:6379/0", got {type(store).__name__}'
        )
    knowledge.shares = store
    store.subscribe(knowledge.told)
    # The scores are the whole process's, and outlive every store.
    reference = weakref.ref(store)

    def tell(task: str, model: str, passed: bool) -> None:
        living = reference()
        if living is not None:
            living.publish({"kind": "score", "task": task, "model": model, "passed": passed})

    weakref.finalize(store, scoreboard.subscribe(tell))
    store.start()
