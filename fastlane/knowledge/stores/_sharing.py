"""Have what routing knows of its models known by other processes too."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from fastlane._clock import now_ns
from fastlane.errors import ConfigurationError
from fastlane.plays.routing.catalog._scores import scoreboard

from ._store import Store, store_of

if TYPE_CHECKING:
    from fastlane.plays.routing._knowledge import Knowledge
    from fastlane.plays.routing.catalog._models import Catalog


# By what a process knows its own scores, which come back to it by its other stores.
_TOKEN = secrets.token_hex(8)
_numbers = itertools.count()
_heard: dict[str, None] = {}
_MOST_HEARD = 20_000


# Evaluations are the whole process's: every store is told of each, under one number.
_stores: WeakSet[Store] = WeakSet()


def _tell(task: str, model: str, passed: bool) -> None:
    number = f"{_TOKEN}-{os.getpid()}-{next(_numbers)}"
    for store in list(_stores):
        store.publish({"kind": "score", "task": task, "model": model, "passed": passed, "number": number})


scoreboard.subscribe(_tell)


def _told(receive: Callable[[Mapping[str, Any], int], None], event: Mapping[str, Any], age_s: float) -> None:
    """Hand an event on with its moment, and an evaluation once, however many stores have told of it."""
    if event.get("kind") == "score":
        number = str(event.get("number"))
        if number.startswith(f"{_TOKEN}-{os.getpid()}-") or number in _heard:
            return
        _heard[number] = None
        if len(_heard) > _MOST_HEARD:
            for oldest in list(_heard)[: _MOST_HEARD // 2]:
                _heard.pop(oldest, None)
    receive(event, now_ns() - int(max(0.0, age_s) * 1e9))


def digest_of(catalog: Catalog) -> str:
    """Eight hexadecimal digits that differ where catalogs have other models: whoever has others has nothing to tell.

    A price or a bar that is put right leaves what was learned as it is.
    """
    models = sorted([model.name, model.model, catalog.origin_of(model)] for model in catalog.models)
    return hashlib.sha256(json.dumps(models).encode()).hexdigest()[:8]


def share(knowledge: Knowledge, store: str | Store) -> None:
    """Tell a store what is learned here, and learn what others tell it. A text is the address of one.

    Raises ConfigurationError for what is neither, and MissingExtraError where the store's client is not installed.
    """
    if isinstance(store, str):
        store = store_of(store, namespace=f"fastlane:{digest_of(knowledge.catalog)}")
    elif not callable(getattr(store, "publish", None)) or not callable(getattr(store, "subscribe", None)):
        raise ConfigurationError(
            f'Routing(store=...) takes an address such as "redis://localhost:6379/0", got {type(store).__name__}'
        )
    knowledge.shares = store
    store.subscribe(partial(_told, knowledge.told))
    _stores.add(store)
    store.start()
