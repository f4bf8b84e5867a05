"""The clients of a pipeline for other upstreams than the application's own, and what is known of their connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from fastlane._fork import new_lock, new_rlock
from fastlane.compat.clients import http_client_of, transport_of, validates_strictly
from fastlane.transport.pool.pool import UNKNOWN, Outlook

from ._keys import key_of, missing_key

if TYPE_CHECKING:
    from fastlane.plays.routing.catalog._models import CatalogModel

_making = new_lock()

_Key = tuple[str, str | None, bool, bool]
"""A base URL, the variable of its key, whether the client is asynchronous, and whether it validates strictly."""


class _Sibling(NamedTuple):
    client: Any
    transport: Any
    """What can say what is known of its connection; None where that is not ours."""
    request: Any
    """What leads to its upstream, and is never sent."""


class Siblings:
    """The clients of one pipeline for other upstreams; made when they are first needed, and used by any thread.

    Each has the application's pipeline, plays and log of calls, and the shared connections. It has none of the
    application's credentials, organisation, project, headers, query and HTTP client, and nothing that openai's client
    takes from its environment. It is of fastlane's own class whatever the application's is: what a subclass overrides
    is about the application's own provider.
    """

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._made: dict[_Key, _Sibling] = {}
        # Not the applications' clients themselves, which nothing but the application may keep alive.
        self._own: WeakKeyDictionary[Any, tuple[Any, Any, Any, Any]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Siblings({len(self._made)})"

    def of(self, client: Any, model: CatalogModel) -> Any | None:
        """Return the client that a model is called with: the application's own where the catalog names no base URL.

        None where the key that it needs cannot be had; `missing_key` says why. The key is that of the environment at
        this moment. A client that was closed calls nobody: it is returned itself, to fail as it does by itself.
        """
        if model.base_url is None or http_client_of(client).is_closed:
            return client
        key = key_of(model)
        if key is None:
            return None
        which = (model.base_url, model.api_key_env, client._asynchronous, validates_strictly(client))
        sibling = self._made.get(which)
        if sibling is None or http_client_of(sibling.client).is_closed:
            with self._lock:
                sibling = self._made.get(which)
                if sibling is None or http_client_of(sibling.client).is_closed:
                    made = client._upstream_client(model.base_url, key)
                    sibling = self._made[which] = _Sibling(made, *_way_of(made))
        if sibling.client.api_key != key:
            sibling.client.api_key = key
        return sibling.client

    def missing_key(self, model: CatalogModel) -> str | None:
        """Return why a model cannot be called now, such as "MY_KEY is not set"; None where it can."""
        return missing_key(model)

    def outlook(self, model: CatalogModel, *, asynchronous: bool, client: Any = None) -> Outlook:
        """Return what is known of the connection to a model's upstream, without opening one.

        `client` is the application's own, for the models that are called with it.
        """
        if model.base_url is None:
            return UNKNOWN if client is None else self._own_outlook(client)
        for strict in (False, True):
            sibling = self._made.get((model.base_url, model.api_key_env, asynchronous, strict))
            if sibling is not None:
                return _outlook(sibling.transport, sibling.request)
        for strict in (False, True):
            sibling = self._made.get((model.base_url, model.api_key_env, not asynchronous, strict))
            if sibling is not None:
                # The other form's connections are its own, but as far away.
                return Outlook(round_trip_time_ns=_outlook(sibling.transport, sibling.request).round_trip_time_ns)
        return UNKNOWN

    def _own_outlook(self, client: Any) -> Outlook:
        known = self._own.get(client)
        if known is None or known[0] is not client.base_url or known[1] is not http_client_of(client):
            transport, request = _way_of(client)
            known = self._own[client] = (client.base_url, http_client_of(client), transport, request)
        return _outlook(known[2], known[3])

    def close(self) -> None:
        """Close the synchronous ones; a later call makes new ones."""
        for sibling in self._taken(asynchronous=False):
            sibling.client.close()

    async def aclose(self) -> None:
        """Close the asynchronous ones, as far as they are of this event loop; a later call makes new ones."""
        for sibling in self._taken(asynchronous=True):
            await sibling.client.close()

    def _taken(self, *, asynchronous: bool) -> list[_Sibling]:
        with self._lock:
            return [self._made.pop(which) for which in list(self._made) if which[2] is asynchronous]


def siblings_of(pipeline: Any) -> Siblings:
    """Return those of a pipeline: the same to all of its threads, whose first calls may come at once."""
    with _making:
        if pipeline.siblings is None:
            pipeline.siblings = Siblings()
        made: Siblings = pipeline.siblings
    return made


def _way_of(client: Any) -> tuple[Any, Any]:
    """What can say what is known of a client's connection, and what to ask it with; None where that is not ours."""
    http_client = http_client_of(client)
    transport = transport_of(http_client)
    if not callable(getattr(transport, "outlook", None)):
        return None, None
    return transport, http_client.build_request("GET", client.base_url)


def _outlook(transport: Any, request: Any) -> Outlook:
    if transport is None:
        return UNKNOWN
    outlook: Outlook = transport.outlook(request)
    return outlook
